"""Kubernetes objects as typed data, and the store that indexes them; pure."""
