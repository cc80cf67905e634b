"""Controller: what runs slurmctld.

A StatefulSet with one pod, or several of which one is active and the others stand by. Two Services: a
headless one that gives every pod a name, and the one that clients use, which leads to the active pod only;
with standbys, one more for each pod (`hosts`). The ConfigMap with slurm.conf, and a ServiceMonitor where the
Prometheus operator is installed.

The Service finds the active pod by a label. It is in the pod template, so that a pod that is made while no
operator runs is found; with standbys the operator takes it off all but the one in charge.

slurmctld must be restarted, or told, when a file it reads changes. The annotations of its pods carry hashes:
of the keys always, of all configuration files unless a sidecar tells slurmctld (`inplaceReconfigure`). They
are computed from what is rendered here and from the content of the objects that are referred to, never from
what a cache last saw of the ConfigMap, so that one change is one restart. Files that are referred to have a
hash of their own: the other one is then that of Slinky slurm-operator, whose pods need no restart for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from slurm_operator.objects import labels, monitor, pod_parts, scripts, services, slurm_conf
from slurm_operator.objects.content_references import References, data_checksum, files_checksum, jwt_field
from slurm_operator.objects.desired import (
    Assembly,
    Desired,
    Manifest,
    ObjectName,
    gather,
    invalid,
)

if TYPE_CHECKING:
    from slurm_operator.api import Controller
    from slurm_operator.objects.content_references import Found
    from slurm_operator.objects.slurm_conf import SlurmCluster

_APP = labels.SLURMCTLD
_JWKS_FIELD = "spec.jwksKeyRef"


def references(controller: Controller) -> References:
    """Return the objects whose content decides how slurmctld is configured and when it restarts."""
    if controller.spec.external:
        return References()
    jwks = controller.spec.jwks_key_ref
    keys = (controller.spec.slurm_key_ref, controller.jwt_key)
    return References(
        secrets=frozenset(key.name for key in keys if key is not None and key.name),
        config_maps=frozenset(name for _, name in slurm_conf.controller_config_maps(controller) if name)
        | ({jwks.name} if jwks and jwks.name else frozenset()),
    )


def desired(cluster: SlurmCluster, found: Found, *, service_monitors: bool) -> Desired:
    """Return the children of a Controller; `service_monitors` says whether the cluster knows that kind."""
    controller = cluster.controller
    assembly = Assembly()
    if controller.spec.external:
        assembly.unwanted += [
            ObjectName("apps/v1", "StatefulSet", controller.workload_name),
            ObjectName("v1", "Service", controller.service_name),
            ObjectName("v1", "Service", controller.internal_service_name),
        ]
    else:
        assembly.build(lambda: internal_service(controller))
        assembly.build(lambda: service(controller))
        assembly.objects += host_services(controller)
    assembly.build(lambda: config_map(cluster, found))
    if not controller.spec.external:
        assembly.build(lambda: stateful_set(cluster, found))
    if service_monitors:
        wish = controller.spec.metrics.service_monitor
        if controller.spec.metrics.enabled and wish is not None and wish.enabled:
            assembly.build(lambda: monitor.service_monitor(controller, wish))
        else:
            assembly.unwanted.append(monitor.named(controller))
    return assembly.done()


# -------------------------------------------------------------------------------------------------- Services


def internal_service(controller: Controller) -> Manifest:
    """Return the headless Service that gives each slurmctld pod its name."""
    return services.headless_service(
        labels.object_metadata(controller, _APP, controller.internal_service_name),
        port_name=_APP.name,
        port=slurm_conf.controller_port(controller),
        selector=labels.selector_labels(_APP, controller.metadata.name),
    )


def service(controller: Controller) -> Manifest:
    """Return the Service that leads to the active slurmctld."""
    wish = controller.spec.service
    return services.service(
        labels.object_metadata(controller, _APP, controller.service_name, wish.metadata),
        wish,
        port_name=_APP.name,
        port=wellknown.PORT_SLURMCTLD,
        selector={
            **labels.selector_labels(_APP, controller.metadata.name),
            wellknown.LABEL_CONTROLLER_ACTIVE: wellknown.TRUE,
        },
    )


def host_services(controller: Controller) -> list[Manifest]:
    """Return, with standbys, the Service by which each slurmctld is found."""
    if controller.replicas == 1:
        return []
    return [
        services.pod_service(
            labels.object_metadata(controller, _APP, name),
            port_name=_APP.name,
            port=slurm_conf.controller_port(controller),
            selector={
                **labels.selector_labels(_APP, controller.metadata.name),
                wellknown.LABEL_STATEFUL_SET_POD: name,
            },
        )
        for name in map(controller.pod_name, range(controller.replicas))
    ]


# ------------------------------------------------------------------------------------------------- ConfigMap


def config_map(cluster: SlurmCluster, found: Found) -> Manifest:
    """Return the ConfigMap with slurm.conf."""
    controller = cluster.controller
    external = controller.spec.external
    added = (controller.spec.template.metadata,) if external else ()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": labels.object_metadata(
            controller, _APP, controller.config_name, *added, inherit=not external
        ),
        "immutable": False,
        "data": slurm_conf.controller_files(cluster, found),
    }


def config_hash(cluster: SlurmCluster, found: Found) -> str:
    """Return the hash of the files that are written for slurmctld, as Slinky slurm-operator computes it."""
    files = slurm_conf.controller_files(cluster, found)
    return data_checksum({name: text.encode() for name, text in files.items()})


def referenced_files(controller: Controller, found: Found) -> dict[str, bytes]:
    """Return the files that stand beside them, each under the ConfigMap and key that it comes from."""
    files: dict[str, bytes] = {}
    if (jwks := controller.spec.jwks_key_ref) is not None:
        files[wellknown.FILE_JWKS] = found.config_map_key(jwks, _JWKS_FIELD)
    for where, name in slurm_conf.controller_config_maps(controller):
        files |= {f"{name}/{key}": content for key, content in found.config_map(name, where).items()}
    return files


# ----------------------------------------------------------------------------------------------- StatefulSet


def stateful_set(cluster: SlurmCluster, found: Found) -> Manifest:
    """Return the StatefulSet of slurmctld."""
    controller = cluster.controller
    template = controller.spec.template
    claim = _claim_template(controller)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": labels.object_metadata(controller, _APP, controller.workload_name, template.metadata),
        "spec": {
            "replicas": controller.replicas,
            "revisionHistoryLimit": 0,
            "serviceName": controller.internal_service_name,
            "selector": {"matchLabels": labels.selector_labels(_APP, controller.metadata.name)},
            "template": {
                "metadata": _pod_metadata(cluster, found),
                "spec": pod_parts.pod_spec(_pod(controller), template),
            },
            **({"volumeClaimTemplates": [claim]} if claim else {}),
        },
    }


def _pod_metadata(cluster: SlurmCluster, found: Found) -> dict[str, Any]:
    controller = cluster.controller
    spec = controller.spec
    key, jwt = spec.slurm_key_ref, controller.jwt_key
    files = (wellknown.ANNOTATION_SLURM_CONFIG_HASH, wellknown.ANNOTATION_REFERENCED_FILES_HASH)
    annotations = gather(
        {
            wellknown.ANNOTATION_SLURM_KEY_HASH: lambda: found.secret_checksum(key, "spec.slurmKeyRef"),
            wellknown.ANNOTATION_JWT_KEY_HASH: lambda: found.secret_checksum(jwt, jwt_field(spec)),
            files[0]: lambda: config_hash(cluster, found),
            files[1]: lambda: files_checksum(referenced_files(controller, found)),
        }
    )
    # They are asked for in any case: missing files must hold the pods back.
    for name in files:
        if spec.inplace_reconfigure or not annotations[name]:
            del annotations[name]
    metadata = pod_parts.template_metadata(
        controller, _APP, controller.workload_name, spec.template, annotations
    )
    metadata["labels"][wellknown.LABEL_CONTROLLER_ACTIVE] = wellknown.TRUE
    return metadata


def _pod(controller: Controller) -> dict[str, Any]:
    spec = controller.spec
    sidecars = [pod_parts.container(_logfile(), spec.logfile, "spec.logfile")]
    if spec.inplace_reconfigure:
        sidecars.insert(0, pod_parts.container(_reconfigure(), spec.reconfigure, "spec.reconfigure"))
    return {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {
                            "matchLabels": labels.selector_labels(_APP, controller.metadata.name)
                        },
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        },
        "automountServiceAccountToken": False,
        "securityContext": pod_parts.run_as(
            wellknown.SLURM_UID, wellknown.SLURM_GID, fs_group=wellknown.SLURM_GID
        ),
        "initContainers": sidecars,
        "containers": [pod_parts.container(_slurmctld(controller), spec.slurmctld, "spec.slurmctld")],
        "volumes": [
            pod_parts.projected_volume(
                wellknown.VOLUME_SLURM_ETC,
                pod_parts.MODE_SLURM_ETC,
                {"configMap": {"name": controller.config_name}},
                pod_parts.slurm_key_file(spec.slurm_key_ref),
                pod_parts.secret_file(controller.jwt_key, wellknown.FILE_JWT_KEY),
                *(
                    {"configMap": {"name": name}}
                    for name in sorted({name for _, name in slurm_conf.controller_config_maps(controller)})
                ),
                pod_parts.config_map_file(spec.jwks_key_ref, wellknown.FILE_JWKS),
            ),
            pod_parts.memory_volume(wellknown.VOLUME_LOGFILE),
            pod_parts.memory_volume(wellknown.VOLUME_RUN),
            {"name": wellknown.VOLUME_AUTHSOCKET, "emptyDir": {}},
            *_state_volume(controller),
        ],
    }


def _slurmctld(controller: Controller) -> dict[str, Any]:
    alive = pod_parts.http_probe(wellknown.PATH_LIVEZ, _APP.name)
    # A standby is not ready to serve, and yet must count as ready, or the next one would never be started.
    ready = alive if controller.replicas > 1 else pod_parts.http_probe(wellknown.PATH_READYZ, _APP.name)
    return {
        "name": _APP.name,
        "ports": [
            {"name": _APP.name, "containerPort": slurm_conf.controller_port(controller), "protocol": "TCP"}
        ],
        "startupProbe": pod_parts.patient(alive),
        "livenessProbe": pod_parts.patient(alive),
        "readinessProbe": ready,
        "securityContext": pod_parts.run_as(wellknown.SLURM_UID, wellknown.SLURM_GID),
        "volumeMounts": [
            {"name": wellknown.VOLUME_SLURM_ETC, "mountPath": wellknown.DIR_SLURM_ETC, "readOnly": True},
            {"name": wellknown.VOLUME_RUN, "mountPath": wellknown.DIR_RUN},
            {"name": wellknown.VOLUME_STATESAVE, "mountPath": slurm_conf.state_directory(controller)},
            {"name": wellknown.VOLUME_AUTHSOCKET, "mountPath": wellknown.DIR_AUTHSOCKET},
            {"name": wellknown.VOLUME_LOGFILE, "mountPath": wellknown.DIR_SLURM_LOG},
        ],
    }


def _reconfigure() -> dict[str, Any]:
    return {
        "name": wellknown.CONTAINER_RECONFIGURE,
        "restartPolicy": "Always",
        "command": ["tini", "-g", "--", "bash", "-c", scripts.RECONFIGURE],
        "volumeMounts": [
            {"name": wellknown.VOLUME_SLURM_ETC, "mountPath": wellknown.DIR_SLURM_ETC, "readOnly": True},
            {"name": wellknown.VOLUME_AUTHSOCKET, "mountPath": wellknown.DIR_AUTHSOCKET, "readOnly": True},
        ],
    }


def _logfile() -> dict[str, Any]:
    return pod_parts.logfile(f"{wellknown.DIR_SLURM_LOG}/{wellknown.FILE_SLURMCTLD_LOG}")


# ----------------------------------------------------------------------------------------------------- state


def _state_volume(controller: Controller) -> list[dict[str, Any]]:
    """Return the volume with slurmctld's state, unless the StatefulSet makes a claim for it."""
    persistence = controller.spec.persistence
    if controller.replicas > 1 and not controller.claim_in_use:
        raise invalid(
            "spec.persistence.existingClaim",
            "must name a PersistentVolumeClaim with the access mode ReadWriteMany, and "
            "spec.persistence.enabled must be true: with spec.ha.enabled all slurmctlds share one volume",
        )
    if controller.claim_in_use:
        return [
            {
                "name": wellknown.VOLUME_STATESAVE,
                "persistentVolumeClaim": {"claimName": controller.claim_in_use},
            }
        ]
    return [] if persistence.enabled else [{"name": wellknown.VOLUME_STATESAVE, "emptyDir": {}}]


def _claim_template(controller: Controller) -> dict[str, Any] | None:
    """Return the claim that the StatefulSet makes, with what the API server insists on filled in."""
    if not controller.persistence_enabled or controller.claim_in_use:
        return None
    spec = controller.spec.persistence.claim_spec()
    requests = spec.get("resources", {}).get("requests", {})
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": wellknown.VOLUME_STATESAVE, "namespace": controller.metadata.namespace},
        "spec": {
            **spec,
            "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
            "resources": {**spec.get("resources", {}), "requests": {"storage": "4Gi", **requests}},
        },
    }
