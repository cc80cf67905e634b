"""What Slurm has: nodes, jobs and the view of a cluster as typed data; pure."""
