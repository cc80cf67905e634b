"""RestApi: what runs slurmrestd.

A Deployment and its Service. slurmrestd reads the Controller's slurm.conf, and holds what it read: so its
pods carry the hash of the part that concerns it, and of the key, and are replaced when one of these changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from slurm_operator.api.shared import ConfigMapKeySelector
from slurm_operator.objects import labels, pod_parts, services, slurm_conf
from slurm_operator.objects.content_references import References, checksum
from slurm_operator.objects.desired import Assembly, Desired, Manifest, existing, gather

if TYPE_CHECKING:
    from slurm_operator.api import Controller, RestApi
    from slurm_operator.objects.content_references import Found
    from slurm_operator.objects.slurm_conf import SlurmCluster

_APP = labels.SLURMRESTD


def references(controller: Controller | None) -> References:
    """Return the objects whose content decides when slurmrestd restarts: those of its Controller."""
    name = controller.slurm_key_name if controller else ""
    return References(secrets=frozenset({name} if name else ()))


def desired(restapi: RestApi, cluster: SlurmCluster | None, found: Found) -> Desired:
    """Return the children of a RestApi; no cluster means that its Controller does not exist."""
    assembly = Assembly()
    assembly.build(lambda: service(restapi))
    name = restapi.spec.controller_ref.name
    assembly.build(
        lambda: deployment(restapi, existing(cluster, "spec.controllerRef", "Controller", name), found)
    )
    return assembly.done()


def service(restapi: RestApi) -> Manifest:
    """Return the Service in front of slurmrestd."""
    wish = restapi.spec.service
    return services.service(
        labels.object_metadata(restapi, _APP, restapi.service_name, wish.metadata, inherit=False),
        wish,
        port_name=_APP.name,
        port=wellknown.PORT_SLURMRESTD,
        selector=labels.selector_labels(_APP, restapi.metadata.name),
    )


def deployment(restapi: RestApi, cluster: SlurmCluster, found: Found) -> Manifest:
    """Return the Deployment of slurmrestd."""
    spec = restapi.spec
    key = cluster.controller.spec.slurm_key_ref
    builders = {
        wellknown.ANNOTATION_SLURM_CONFIG_HASH: lambda: checksum(slurm_conf.client_conf(cluster).encode())
    }
    # An external cluster may keep its key to itself; slurmrestd then lives by tokens alone.
    if key and key.name:
        builders[wellknown.ANNOTATION_SLURM_KEY_HASH] = lambda: found.secret_checksum(
            key, "spec.slurmKeyRef of the Controller"
        )
    hashes = gather(builders)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": labels.object_metadata(restapi, _APP, restapi.workload_name, spec.template.metadata),
        "spec": {
            "replicas": spec.replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels.selector_labels(_APP, restapi.metadata.name)},
            "template": {
                "metadata": pod_parts.template_metadata(
                    restapi, _APP, restapi.workload_name, spec.template, hashes
                ),
                "spec": _listening(pod_parts.pod_spec(_pod(restapi, cluster.controller), spec.template)),
            },
        },
    }


def _listening(spec: dict[str, Any]) -> dict[str, Any]:
    """Add the address to listen on behind all other arguments, where slurmrestd expects it."""
    address = f"0.0.0.0:{wellknown.PORT_SLURMRESTD}"
    return {
        **spec,
        "containers": [
            {**item, "args": [*item.get("args", ()), address]} if item["name"] == _APP.name else item
            for item in spec["containers"]
        ],
    }


def _pod(restapi: RestApi, controller: Controller) -> dict[str, Any]:
    conf = ConfigMapKeySelector(name=controller.config_name, key=wellknown.FILE_SLURM_CONF)
    return {
        "automountServiceAccountToken": False,
        "securityContext": pod_parts.run_as(
            wellknown.SLURMRESTD_UID, wellknown.SLURMRESTD_GID, fs_group=wellknown.SLURMRESTD_GID
        ),
        "containers": [
            pod_parts.container(_slurmrestd(controller), restapi.spec.slurmrestd, "spec.slurmrestd"),
        ],
        "volumes": [
            pod_parts.projected_volume(
                wellknown.VOLUME_SLURM_ETC,
                pod_parts.MODE_PRIVATE,
                pod_parts.config_map_file(conf, wellknown.FILE_SLURM_CONF),
                pod_parts.slurm_key_file(controller.spec.slurm_key_ref),
            )
        ],
    }


def _slurmrestd(controller: Controller) -> dict[str, Any]:
    # Without accounting, the plugin that talks to slurmdbd would keep slurmrestd from starting.
    plugins = [] if controller.spec.accounting_ref else ["-s", "openapi/slurmctld"]
    connects = pod_parts.tcp_probe(wellknown.PORT_SLURMRESTD)
    return {
        "name": _APP.name,
        "args": plugins,
        "env": [
            {"name": "SLURM_JWT", "value": "daemon"},
            {"name": "SLURMRESTD_SECURITY", "value": "disable_unshare_files,disable_unshare_sysv"},
        ],
        "ports": [{"name": _APP.name, "containerPort": wellknown.PORT_SLURMRESTD, "protocol": "TCP"}],
        "startupProbe": pod_parts.patient(connects),
        "livenessProbe": pod_parts.patient(connects),
        "readinessProbe": connects,
        "securityContext": pod_parts.run_as(wellknown.SLURMRESTD_UID, wellknown.SLURMRESTD_GID),
        "volumeMounts": [
            {"name": wellknown.VOLUME_SLURM_ETC, "mountPath": wellknown.DIR_SLURM_ETC, "readOnly": True}
        ],
    }
