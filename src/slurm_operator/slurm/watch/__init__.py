"""One poller per Slurm cluster, which keeps its view current."""
