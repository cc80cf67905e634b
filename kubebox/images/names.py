"""The names of the images that every node needs."""

from __future__ import annotations

PAUSE_IMAGE = "kubebox.local/pause:1"
COREDNS_IMAGE = "kubebox.local/coredns:1"
