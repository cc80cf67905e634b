"""LoginSet: pods with an SSH server, sackd and SSSD.

A Deployment, its Service, a ConfigMap with the configuration of sshd, and a Secret with the host keys. The
keys are made once (`host_keys`), in a Secret that cannot be changed: clients remember them, and a new key is
an alarm on every user's screen.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import worker_service_fqdn
from slurm_operator.objects import labels, pod_parts, scripts, services, slurm_conf
from slurm_operator.objects.content_references import References, checksum, data_checksum
from slurm_operator.objects.desired import Assembly, Desired, Manifest, existing, gather

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api import Controller, LoginSet
    from slurm_operator.objects.content_references import Found

_APP = labels.LOGIN
_ROLLING = "RollingUpdate"
_ROLLING_DEFAULTS = {"maxSurge": "25%", "maxUnavailable": "25%"}
_KEY_FIELD = "spec.slurmKeyRef of the Controller"
# The order of Slinky slurm-operator, which is the order of mounts in running pods.
_KEY_FILES = tuple(
    f"ssh_host_{kind}_key{suffix}" for kind in ("rsa", "ed25519", "ecdsa") for suffix in ("", ".pub")
)


def references(loginset: LoginSet, controller: Controller | None) -> References:
    """Return the objects whose content decides when login pods are replaced, their own host keys included."""
    names = (
        loginset.spec.sssd_conf_ref.name,
        loginset.ssh_host_keys_name,
        controller.slurm_key_name if controller else "",
    )
    return References(secrets=frozenset(filter(None, names)))


def needs_host_keys(loginset: LoginSet, found: Found) -> bool:
    """Return whether host keys are still to be generated; never when a Secret for them exists.

    The cache may not hold a Secret yet that was just created. So the caller must create the Secret and, if it
    already exists, use its keys: the hash of other keys would replace every pod without need.
    """
    return loginset.ssh_host_keys_name not in found.secrets


def desired(
    loginset: LoginSet,
    controller: Controller | None,
    found: Found,
    *,
    cluster_domain: str,
    new_host_keys: Mapping[str, bytes] | None = None,
) -> Desired:
    """Return the children of a LoginSet.

    Host keys are given if `needs_host_keys` asked for them. No controller means that it does not exist.
    """
    assembly = Assembly()
    if new_host_keys is not None:
        keys = new_host_keys
        assembly.build(lambda: host_keys_secret(loginset, keys))
    assembly.build(lambda: config_map(loginset))
    assembly.build(lambda: service(loginset))
    assembly.build(
        lambda: deployment(
            loginset,
            existing(controller, "spec.controllerRef", "Controller", loginset.spec.controller_ref.name),
            found,
            cluster_domain=cluster_domain,
            new_host_keys=new_host_keys,
        )
    )
    return assembly.done()


# ------------------------------------------------------------------------------------- Secret and ConfigMap


def host_keys_secret(loginset: LoginSet, keys: Mapping[str, bytes]) -> Manifest:
    """Return the Secret with freshly made host keys."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": labels.object_metadata(loginset, _APP, loginset.ssh_host_keys_name),
        "immutable": True,
        "data": {name: base64.b64encode(content).decode() for name, content in sorted(keys.items())},
    }


