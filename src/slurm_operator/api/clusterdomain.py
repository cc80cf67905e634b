"""Finds the DNS domain of the Kubernetes cluster, on which full names of Services end.

Nothing in the API tells it. But the kubelet writes it into every pod: the `search` line of `/etc/resolv.conf`
has an entry `svc.<domain>`.
"""

from __future__ import annotations

from slurm_operator.api.wellknown import DEFAULT_CLUSTER_DOMAIN

_SERVICES = "svc."


def cluster_domain(resolv_conf: str) -> str:
    """Return the domain that the text of a pod's `/etc/resolv.conf` shows, else the usual one."""
    for line in resolv_conf.splitlines():
        keyword, *entries = line.split() or [""]
        if keyword != "search":
            continue
        for entry in entries:
            # A name may be written with the dot of the root, which a name built on it must not have twice.
            domain = entry.removeprefix(_SERVICES).rstrip(".")
            if entry.startswith(_SERVICES) and domain:
                return domain
    return DEFAULT_CLUSTER_DOMAIN
