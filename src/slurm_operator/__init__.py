"""A Kubernetes operator that runs Slurm clusters without ever killing a running job."""

__version__ = "0.1.0"
