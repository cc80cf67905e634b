"""What the API server accepts and refuses, and in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.manifests import DROP, GOOD, edited, key, manifest

if TYPE_CHECKING:
    from tests.integration.api.conftest import Kubectl

_EXTERNAL = {"external": True, "externalConfig": {"host": "h", "port": 6817}}
_WINDOW = {"startTime": "2026-12-01T04:00:00Z"}

ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in GOOD),
    ("Controller", {"jwtKeyRef": DROP, "jwtHs256KeyRef": key()}),
    ("Controller", {"slurmKeyRef": DROP, "jwtKeyRef": DROP, **_EXTERNAL}),
    ("Controller", {"ha.enabled": False}),
    ("Controller", {"ha.enabled": True, "ha.backups": 2, "persistence.existingClaim": "shared"}),
    ("Controller", {"persistence.resources": {"requests": {"storage": 5368709120}}}),
    ("Controller", {"metrics.serviceMonitor": {"interval": "1m30s", "endpoints": [{"path": "/m"}]}}),
    ("Accounting", {"slurmKeyRef": DROP, "jwtKeyRef": DROP, **_EXTERNAL}),
    ("Token", {"jwtKeyRef": DROP, "jwtHs256KeyRef": key(), "lifetime": "1.5h"}),
    ("NodeSet", {"updateStrategy": {"type": "OnDelete"}}),
    ("NodeSet", {"updateStrategy": {"type": "ScheduledUpdate", "scheduledUpdate": _WINDOW}}),
    ("NodeSet", {"updateStrategy.rollingUpdate.maxUnavailable": 3}),
    ("NodeSet", {"updateStrategy.rollingUpdate.maxUnavailable": "10%"}),
    ("NodeSet", {"partition": {"enabled": True, "config": "Default=YES MaxTime=1-0"}}),
    ("NodeSet", {"replicas": 0, "scalingMode": "DaemonSet", "ordinalPadding": 4}),
    (
        "LoginSet",
        {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}}},
    ),
]

# kind, edit, the field that the message must name, words that it must contain
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("Controller", {"slurmKeyRef": DROP}, "spec.slurmKeyRef", "slurmKeyRef is required unless external"),
    ("Controller", {"jwtKeyRef": DROP}, "spec.jwtKeyRef", "jwtKeyRef is required unless external"),
    ("Controller", {"external": True}, "spec.externalConfig", "externalConfig is required when external"),
    ("Controller", {"ha.enabled": True}, "spec.persistence", "ha.enabled needs persistence.existingClaim"),
    (
        "Controller",
        {"ha.enabled": True, "persistence.existingClaim": ""},
        "spec.persistence",
        "ReadWriteMany",
    ),
    (
        "Controller",
        {"ha.enabled": True, "persistence": {"enabled": False, "existingClaim": "c"}},
        "spec.persistence",
        "ReadWriteMany",
    ),
    ("Controller", {"ha": {"backups": 0}}, "spec.ha.backups", "greater than or equal to 1"),
    ("Controller", {"ha": {"backups": 10}}, "spec.ha.backups", "less than or equal to 9"),
    ("Controller", {"slurmKeyRef": {"name": "s"}}, "spec.slurmKeyRef.key", "Required value"),
    (
        "Controller",
        {"external": True, "externalConfig": {"host": "h"}},
        "spec.externalConfig.port",
        "Required",
    ),
    (
        "Controller",
        {"metrics.serviceMonitor": {"interval": "soon"}},
        "spec.metrics.serviceMonitor.interval",
        "match",
    ),
    (
        "Controller",
        {"persistence.resources.requests.storage": "much"},
        "spec.persistence.resources.requests.storage",
        "match",
    ),
    ("Controller", {"inplaceReconfigure": "yes"}, "spec.inplaceReconfigure", "boolean"),
    ("Controller", {"slurmctld": "image"}, "spec.slurmctld", "object"),
    ("Accounting", {"slurmKeyRef": DROP}, "spec.slurmKeyRef", "slurmKeyRef is required unless external"),
    ("Accounting", {"jwtKeyRef": DROP}, "spec.jwtKeyRef", "jwtKeyRef is required unless external"),
    ("Accounting", {"external": True}, "spec.externalConfig", "externalConfig is required when external"),
    ("Accounting", {"storageConfig.host": DROP}, "spec.storageConfig.host", "Required value"),
    (
        "Accounting",
        {"storageConfig.passwordKeyRef": DROP},
        "spec.storageConfig.passwordKeyRef",
        "Required value",
    ),
    ("NodeSet", {"controllerRef": DROP}, "spec.controllerRef", "Required value"),
    ("NodeSet", {"scalingMode": "ReplicaSet"}, "spec.scalingMode", '"DaemonSet", "StatefulSet"'),
    ("NodeSet", {"updateStrategy.type": "Never"}, "spec.updateStrategy.type", '"RollingUpdate", "OnDelete"'),
    (
        "NodeSet",
        {"updateStrategy.type": "ScheduledUpdate"},
        "spec.updateStrategy.scheduledUpdate",
        "startTime",
    ),
    (
        "NodeSet",
        {"updateStrategy": {"type": "ScheduledUpdate", "scheduledUpdate": {"duration": "1h"}}},
        "spec.updateStrategy.scheduledUpdate",
        "say when the maintenance window opens",
    ),
    (
        "NodeSet",
        {"updateStrategy.scheduledUpdate.startTime": "soon"},
        "spec.updateStrategy.scheduledUpdate.startTime",
        "date-time",
    ),
    (
        "NodeSet",
        {"updateStrategy.scheduledUpdate.duration": "2 h"},
        "spec.updateStrategy.scheduledUpdate.duration",
        "match",
    ),
    (
        "NodeSet",
        {"updateStrategy.rollingUpdate.maxUnavailable": True},
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
        "integer",
    ),
    (
        "NodeSet",
        {"persistentVolumeClaimRetentionPolicy.whenScaled": "Keep"},
        "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
        '"Retain", "Delete"',
    ),
    (
        "NodeSet",
        {"pruneSlurmNodeRecords": "Always"},
        "spec.pruneSlurmNodeRecords",
        '"Never", "NodeNotFound", "ScaledIn"',
    ),
    ("NodeSet", {"partition": {"enabled": True, "config": "A=1\nB=2"}}, "spec.partition.config", "match"),
    ("NodeSet", {"ssh": {"enabled": True}}, "spec.ssh.sssdConfRef", "Required value"),
    ("NodeSet", {"ordinalPadding": -1}, "spec.ordinalPadding", "greater than or equal to 0"),
    ("NodeSet", {"volumeClaimTemplates": "scratch"}, "spec.volumeClaimTemplates", "array"),
    ("NodeSet", {"replicas": "two"}, "spec.replicas", "integer"),
    ("LoginSet", {"controllerRef": DROP}, "spec.controllerRef", "Required value"),
    ("LoginSet", {"sssdConfRef": DROP}, "spec.sssdConfRef", "Required value"),
    ("RestApi", {"controllerRef": DROP}, "spec.controllerRef", "Required value"),
    ("Token", {"jwtKeyRef": DROP}, "spec.jwtKeyRef", "jwtKeyRef is required: name the Secret"),
    ("Token", {"username": DROP}, "spec.username", "Required value"),
    ("Token", {"lifetime": "a day"}, "spec.lifetime", "match"),
    ("Cluster", {"server": DROP}, "spec.server", "Required value"),
    ("Cluster", {"token": DROP}, "spec.token", "Required value"),
    ("Cluster", {"token.secretRef": DROP}, "spec.token.secretRef", "Required value"),
]


@pytest.mark.parametrize(("kind", "edits"), ACCEPTED)
def test_good_manifests_are_accepted(dry_kubectl: Kubectl, kind: str, edits: dict[str, Any]) -> None:
    """A manifest that keeps every rule is accepted."""
    assert dry_kubectl.refusal(edited(kind, edits)) == ""


@pytest.mark.parametrize(("kind", "edits", "field", "words"), REFUSED)
def test_bad_manifests_are_refused_by_the_name_of_the_field(
    dry_kubectl: Kubectl, kind: str, edits: dict[str, Any], field: str, words: str
) -> None:
    """A manifest that breaks one rule is refused with the field and the way out in the message."""
    refusal = dry_kubectl.refusal(edited(kind, edits))
    assert f"{field}: " in refusal
    assert words in refusal


def test_unknown_fields_inside_open_parts_survive(kubectl: Kubectl) -> None:
    """A field that Kubernetes may know one day is kept in pod, container, service and claim templates."""
    future = {"nodeSelector": {"a": "b"}, "fieldOfTheFuture": {"deep": [1, {"er": True}]}}
    spec = {
        "controllerRef": {"name": "c"},
        "template": {"spec": future},
        "slurmd": future,
        "logfile": future,
        "volumeClaimTemplates": [future],
    }
    kubectl.apply(
        manifest("NodeSet", spec),
        manifest("RestApi", {"controllerRef": {"name": "c"}, "service": {"spec": future}}),
    )
    stored = kubectl.get("nodeset", "x")["spec"]
    assert stored["template"]["spec"] == stored["slurmd"] == stored["logfile"] == future
    assert stored["volumeClaimTemplates"] == [future]
    assert kubectl.get("restapi", "x")["spec"]["service"]["spec"] == future


def test_unknown_fields_elsewhere_are_refused(dry_kubectl: Kubectl) -> None:
    """A misspelled field of our own is an error that quotes it."""
    assert 'unknown field "spec.replica"' in dry_kubectl.refusal(edited("NodeSet", {"replica": 3}))
