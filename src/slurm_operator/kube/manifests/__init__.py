"""Merging, comparing and owning parts of manifests; pure."""
