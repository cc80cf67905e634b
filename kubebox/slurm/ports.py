"""Ports that stay a box's own while daemons come and go.

Like kubebox.ports, but for servers that know no SO_REUSEPORT: Slurm's daemons set SO_REUSEADDR, and with that
the kernel lets a server bind and listen beside a socket that is bound with the same option and never listens.
Whoever asks for any free port, or for a port to connect from, does not get one of ours.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from kubebox.ports import LOOPBACK

_LISTEN = "0A"
_ANY = 0


class SlurmPort:
    """A free loopback port, held until `close`."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Chosen first and shared afterwards: a port that is asked for with the option may be somebody's.
            self._socket.bind((LOOPBACK, 0))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()


def listening(port: int, address: str = LOOPBACK) -> bool:
    """Say whether a server listens on a local port, without disturbing it by a connection."""
    wanted = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        host, _, number = local.partition(":")
        if state == _LISTEN and int(number, 16) == port and int(host, 16) in (wanted, _ANY):
            return True
    return False