def config_map(loginset: LoginSet) -> Manifest:
    """Return the ConfigMap with sshd_config and the keys of administrators."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": labels.object_metadata(loginset, _APP, loginset.ssh_config_name),
        "immutable": False,
        "data": {
            wellknown.FILE_AUTHORIZED_KEYS: f"#\n### SLINKY ###\n{loginset.spec.root_ssh_authorized_keys}\n",
            wellknown.FILE_SSHD_CONFIG: _sshd_config(loginset),
        },
    }


def _sshd_config(loginset: LoginSet) -> str:
    return (
        "#\n### GENERAL ###\n"
        f"Include {wellknown.DIR_SSH}/sshd_config.d/*.conf\n"
        "UsePAM yes\n"
        "X11Forwarding yes\n"
        "Subsystem sftp internal-sftp\n"
        f"#\n### EXTRA CONFIG ###\n{loginset.spec.extra_sshd_config}\n"
    )


# ------------------------------------------------------------------------------------ Service and Deployment


def service(loginset: LoginSet) -> Manifest:
    """Return the Service that users connect to."""
    wish = loginset.spec.service
    return services.service(
        labels.object_metadata(loginset, _APP, loginset.service_name, wish.metadata),
        wish,
        port_name=_APP.name,
        port=wellknown.PORT_SSH,
        selector=labels.selector_labels(_APP, loginset.metadata.name),
    )


def spell_out_strategy(wish: dict[str, Any] | None) -> dict[str, Any]:
    """Return all of an update strategy, also what Kubernetes would fill in.

    Defaults set by the API server have no field manager, so no later apply can remove them; and the API
    server rejects `Recreate` while `rollingUpdate` is still set.
    """
    strategy = wish or {}
    if strategy.get("type", _ROLLING) != _ROLLING:
        return strategy
    return {"type": _ROLLING, "rollingUpdate": _ROLLING_DEFAULTS | strategy.get("rollingUpdate", {})}


def deployment(
    loginset: LoginSet,
    controller: Controller,
    found: Found,
    *,
    cluster_domain: str,
    new_host_keys: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Return the Deployment of the login pods."""
    spec = loginset.spec
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": labels.object_metadata(loginset, _APP, loginset.workload_name, spec.template.metadata),
        "spec": {
            "replicas": spec.replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels.selector_labels(_APP, loginset.metadata.name)},
            "strategy": spell_out_strategy(msgspec.to_builtins(spec.strategy)),
            "template": {
                "metadata": pod_parts.template_metadata(
                    loginset,
                    _APP,
                    loginset.workload_name,
                    spec.template,
                    _hashes(loginset, controller, found, new_host_keys),
                ),
                "spec": pod_parts.pod_spec(_pod(loginset, controller, cluster_domain), spec.template),
            },
        },
    }


def _hashes(
    loginset: LoginSet, controller: Controller, found: Found, new_host_keys: Mapping[str, bytes] | None
) -> dict[str, str]:
    """Return the hashes of all that a login pod reads only once: each file is mounted or copied by itself."""
    key, sssd = controller.spec.slurm_key_ref, loginset.spec.sssd_conf_ref
    return gather(
        {
            wellknown.ANNOTATION_SLURM_KEY_HASH: lambda: found.secret_checksum(key, _KEY_FIELD),
            wellknown.ANNOTATION_SSHD_CONF_HASH: lambda: checksum(_sshd_config(loginset).encode()),
            wellknown.ANNOTATION_SSSD_CONF_HASH: lambda: checksum(found.secret_key(sssd, "spec.sssdConfRef")),
            wellknown.ANNOTATION_SSH_HOST_KEYS_HASH: lambda: _host_keys_hash(loginset, found, new_host_keys),
        }
    )


def _host_keys_hash(loginset: LoginSet, found: Found, new: Mapping[str, bytes] | None) -> str:
    if new is not None:
        return data_checksum(new)
    return data_checksum(found.secret(loginset.ssh_host_keys_name, "The Secret with host keys").data)


