"""The text of Slurm's configuration files; pure."""
