"""From custom resources to Slurm's configuration files.

`slurm.conf` knows how a file is written; this module knows where each value comes from, and names the field
of the custom resource when a value cannot be used.

slurmctld listens on the port that its Service offers: clients learn one `SlurmctldPort` and use it for the
Service and, with standbys, for the pods behind it, so both must have the same. The other daemons listen on
their usual ports, whatever their Services offer.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.api.autoscaling import Autoscaling
from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.api.shared import find_condition
from slurm_operator.objects.desired import Unbuildable, invalid, missing
from slurm_operator.slurm.conf import conf_files
from slurm_operator.slurm.conf.conf_lines import ConfError, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurm_operator.api import Accounting, Controller, NodeSet
    from slurm_operator.api.shared import ConfigMapKeySelector, LocalObjectReference
    from slurm_operator.objects.content_references import Found
    from slurm_operator.objects.desired import Problem

# What Slinky slurm-operator writes, and enough for most clusters; Slurm reserves memory for each.
_MIN_MAX_NODES = 1024
# With more, slurmctld does not even start.
MOST_NODES = 1 << 16

# These are written by the operator; a file of the same name would silently take their place.
_RESERVED = (wellknown.FILE_SLURM_CONF, wellknown.FILE_SLURMDBD_CONF)

_CONTROLLER_FIELDS = {
    "ClusterName": "spec.clusterName",
    "StateSaveLocation": "spec.clusterName",
    "SlurmctldHost": "spec.externalConfig.host",
    "SlurmctldPort": "spec.service.port",
    "AccountingStorageHost": "spec.accountingRef",
    "AccountingStoragePort": "spec.accountingRef",
    "NodeSet": "spec.template.spec.hostname of a NodeSet",
    "PartitionName": "spec.partition.config of a NodeSet",
}
_EXTERNAL_FIELDS = _CONTROLLER_FIELDS | {"SlurmctldPort": "spec.externalConfig.port"}
_ACCOUNTING_FIELDS = {
    "StorageHost": "spec.storageConfig.host",
    "StoragePort": "spec.storageConfig.port",
    "StorageUser": "spec.storageConfig.username",
    "StorageLoc": "spec.storageConfig.database",
    "StoragePass": "spec.storageConfig.passwordKeyRef",
}


# ------------------------------------------------------------------------------------------------- addresses


def constrains_memory(controller: Controller) -> bool:
    """Return whether jobs have limits of their own, so that one cannot take the whole worker with it.

    A cluster says so itself: one that runs must not change because there is a newer operator.
    """
    return controller.metadata.annotations.get(wellknown.ANNOTATION_CONSTRAIN_MEMORY) == wellknown.TRUE


def controller_port(controller: Controller) -> int:
    """Return the port on which slurmctld is reached, by Service and by pod."""
    if controller.spec.external:
        return controller.spec.external_config.port if controller.spec.external_config else 0
    return controller.spec.service.port or wellknown.PORT_SLURMCTLD


def conf_server(controller: Controller) -> str:
    """Return where slurmd and sackd fetch their configuration: `host:port` of slurmctld."""
    host = controller.primary_name if controller.spec.external else controller.service_address
    return f"{host}:{controller_port(controller)}"


def accounting_address(accounting: Accounting) -> conf_files.DaemonAddress:
    """Return the address at which slurmctld reaches slurmdbd, run by the operator or external."""
    if accounting.spec.external and accounting.spec.external_config is not None:
        return conf_files.DaemonAddress(
            accounting.spec.external_config.host, accounting.spec.external_config.port
        )
    return conf_files.DaemonAddress(
        accounting.service_name, accounting.spec.service.port or wellknown.PORT_SLURMDBD
    )


# ------------------------------------------------------------------------------------------------ slurm.conf


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """A Controller and the other custom resources that its slurm.conf tells about."""

    controller: Controller
    node_sets: Sequence[NodeSet] = ()
    accounting: Accounting | None = None
    room: int = 0
    """For how many nodes slurmctld keeps room in any case, because it has that already."""
    by_pod: bool = False
    """Whether slurmctlds find each other by the names of their pods, also those that stand by (`hosts`)."""

    def missing_accounting(self, where: str = "spec.accountingRef") -> tuple[Problem, ...]:
        """Return what to say of an Accounting that the Controller names and that does not exist.

        A slurm.conf without it would be applied: slurmctld would restart, and record no job from then on.
        """
        ref = self.controller.spec.accounting_ref
        if ref is None or self.accounting is not None:
            return ()
        return missing(
            where, f"Accounting {ref.name!r} does not exist; create it, or remove the reference"
        ).problems


def controller_files(cluster: SlurmCluster, found: Found) -> dict[str, str]:
    """Return the files of a Controller's ConfigMap, by name."""
    controller = cluster.controller
    problems = [*cluster.missing_accounting()]
    if controller.spec.external:
        if problems:
            raise Unbuildable(*problems)
        with _fields(_EXTERNAL_FIELDS):
            return {wellknown.FILE_SLURM_CONF: conf_files.external_slurm_conf(_external(cluster))}
    contents: dict[str, dict[str, bytes]] = {}
    for where, name in controller_config_maps(controller):
        try:
            contents[where] = found.config_map(name, where)
        except Unbuildable as error:
            problems += error.problems
            continue
        for reserved in set(_RESERVED) & contents[where].keys():
            problems += invalid(
                where,
                f"ConfigMap {name!r} has the file {reserved}, which the operator writes; remove it there",
            ).problems
    if problems:
        raise Unbuildable(*problems)
    own_cgroup = any(
        where.startswith("spec.configFileRefs") and wellknown.FILE_CGROUP_CONF in files
        for where, files in contents.items()
    )
    # A user who provides a cgroup.conf configures the limits there and in extraConf.
    constrain = constrains_memory(controller) and not own_cgroup
    with _fields(_CONTROLLER_FIELDS):
        text = conf_files.slurm_conf(
            replace(_internal(cluster), scripts=_scripts(contents), constrain_memory=constrain)
        )
    return {
        **(
            {}
            if own_cgroup
            else {wellknown.FILE_CGROUP_CONF: conf_files.cgroup_conf(constrain_memory=constrain)}
        ),
        wellknown.FILE_SLURM_CONF: text,
    }


