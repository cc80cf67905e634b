"""A Kubernetes operator for Slurm clusters that protects running jobs."""

__version__ = "0.1.0"
