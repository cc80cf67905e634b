"""Requests to slurmrestd: connections, sessions, memory, threads."""
