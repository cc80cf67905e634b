"""The few calls to slurmrestd that a box makes for itself. Not a Slurm client: tests bring their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubebox.api import Api

# The newest version that both releases have.
VERSION = "v0.0.42"


def nodes(api: Api, token: str) -> tuple[str, dict[str, list[str]]]:
    """Return Slurm's version and the state of every node by name; empty while slurmctld does not answer."""
    reply = api.request("GET", f"/slurm/{VERSION}/nodes/", token={"X-SLURM-USER-TOKEN": token})
    if not reply.ok or (found := reply.json())["errors"]:
        return "", {}
    release = str(found["meta"]["slurm"]["release"])
    return release, {str(node["name"]): list(node["state"]) for node in found["nodes"]}
