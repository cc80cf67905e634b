"""What `slurm-operator webhook` was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_operator.kube.process.listen_address import ListenAddress
    from slurm_operator.kube.process.log import LogOptions

CERTIFICATE_FOLDER = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where Slinky slurm-operator mounts it


@dataclass(frozen=True)
class WebhookOptions:
    """Where to listen, with which certificate, and whom to ask."""

    kubeconfig: str | None
    server: ListenAddress
    cert_dir: Path
    client_ca: Path | None
    health: ListenAddress | None
    metrics: ListenAddress | None
    metrics_secure: bool
    namespaces: tuple[str, ...]
    shutdown_delay: float
    log: LogOptions
