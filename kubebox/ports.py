"""Ports that stay ours, also while nothing listens on them.

Finding a free port and then telling a server to use it leaves a gap in which somebody else may take it; a
server that a test stops and starts again has that gap every time. So a box keeps a socket of its own bound
(never listening) to each of its ports, with SO_REUSEPORT, and tells the servers to set the same option. The
kernel then lets a server of the same user in, gives the port to nobody who asks for "any free port", and
refuses connections while no server listens. etcd, kube-apiserver, kube-controller-manager and kube-scheduler
all have a flag for it.
"""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


class HeldPort:
    """A free port of one of the machine's addresses, held until `close`."""

    def __init__(self, address: str = LOOPBACK) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((address, 0))
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()
