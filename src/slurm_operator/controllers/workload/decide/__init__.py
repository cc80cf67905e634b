"""Decisions about the workload of a daemon: effects of changes, rollout, conditions; pure."""
