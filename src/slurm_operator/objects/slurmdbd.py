"""Accounting: what runs slurmdbd.

A StatefulSet with one pod, its Service, and a Secret with slurmdbd.conf, which contains the password of the
database. An external slurmdbd needs none of these: slurm.conf leads to it directly.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from slurm_operator.api.shared import SecretKeySelector
from slurm_operator.objects import labels, pod_parts, services, slurm_conf
from slurm_operator.objects.content_references import References, checksum, files_checksum, jwt_field
from slurm_operator.objects.desired import Assembly, Desired, Manifest, ObjectName, gather

if TYPE_CHECKING:
    from slurm_operator.api import Accounting
    from slurm_operator.objects.content_references import Found

_APP = labels.SLURMDBD


def references(accounting: Accounting) -> References:
    """Return the objects whose content decides how slurmdbd is configured and when it restarts."""
    if accounting.spec.external:
        return References()
    jwks = accounting.spec.jwks_key_ref
    keys = (
        accounting.spec.slurm_key_ref,
        accounting.jwt_key,
        accounting.spec.storage_config.password_key_ref,
    )
    return References(
        secrets=frozenset(key.name for key in keys if key is not None and key.name),
        config_maps=frozenset({jwks.name} if jwks and jwks.name else ()),
    )


def desired(accounting: Accounting, found: Found) -> Desired:
    """Return the children of an Accounting."""
    assembly = Assembly()
    if accounting.spec.external:
        assembly.unwanted += [
            ObjectName("apps/v1", "StatefulSet", accounting.workload_name),
            ObjectName("v1", "Service", accounting.service_name),
            ObjectName("v1", "Secret", accounting.config_name),
        ]
        return assembly.done()
    assembly.build(lambda: service(accounting))
    assembly.build(lambda: config_secret(accounting, found))
    assembly.build(lambda: stateful_set(accounting, found))
    return assembly.done()


def service(accounting: Accounting) -> Manifest:
    """Return the Service in front of slurmdbd."""
    wish = accounting.spec.service
    return services.service(
        labels.object_metadata(accounting, _APP, accounting.service_name, wish.metadata),
        wish,
        port_name=_APP.name,
        port=wellknown.PORT_SLURMDBD,
        selector=labels.selector_labels(_APP, accounting.metadata.name),
    )


def config_secret(accounting: Accounting, found: Found) -> Manifest:
    """Return the Secret with slurmdbd.conf."""
    text = slurm_conf.slurmdbd_conf(accounting, found)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": labels.object_metadata(accounting, _APP, accounting.config_name),
        "immutable": False,
        "data": {wellknown.FILE_SLURMDBD_CONF: base64.b64encode(text.encode()).decode()},
    }


def stateful_set(accounting: Accounting, found: Found) -> Manifest:
    """Return the StatefulSet of slurmdbd."""
    spec = accounting.spec
    key, jwt, jwks = spec.slurm_key_ref, accounting.jwt_key, spec.jwks_key_ref
    builders = {
        wellknown.ANNOTATION_SLURM_KEY_HASH: lambda: found.secret_checksum(key, "spec.slurmKeyRef"),
        wellknown.ANNOTATION_JWT_KEY_HASH: lambda: found.secret_checksum(jwt, jwt_field(spec)),
        wellknown.ANNOTATION_SLURMDBD_CONF_HASH: lambda: checksum(
            slurm_conf.slurmdbd_conf(accounting, found).encode()
        ),
    }
    if jwks is not None:
        builders[wellknown.ANNOTATION_REFERENCED_FILES_HASH] = lambda: files_checksum(
            {wellknown.FILE_JWKS: found.config_map_key(jwks, "spec.jwksKeyRef")}
        )
    hashes = gather(builders)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": labels.object_metadata(
            accounting, _APP, accounting.workload_name, spec.template.metadata
        ),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "podManagementPolicy": "Parallel",
            "serviceName": accounting.service_name,
            "selector": {"matchLabels": labels.selector_labels(_APP, accounting.metadata.name)},
            "template": {
                "metadata": pod_parts.template_metadata(
                    accounting, _APP, accounting.workload_name, spec.template, hashes
                ),
                "spec": pod_parts.pod_spec(_pod(accounting), spec.template),
            },
        },
    }


def _pod(accounting: Accounting) -> dict[str, Any]:
    spec = accounting.spec
    conf = SecretKeySelector(name=accounting.config_name, key=wellknown.FILE_SLURMDBD_CONF)
    return {
        "automountServiceAccountToken": False,
        "securityContext": pod_parts.run_as(
            wellknown.SLURM_UID, wellknown.SLURM_GID, fs_group=wellknown.SLURM_GID
        ),
        "containers": [pod_parts.container(_SLURMDBD, spec.slurmdbd, "spec.slurmdbd")],
        "volumes": [
            pod_parts.projected_volume(
                wellknown.VOLUME_SLURM_ETC,
                pod_parts.MODE_PRIVATE,
                pod_parts.secret_file(conf, wellknown.FILE_SLURMDBD_CONF),
                pod_parts.slurm_key_file(spec.slurm_key_ref),
                pod_parts.secret_file(accounting.jwt_key, wellknown.FILE_JWT_KEY),
                pod_parts.config_map_file(spec.jwks_key_ref, wellknown.FILE_JWKS),
            ),
            pod_parts.memory_volume(wellknown.VOLUME_RUN),
        ],
    }


_SLURMDBD: dict[str, Any] = {
    "name": _APP.name,
    "ports": [{"name": _APP.name, "containerPort": wellknown.PORT_SLURMDBD, "protocol": "TCP"}],
    "readinessProbe": pod_parts.tcp_probe(wellknown.PORT_SLURMDBD),
    "securityContext": pod_parts.run_as(wellknown.SLURM_UID, wellknown.SLURM_GID),
    "volumeMounts": [
        {"name": wellknown.VOLUME_SLURM_ETC, "mountPath": wellknown.DIR_SLURM_ETC, "readOnly": True},
        {"name": wellknown.VOLUME_RUN, "mountPath": wellknown.DIR_RUN},
    ],
}
