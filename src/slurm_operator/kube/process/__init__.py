"""What every process needs: logs, metrics, probes, profiles, threads, signals."""