def client_conf(cluster: SlurmCluster) -> str:
    """Return the part of slurm.conf that concerns programs which only talk to slurmctld.

    Nodes, partitions and scripts are not in it: a change of these is no reason to restart slurmrestd. Nor is
    the other address of a slurmctld that is where it was.
    """
    if problems := cluster.missing_accounting("spec.accountingRef of the Controller"):
        raise Unbuildable(*problems)
    if cluster.controller.spec.external:
        with _fields(_EXTERNAL_FIELDS):
            return conf_files.external_slurm_conf(_external(cluster))
    with _fields(_CONTROLLER_FIELDS):
        return conf_files.slurm_conf(_internal(replace(cluster, node_sets=(), room=0, by_pod=True)))


def controller_config_maps(controller: Controller) -> Iterator[tuple[str, str]]:
    """Yield the ConfigMaps whose files join slurm.conf: the field that names each, and its name."""
    spec = controller.spec
    for where, refs in (
        ("configFileRefs", spec.config_file_refs),
        ("prologScriptRefs", spec.prolog_script_refs),
        ("epilogScriptRefs", spec.epilog_script_refs),
        ("prologSlurmctldScriptRefs", spec.prolog_slurmctld_script_refs),
        ("epilogSlurmctldScriptRefs", spec.epilog_slurmctld_script_refs),
    ):
        yield from _numbered(where, refs or ())


def _numbered(where: str, refs: Sequence[LocalObjectReference]) -> Iterator[tuple[str, str]]:
    return ((f"spec.{where}[{index}]", ref.name) for index, ref in enumerate(refs))


def _scripts(contents: Mapping[str, Mapping[str, bytes]]) -> conf_files.Scripts:
    def files(where: str, prefix: str = "") -> tuple[str, ...]:
        names = {
            name for place, found in contents.items() if place.startswith(f"spec.{where}[") for name in found
        }
        return tuple(f"{prefix}{name}" for name in sorted(names))

    here = f"{wellknown.DIR_SLURM_ETC}/"
    return conf_files.Scripts(
        prolog_slurmctld=files("prologSlurmctldScriptRefs", here),
        epilog_slurmctld=files("epilogSlurmctldScriptRefs", here),
        prolog=files("prologScriptRefs"),
        epilog=files("epilogScriptRefs"),
    )


def _internal(cluster: SlurmCluster) -> conf_files.SlurmConf:
    controller = cluster.controller
    by_pod = cluster.by_pod or controller.replicas == 1
    address = controller.pod_address if by_pod else controller.host_address
    return conf_files.SlurmConf(
        cluster_name=controller.cluster_name,
        user=wellknown.SLURM_USER,
        hosts=tuple(
            conf_files.Host(controller.pod_name(ordinal), address(ordinal))
            for ordinal in range(controller.replicas)
        ),
        port=controller_port(controller),
        client_address=controller.service_address,
        state_directory=state_directory(controller),
        slurmd_user=wellknown.SLURMD_USER,
        slurmd_port=wellknown.PORT_SLURMD,
        slurmd_spool=wellknown.DIR_SLURMD_SPOOL,
        max_nodes=max_nodes(controller, cluster.node_sets, cluster.room),
        controller_log=f"{wellknown.DIR_SLURM_LOG}/{wellknown.FILE_SLURMCTLD_LOG}",
        slurmd_log=f"{wellknown.DIR_SLURM_LOG}/{wellknown.FILE_SLURMD_LOG}",
        jwt=_jwt(controller.spec.jwks_key_ref),
        metrics=controller.spec.metrics.enabled,
        accounting=accounting_address(cluster.accounting) if cluster.accounting else None,
        node_groups=tuple(
            conf_files.NodeGroup(
                node_set.slurm_name,
                node_set.spec.partition.config if node_set.spec.partition.enabled else None,
                _power_saving(node_set),
            )
            for node_set in sorted(cluster.node_sets, key=lambda node_set: node_set.metadata.name)
        ),
        extra=controller.spec.extra_conf,
    )


