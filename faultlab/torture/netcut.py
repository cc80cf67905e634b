"""Cut a pod off from some addresses: `python -m faultlab.torture.netcut ROOTFS PID cut|mend ADDRESS…`.

The routes of the network namespace of the process PID are changed. What is sent to a cut address leaves for a
neighbour that does not exist, so that connections hang, as they do when a cable is pulled. A process of its
own, since only one with a single thread can enter a namespace. `ip` is that of the nodes' root file system.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kubebox.errors import BoxError
from kubebox.nodes.network import run_ip

# Locally administered, and of no device.
_NOWHERE = "02:00:00:00:00:fe"


def commands(how: str, addresses: list[str]) -> list[str]:
    """Return the commands for `ip`."""
    if how == "cut":
        return [
            line
            for address in addresses
            for line in (
                f"route replace {address}/32 dev eth0",
                f"neigh replace {address} dev eth0 lladdr {_NOWHERE} nud permanent",
            )
        ]
    return [
        line
        for address in addresses
        for line in (f"neigh del {address} dev eth0", f"route del {address}/32 dev eth0")
    ]


def main(words: list[str]) -> int:
    """Change the routes of the pod."""
    rootfs, pid, how, *addresses = words
    try:
        run_ip(Path(rootfs), commands(how, addresses), Path(f"/proc/{pid}/ns/net"))
    except BoxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
