from __future__ import annotations

import errno
import os
import socket

import pytest

from kubebox.ports import LOOPBACK, HeldPort


@pytest.mark.parametrize("reuse", [0, 1])
def test_held_port_is_refused_to_a_stranger(reuse: int) -> None:
    """Nobody who does not ask to share can bind the port, not even with the option that most servers set."""
    held = HeldPort()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            stranger.bind((LOOPBACK, held.port))
    held.close()


def test_held_port_serves_a_sharing_server_again_and_again() -> None:
    """A server that shares the port gets its connections, is missed while away, and can come back."""
    held = HeldPort()
    for _ in range(3):
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((LOOPBACK, held.port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((LOOPBACK, held.port))
            server.listen()
            with socket.create_connection((LOOPBACK, held.port), timeout=60):
                server.settimeout(60)
                server.accept()[0].close()
    held.close()


def test_no_two_holds_share_a_port() -> None:
    """Holds made at the same time are all different, although each of them is willing to share."""
    held = [HeldPort() for _ in range(200)]
    ports = {hold.port for hold in held}
    for hold in held:
        hold.close()
    assert len(ports) == len(held)


def test_closed_hold_gives_the_port_back() -> None:
    """After the hold is closed the port is anybody's."""
    held = HeldPort()
    held.close()
    with socket.socket() as stranger:
        stranger.bind((LOOPBACK, held.port))
