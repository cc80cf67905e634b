"""Measurements: what a part costs beside what a user would pick instead, taken in one run."""
