"""Decisions about Slurm: which lists to trust, when to poll, what may be written; pure."""