def _pod(loginset: LoginSet, controller: Controller, cluster_domain: str) -> dict[str, Any]:
    spec = loginset.spec
    namespace = loginset.metadata.namespace
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsConfig": {"searches": [worker_service_fqdn(controller.metadata.name, namespace, cluster_domain)]},
        "initContainers": [pod_parts.container(_INITCONF, spec.initconf, "spec.initconf")],
        "containers": [pod_parts.container(_login(loginset, controller), spec.login, "spec.login")],
        "volumes": [
            pod_parts.memory_volume(wellknown.VOLUME_SLURM_ETC),
            pod_parts.memory_volume(wellknown.VOLUME_SACKD),
            pod_parts.projected_volume(
                wellknown.VOLUME_SLURM_CONFIG,
                pod_parts.MODE_PRIVATE,
                pod_parts.slurm_key_file(controller.spec.slurm_key_ref),
            ),
            pod_parts.projected_volume(
                wellknown.VOLUME_SSH_HOST_KEYS,
                pod_parts.MODE_PRIVATE,
                {
                    "secret": {
                        "name": loginset.ssh_host_keys_name,
                        "items": [
                            pod_parts.file_item(
                                name,
                                mode=pod_parts.MODE_PUBLIC
                                if name.endswith(".pub")
                                else pod_parts.MODE_PRIVATE,
                            )
                            for name in _KEY_FILES
                        ],
                    }
                },
            ),
            pod_parts.projected_volume(
                wellknown.VOLUME_SSH_CONFIG,
                pod_parts.MODE_PRIVATE,
                {
                    "configMap": {
                        "name": loginset.ssh_config_name,
                        "items": [
                            pod_parts.file_item(name, mode=pod_parts.MODE_PRIVATE)
                            for name in (wellknown.FILE_SSHD_CONFIG, wellknown.FILE_AUTHORIZED_KEYS)
                        ],
                    }
                },
            ),
            pod_parts.projected_volume(
                wellknown.VOLUME_SSSD_CONF,
                pod_parts.MODE_PRIVATE,
                pod_parts.secret_file(spec.sssd_conf_ref, wellknown.FILE_SSSD_CONF, pod_parts.MODE_PRIVATE),
            ),
        ],
    }


def _login(loginset: LoginSet, controller: Controller) -> dict[str, Any]:
    own_ports = pod_parts.take(loginset.spec.login, "ports", list, "spec.login")
    named = any(isinstance(port, dict) and port.get("name") == _APP.name for port in own_ports)
    return {
        "name": _APP.name,
        "env": [{"name": "SACKD_OPTIONS", "value": f"--conf-server {slurm_conf.conf_server(controller)}"}],
        # Ports merge by their number: a user's port of our name would otherwise be a second one.
        "ports": []
        if named
        else [{"name": _APP.name, "containerPort": wellknown.PORT_SSH, "protocol": "TCP"}],
        "readinessProbe": {"exec": {"command": ["test", "-S", f"{wellknown.DIR_SACKD}/sack.socket"]}},
        "volumeMounts": [
            {"name": wellknown.VOLUME_SLURM_ETC, "mountPath": wellknown.DIR_SLURM_ETC, "readOnly": True},
            {"name": wellknown.VOLUME_SACKD, "mountPath": wellknown.DIR_SACKD},
            *(
                _file(wellknown.VOLUME_SSH_HOST_KEYS, f"{wellknown.DIR_SSH}/{name}", name)
                for name in _KEY_FILES
            ),
            _file(
                wellknown.VOLUME_SSH_CONFIG,
                f"{wellknown.DIR_SSH}/{wellknown.FILE_SSHD_CONFIG}",
                wellknown.FILE_SSHD_CONFIG,
            ),
            _file(
                wellknown.VOLUME_SSH_CONFIG, wellknown.PATH_AUTHORIZED_KEYS, wellknown.FILE_AUTHORIZED_KEYS
            ),
            _file(wellknown.VOLUME_SSSD_CONF, wellknown.PATH_SSSD_CONF, wellknown.FILE_SSSD_CONF),
        ],
    }


def _file(volume: str, path: str, name: str) -> dict[str, Any]:
    return {"name": volume, "mountPath": path, "subPath": name, "readOnly": True}


_INITCONF: dict[str, Any] = {
    "name": wellknown.CONTAINER_INITCONF,
    "command": ["sh", "-c", scripts.INITCONF],
    "env": [{"name": "SLURM_USER", "value": wellknown.SLURM_USER}],
    "volumeMounts": [
        {"name": wellknown.VOLUME_SLURM_ETC, "mountPath": wellknown.DIR_SLURM_ETC_INIT},
        {"name": wellknown.VOLUME_SLURM_CONFIG, "mountPath": wellknown.DIR_SLURM_CONFIG, "readOnly": True},
    ],
}
