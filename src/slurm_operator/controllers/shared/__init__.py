"""What several controllers have in common: conditions, connection health, problems, contents."""
