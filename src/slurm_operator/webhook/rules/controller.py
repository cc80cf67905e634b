"""Controller: a name that Slurm accepts, keys, files, lines for slurm.conf, a volume, and a pod.

Two rules look at other objects. The ConfigMaps of `configFileRefs` must exist and must not bring a file that
the operator writes. With standbys, the claim that all of them mount must allow that; one that does not exist
yet is no mistake, since pods wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from slurm_operator.api import wellknown
from slurm_operator.kube.models.kinds import ConfigMap, PersistentVolumeClaim
from slurm_operator.objects import slurm_conf, slurmctld
from slurm_operator.objects.content_references import jwt_field
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.webhook.rules import conf_rules, pod_rules, reference_rules, service_rules, standins
from slurm_operator.webhook.rules.world import Unreadable, Wanted

if TYPE_CHECKING:
    from slurm_operator.api import Controller
    from slurm_operator.objects.content_references import Found
    from slurm_operator.webhook.rules.findings import Findings
    from slurm_operator.webhook.rules.world import World

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
_LOG: Final = "the container logfile no longer shows slurmctld's log"
_ACCOUNTING: Final = ("accountingstoragetype", "accountingstoragehost", "accountingstorageport")
_POLICY: Final = conf_rules.Policy(
    free=frozenset(
        {
            *("authaltparameters", "authinfo", "slurmctldparameters"),  # merged with the operator's
            *("prolog", "epilog", "prologslurmctld", "epilogslurmctld"),  # several are allowed
            "taskplugin",  # the operator's own, for memory limits, gives way
        }
    ),
    most={"maxnodecount": slurm_conf.MOST_NODES},
    warned={
        "slurmctldaddr": "pods of this cluster must be able to reach slurmctld at that address",
        "slurmctldlogfile": _LOG,
        "slurmschedlogfile": "the container logfile no longer shows the scheduler's log",
        "slurmdlogfile": "the workers' container logfile no longer shows slurmd's log",
        "slurmdspooldir": "the directory must exist in every worker and have enough space",
        "slurmduser": "worker pods expect slurmd to run as root",
        "metricstype": "spec.metrics needs metrics/openmetrics",
    },
    instead={
        "clustername": "spec.clusterName",
        "slurmctldport": "spec.service.port",
        **dict.fromkeys(_ACCOUNTING, "the Accounting that spec.accountingRef names"),
    },
)
_NO_ACCOUNTING: Final = conf_rules.Policy(
    free=_POLICY.free,
    most=_POLICY.most,
    warned={
        **_POLICY.warned,
        **dict.fromkeys(
            _ACCOUNTING, "create an Accounting (it may be external) and set spec.accountingRef instead"
        ),
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
    """Validate a Controller."""
    spec = controller.spec
    _check_references(controller, findings)
    shapely = service_rules.check_service(spec.service, findings)
    if not spec.external:
        service_rules.check_child_name(controller.internal_service_name, "Service", findings)
    name = controller.cluster_name
    if len(name) > wellknown.MAX_CLUSTER_NAME:
        findings.deny(
            "spec.clusterName",
            f"the cluster name {name!r} has {len(name)} characters; use at most {wellknown.MAX_CLUSTER_NAME}",
        )
    if controller.replicas > _MOST_SLURMCTLDS:
        findings.deny("spec.ha.backups", f"{spec.ha.backups} is too many; use at most {_MOST_SLURMCTLDS - 1}")
        return
    own = {f"spec.{name}": getattr(spec, name) for name in ("slurmctld", "logfile", "reconfigure")}
    if not pod_rules.check_wishes(spec.template.spec, own, findings) or not shapely:
        return
    ref = spec.accounting_ref
    accounting = standins.accounting_of(controller, ref.name) if ref is not None else None
    cluster = slurm_conf.SlurmCluster(controller, accounting=accounting)
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
        pod_rules.check_pod(workload["spec"]["template"]["spec"], _OWN, spec.template.spec, findings, claims)


def _check_references(controller: Controller, findings: Findings) -> None:
    spec = controller.spec
    reference_rules.check_secret(spec.slurm_key_ref, "spec.slurmKeyRef", "slurm.key", findings)
    reference_rules.check_secret(controller.jwt_key, jwt_field(spec), "the key that signs tokens", findings)
    reference_rules.check_config_map(spec.jwks_key_ref, "spec.jwksKeyRef", "the JSON web key set", findings)
    if spec.accounting_ref is not None:
        reference_rules.check_name(spec.accounting_ref, "spec.accountingRef", "Accounting", findings)
    for path, name in slurm_conf.controller_config_maps(controller):
        if not name:
            findings.require(
                f"{path}.name", "is empty; set the name of the ConfigMap, which must be in the same namespace"
            )


def _found(controller: Controller, *known: ConfigMap) -> Found:
    """Return stand-ins for all that a Controller names, and what is known of its ConfigMaps."""
    spec = controller.spec
    named = {name: standins.config_map(name) for _, name in slurm_conf.controller_config_maps(controller)}
    named |= {item.metadata.name: item for item in known}
    return standins.found(
        [spec.slurm_key_ref, controller.jwt_key], config_maps=named.values(), keys=[spec.jwks_key_ref]
    )


def _check_extra(cluster: slurm_conf.SlurmCluster, found: Found, findings: Findings) -> None:
    controller = cluster.controller
    plain = replace(controller, spec=replace(controller.spec, extra_conf=""))
    try:
        own = slurm_conf.controller_files(
            slurm_conf.SlurmCluster(plain, accounting=cluster.accounting), found
        )
    except Unbuildable:
        return  # reported already; without a file there is nothing to compare with
    policy = _NO_ACCOUNTING if cluster.accounting is None else _POLICY
    conf_rules.check_extra(controller.spec.extra_conf, own[wellknown.FILE_SLURM_CONF], policy, findings)


def _check_files(cluster: slurm_conf.SlurmCluster, world: World, findings: Findings) -> None:
    """Validate the ConfigMaps of configFileRefs by what is in them."""
    controller = cluster.controller
    known: list[ConfigMap] = []
    for index, ref in enumerate(controller.spec.config_file_refs or ()):
        if ref.name not in world.config_maps:
            continue
        path, answer = f"spec.configFileRefs[{index}]", world.config_maps[ref.name]
        if isinstance(answer, Unreadable):
            findings.deny(path, f"cannot read ConfigMap {ref.name!r}: {answer.reason}")
            continue
        if answer is None:
            findings.deny(path, f"ConfigMap {ref.name!r} does not exist; create it")
            continue
        known.append(answer)
        for file in sorted({*(answer.data or ()), *(answer.binary_data or ())} - _EXPECTED_FILES):
            findings.warn(path, f"ConfigMap {ref.name!r} has the file {file!r}, which Slurm does not read")
    findings.attempt(lambda: slurm_conf.controller_files(cluster, _found(controller, *known)))


def _check_claim(controller: Controller, world: World, findings: Findings) -> None:
    """Refuse a claim that only one slurmctld could mount."""
    name = controller.claim_in_use
    if controller.replicas < 2 or name not in world.claims:  # noqa: PLR2004 - a standby makes two
        return
    path, answer = "spec.persistence.existingClaim", world.claims[name]
    if isinstance(answer, Unreadable):
        findings.deny(path, f"cannot read PersistentVolumeClaim {name!r}: {answer.reason}")
    elif isinstance(answer, PersistentVolumeClaim) and _SHARED_MODE not in answer.spec.access_modes:
        modes = ", ".join(answer.spec.access_modes) or "none"
        findings.deny(
            path,
            f"PersistentVolumeClaim {name!r} has the access modes {modes}; with spec.ha.enabled all "
            f"slurmctlds mount it, so use one with {_SHARED_MODE}",
        )
