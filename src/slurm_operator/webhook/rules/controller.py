"""Controller: a name that Slurm accepts, keys, files, lines for slurm.conf, a volume, and a pod.

Two rules look at other objects. The ConfigMaps of `configFileRefs` must exist and must not bring a file that
the operator writes. With standbys, the claim that all of them mount must allow that; one that does not exist
yet is no mistake, since pods wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from slurm_operator.api import wellknown
from slurm_operator.kube.models import ConfigMap, PersistentVolumeClaim
from slurm_operator.objects import config, slurmctld
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.references import jwt_field
from slurm_operator.webhook.rules import conf, pods, references, services, standins
from slurm_operator.webhook.world import Unreadable, Wanted

if TYPE_CHECKING:
    from slurm_operator.api import Controller
    from slurm_operator.objects.references import Found
    from slurm_operator.webhook.findings import Findings
    from slurm_operator.webhook.world import World

# The files that Slurm's daemons look for beside slurm.conf.
KNOWN_FILES: Final = frozenset(
    {
        *("acct_gather.conf", "burst_buffer.conf", "cgroup.conf", "cli_filter.lua", "gres.conf"),
        *("helpers.conf", "job_container.conf", "job_submit.lua", "mpi.conf", "namespace.yaml"),
        *("oci.conf", "plugstack.conf", "topology.conf", "topology.yaml"),
    }
)
# The last two are refused, which says enough about them.
_EXPECTED_FILES: Final = KNOWN_FILES | {wellknown.FILE_SLURM_CONF, wellknown.FILE_SLURMDBD_CONF}
_SHARED_MODE: Final = "ReadWriteMany"
# Each is a line of slurm.conf, and a host that every client tries in turn.
_MOST_SLURMCTLDS: Final = 10
_OWN = {"slurmctld": "spec.slurmctld", "logfile": "spec.logfile", "reconfigure": "spec.reconfigure"}
_LOG: Final = "the container logfile shows nothing any more"
_ACCOUNTING: Final = ("accountingstoragetype", "accountingstoragehost", "accountingstorageport")
_POLICY: Final = conf.Policy(
    free=frozenset(
        {
            *("authaltparameters", "authinfo", "slurmctldparameters"),  # merged with the operator's
            *("prolog", "epilog", "prologslurmctld", "epilogslurmctld"),  # several are allowed
            "taskplugin",  # the operator's own, for memory limits, gives way
        }
    ),
    most={"maxnodecount": config.MOST_NODES},
    warned={
        "slurmctldaddr": "pods in this cluster must reach slurmctld there as well",
        "slurmctldlogfile": _LOG,
        "slurmschedlogfile": "its messages are no longer in the container logfile",
        "slurmdlogfile": "the workers' container logfile shows nothing any more",
        "slurmdspooldir": "the folder must exist in every worker, and be large enough",
        "slurmduser": "workers are made for root",
        "metricstype": "spec.metrics expects metrics/openmetrics",
    },
    instead={
        "clustername": "spec.clusterName",
        "slurmctldport": "spec.service.port",
        **dict.fromkeys(_ACCOUNTING, "the Accounting that spec.accountingRef names"),
    },
)
_NO_ACCOUNTING: Final = conf.Policy(
    free=_POLICY.free,
    most=_POLICY.most,
    warned={
        **_POLICY.warned,
        **dict.fromkeys(_ACCOUNTING, "better make an Accounting, external if need be, and name it"),
    },
    instead=_POLICY.instead,
)


def wanted(controller: Controller) -> Wanted:
    """Return what the rules ask about."""
    refs = () if controller.spec.external else controller.spec.config_file_refs or ()
    claim = controller.claim_in_use if controller.replicas > 1 else ""
    return Wanted(
        config_maps=frozenset(ref.name for ref in refs if ref.name),
        claims=frozenset({claim} if claim else ()),
    )


def check(controller: Controller, world: World, findings: Findings) -> None:
    """Judge a Controller."""
    spec = controller.spec
    _check_references(controller, findings)
    shapely = services.check_service(spec.service, findings)
    if not spec.external:
        services.check_child_name(controller.internal_service_name, "Service", findings)
    name = controller.cluster_name
    if len(name) > wellknown.MAX_CLUSTER_NAME:
        findings.deny(
            "spec.clusterName",
            f"the cluster would be called {name!r}, which has {len(name)} characters; Slurm allows "
            f"{wellknown.MAX_CLUSTER_NAME}, so set a shorter one",
        )
    if controller.replicas > _MOST_SLURMCTLDS:
        findings.deny("spec.ha.backups", f"{spec.ha.backups} is too much; use at most {_MOST_SLURMCTLDS - 1}")
        return
    own = {f"spec.{name}": getattr(spec, name) for name in ("slurmctld", "logfile", "reconfigure")}
    if not pods.check_wishes(spec.template.spec, own, findings) or not shapely:
        return
    ref = spec.accounting_ref
    accounting = standins.accounting_of(controller, ref.name) if ref is not None else None
    cluster = config.Cluster(controller, accounting=accounting)
    found = _found(controller)
    made = slurmctld.desired(cluster, found, service_monitors=True)
    findings.note(made.problems)
    if spec.external:
        return
    _check_extra(cluster, found, findings)
    _check_files(cluster, world, findings)
    _check_claim(controller, world, findings)
    if workload := made.find("StatefulSet", controller.workload_name):
        claims = [item["metadata"]["name"] for item in workload["spec"].get("volumeClaimTemplates", ())]
        pods.check_pod(workload["spec"]["template"]["spec"], _OWN, spec.template.spec, findings, claims)


def _check_references(controller: Controller, findings: Findings) -> None:
    spec = controller.spec
    references.check_secret(spec.slurm_key_ref, "spec.slurmKeyRef", "slurm.key", findings)
    references.check_secret(controller.jwt_key, jwt_field(spec), "the key that signs tokens", findings)
    references.check_config_map(spec.jwks_key_ref, "spec.jwksKeyRef", "the JSON web key set", findings)
    if spec.accounting_ref is not None:
        references.check_name(spec.accounting_ref, "spec.accountingRef", "Accounting", findings)
    for path, name in config.controller_config_maps(controller):
        if not name:
            findings.require(f"{path}.name", "is empty; name the ConfigMap, in the same namespace")


def _found(controller: Controller, *known: ConfigMap) -> Found:
    """Return stand-ins for all that a Controller names, and what is known of its ConfigMaps."""
    spec = controller.spec
    named = {name: standins.config_map(name) for _, name in config.controller_config_maps(controller)}
    named |= {item.metadata.name: item for item in known}
    return standins.found(
        [spec.slurm_key_ref, controller.jwt_key], config_maps=named.values(), keys=[spec.jwks_key_ref]
    )


def _check_extra(cluster: config.Cluster, found: Found, findings: Findings) -> None:
    controller = cluster.controller
    plain = replace(controller, spec=replace(controller.spec, extra_conf=""))
    try:
        own = config.controller_files(config.Cluster(plain, accounting=cluster.accounting), found)
    except Unbuildable:
        return  # reported already; without a file there is nothing to compare with
    policy = _NO_ACCOUNTING if cluster.accounting is None else _POLICY
    conf.check_extra(controller.spec.extra_conf, own[wellknown.FILE_SLURM_CONF], policy, findings)


def _check_files(cluster: config.Cluster, world: World, findings: Findings) -> None:
    """Judge the ConfigMaps of configFileRefs by what is in them."""
    controller = cluster.controller
    known: list[ConfigMap] = []
    for index, ref in enumerate(controller.spec.config_file_refs or ()):
        if ref.name not in world.config_maps:
            continue
        path, answer = f"spec.configFileRefs[{index}]", world.config_maps[ref.name]
        if isinstance(answer, Unreadable):
            findings.deny(path, f"ConfigMap {ref.name!r} could not be looked at: {answer.reason}")
            continue
        if answer is None:
            findings.deny(path, f"ConfigMap {ref.name!r} does not exist; create it")
            continue
        known.append(answer)
        for file in sorted({*(answer.data or ()), *(answer.binary_data or ())} - _EXPECTED_FILES):
            findings.warn(path, f"ConfigMap {ref.name!r} has a file {file!r}, which Slurm does not know")
    findings.attempt(lambda: config.controller_files(cluster, _found(controller, *known)))


def _check_claim(controller: Controller, world: World, findings: Findings) -> None:
    """Refuse a claim that only one slurmctld could mount."""
    name = controller.claim_in_use
    if controller.replicas < 2 or name not in world.claims:  # noqa: PLR2004 - a standby makes two
        return
    path, answer = "spec.persistence.existingClaim", world.claims[name]
    if isinstance(answer, Unreadable):
        findings.deny(path, f"the claim {name!r} could not be looked at: {answer.reason}")
    elif isinstance(answer, PersistentVolumeClaim) and _SHARED_MODE not in answer.spec.access_modes:
        modes = ", ".join(answer.spec.access_modes) or "none"
        findings.deny(
            path,
            f"the claim {name!r} has the access modes {modes}; with spec.ha.enabled all slurmctlds mount it, "
            f"so name one with {_SHARED_MODE}",
        )
