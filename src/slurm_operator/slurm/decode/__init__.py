"""From bytes of slurmrestd to typed data, within limits; pure."""
