"""Caches that stay equal to the API server: list, watch, and single objects."""
