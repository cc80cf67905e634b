"""Requests to the API server: configuration, credentials, connections, encoding."""