def _power_saving(node_set: NodeSet) -> conf_files.PowerSaving | None:
    scaling = node_set.spec.autoscaling if node_set.autoscaled else None
    if scaling is None and find_condition(node_set.status.conditions, wellknown.CONDITION_AUTOSCALING):
        # Slurm still has records of power saving, and jobs may wait for their nodes. The times are forgotten.
        scaling = Autoscaling()
    if scaling is None:
        return None
    return conf_files.PowerSaving(
        suspend_timeout=scaling.suspend_timeout_seconds,
        resume_timeout=scaling.resume_timeout_seconds,
        keeps=min(scaling.min_replicas, node_set.most_replicas),
    )


def _external(cluster: SlurmCluster) -> conf_files.ExternalSlurmConf:
    controller = cluster.controller
    return conf_files.ExternalSlurmConf(
        cluster_name=controller.cluster_name,
        user=wellknown.SLURM_USER,
        address=conf_files.DaemonAddress(controller.primary_name, controller_port(controller)),
        accounting=accounting_address(cluster.accounting) if cluster.accounting else None,
    )


def state_directory(controller: Controller) -> str:
    """Return where slurmctld keeps its state."""
    return f"{wellknown.DIR_STATESAVE}/{controller.cluster_name}"


def max_nodes(controller: Controller, node_sets: Sequence[NodeSet], room: int = 0) -> int:
    """Return the MaxNodeCount of slurm.conf: the power of two above the number of declared nodes.

    It is at least 1024 and at least `room`, and never more than Slurm supports: a user who scales a NodeSet
    to a million by mistake must not take down the whole cluster. A MaxNodeCount in `extraConf` comes later in
    the file and takes precedence; ours is then always 1024.
    """
    if "maxnodecount" in settings(controller.spec.extra_conf):
        return _MIN_MAX_NODES
    declared = sum(
        (node_set.most_replicas if node_set.autoscaled else node_set.spec.replicas)
        if node_set.spec.scaling_mode == ScalingMode.STATEFUL_SET
        else node_set.status.desired
        for node_set in node_sets
    )
    return min(MOST_NODES, max(_MIN_MAX_NODES, room, 1 << max(declared, 0).bit_length()))


# --------------------------------------------------------------------------------------------- slurmdbd.conf


def slurmdbd_conf(accounting: Accounting, found: Found) -> str:
    """Return the slurmdbd.conf of an Accounting; it contains the password of the database."""
    storage = accounting.spec.storage_config
    where = _ACCOUNTING_FIELDS["StoragePass"]
    try:
        # Tools and editors end a file with a line break that is not part of the password.
        password = found.secret_key(storage.password_key_ref, where).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise invalid(
            where, "the password is not valid UTF-8, which slurmdbd needs; set another one"
        ) from None
    with _fields(_ACCOUNTING_FIELDS):
        return conf_files.slurmdbd_conf(
            conf_files.SlurmdbdConf(
                host=accounting.primary_name,
                port=wellknown.PORT_SLURMDBD,
                user=wellknown.SLURM_USER,
                jwt=_jwt(accounting.spec.jwks_key_ref),
                database=conf_files.Database(
                    host=storage.host,
                    port=storage.port,
                    user=storage.username,
                    name=storage.database,
                    password=password,
                ),
                extra=accounting.spec.extra_conf,
            )
        )


def _jwt(key_set: ConfigMapKeySelector | None) -> conf_files.JwtKeys:
    return conf_files.JwtKeys(
        f"{wellknown.DIR_SLURM_ETC}/{wellknown.FILE_JWT_KEY}",
        f"{wellknown.DIR_SLURM_ETC}/{wellknown.FILE_JWKS}" if key_set else "",
    )


@contextmanager
def _fields(fields: Mapping[str, str]) -> Iterator[None]:
    """Say in which field of the custom resource a refused value stands."""
    try:
        yield
    except ConfError as error:
        raise invalid(fields.get(error.parameter.partition("=")[0], "spec"), str(error)) from None
