"""Changes to Slurm nodes, collected into few requests."""
