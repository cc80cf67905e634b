"""NodeSet: a Controller, a way to update, names that fit, options for Slurm, volumes, and pods.

The pod that is tried is the one of the last worker: it has the longest name.

One rule looks at the other NodeSets: two workers of one name would fight for one node of Slurm. The operator
creates no such pod, whatever gets past here (a `kubectl scale`, say), so a failed lookup is only a warning.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.api.updates import UpdateStrategyType
from slurm_operator.objects import node_fit, slurm_conf, slurmd, slurmd_conf
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.slurmd_args import named
from slurm_operator.objects.slurmd_claims import claim_names, claims
from slurm_operator.objects.slurmd_identity import MAX_ORDINAL_DIGITS, WorkerIdentity, numbered
from slurm_operator.objects.slurmd_names import shared_name
from slurm_operator.webhook.rules import (
    conf_rules,
    pod_rules,
    power_saving,
    reference_rules,
    service_rules,
    shapes,
    standins,
)
from slurm_operator.webhook.rules.findings import CauseType
from slurm_operator.webhook.rules.world import Unreadable

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.objects.content_references import Found
    from slurm_operator.webhook.rules.findings import Findings
    from slurm_operator.webhook.rules.world import World

_OWN = {"slurmd": "spec.slurmd", "logfile": "spec.logfile"}
_SHORTEST_WINDOW: Final = timedelta(minutes=1)
_PERCENTAGE: Final = re.compile(r"[0-9]+%")
_WHOLE: Final = 100
# What a hostname may begin with; the number of the worker follows, so a dash may end it.
_PREFIX: Final = re.compile(r"[a-z0-9][-a-z0-9]*")


def check(nodeset: NodeSet, world: World, findings: Findings) -> None:
    """Validate a NodeSet."""
    spec = nodeset.spec
    reference_rules.check_controller_ref(spec.controller_ref, findings)
    if spec.ssh.enabled:
        reference_rules.check_secret(spec.ssh.sssd_conf_ref, "spec.ssh.sssdConfRef", "sssd.conf", findings)
    for field, number in (
        ("minReadySeconds", spec.min_ready_seconds),
        ("revisionHistoryLimit", spec.revision_history_limit),
    ):
        service_rules.check_not_negative(f"spec.{field}", number, findings)
    _check_update(nodeset, findings)
    own = {"spec.slurmd": spec.slurmd, "spec.logfile": spec.logfile}
    shapely = pod_rules.check_wishes(spec.template.spec, own, findings)
    for index, template in enumerate(spec.volume_claim_templates or ()):
        path = f"spec.volumeClaimTemplates[{index}]"
        shapely &= shapes.fits(template, shapes.ClaimShape, path, findings)
    conf_rules.check_node(spec.extra_conf, findings)
    if spec.partition.enabled:
        conf_rules.check_partition(spec.partition.config, findings)
    if shapely:
        power_saving.check(nodeset, findings)
        _check_arguments(nodeset, findings)
        worker = _worker(nodeset, findings)
        if worker is not None:
            _check_names(nodeset, world, findings)
        _try(nodeset, worker, findings)


# ---------------------------------------------------------------------------------------------------- updates


def _check_update(nodeset: NodeSet, findings: Findings) -> None:
    strategy = nodeset.spec.update_strategy
    _check_max_unavailable(strategy.rolling_update.max_unavailable, findings)
    scheduled = strategy.type == UpdateStrategyType.SCHEDULED_UPDATE
    window = strategy.scheduled_update
    path = "spec.updateStrategy.scheduledUpdate"
    try:
        length = window.length()
    except ValueError as error:
        findings.deny(f"{path}.duration", str(error).removeprefix(f"{path}.duration: "))
    else:
        if length < _SHORTEST_WINDOW and (length or scheduled):
            findings.deny(f"{path}.duration", f"{window.duration!r} is too short; use at least 1m")
    if scheduled:
        try:
            window.opens()
        except ValueError as error:
            findings.deny(f"{path}.startTime", str(error).removeprefix(f"{path}.startTime: "))


def _check_max_unavailable(value: int | str, findings: Findings) -> None:
    path = "spec.updateStrategy.rollingUpdate.maxUnavailable"
    advice = "use a number of 1 or more, or a percentage from 1% to 100%"
    if isinstance(value, int):
        if value < 1:
            findings.deny(path, f"{value} would block every update; {advice}")
    elif not _PERCENTAGE.fullmatch(value):
        findings.deny(path, f"{value!r} is neither a number nor a percentage; {advice}")
    elif not int(value[:-1]):
        findings.deny(path, f"{value!r} would block every update; {advice}")
    elif int(value[:-1]) > _WHOLE:
        findings.warn(path, f"{value!r} exceeds 100%; {advice}")


# ------------------------------------------------------------------------------------------------------ names


def _worker(nodeset: NodeSet, findings: Findings) -> WorkerIdentity | None:
    """Return the worker with the longest name, unless no worker could be made."""
    spec = nodeset.spec
    if spec.ordinal_padding > MAX_ORDINAL_DIGITS:
        findings.deny(
            "spec.ordinalPadding", f"{spec.ordinal_padding} is too large; use at most {MAX_ORDINAL_DIGITS}"
        )
        return None
    prefix = spec.template.spec.get("hostname")
    if prefix and not _PREFIX.fullmatch(prefix):
        findings.deny(
            "spec.template.spec.hostname",
            f"{prefix!r} cannot start a hostname; use lowercase letters, digits and dashes, such as 'gpu-'",
        )
        return None
    if spec.scaling_mode != ScalingMode.STATEFUL_SET:
        # Its name and hostname come from the Kubernetes node.
        return WorkerIdentity(ScalingMode.DAEMON_SET, nodeset.pod_generate_name, "node", node="node")
    try:
        count = nodeset.most_replicas if nodeset.autoscaled else spec.replicas
        return numbered(nodeset, max(count - 1, 0))
    except Unbuildable as error:
        findings.note(error.problems)
        return None


def _check_arguments(nodeset: NodeSet, findings: Findings) -> None:
    """Refuse another name in Slurm than the one that the operator gives a worker."""
    for path, wish in slurmd_conf.own_container(nodeset):
        command = wish.get("command") or [""]
        slurmd = str(command[0]).rpartition("/")[2] == wellknown.APP_SLURMD
        for part, words in (("args", wish.get("args") or []), ("command", command[1:] if slurmd else [])):
            if any(True for _ in named(words)):
                findings.deny(
                    f"{path}.{part}",
                    "-N names the Slurm node, and the operator sets it; remove it. To choose the names, set "
                    "spec.template.spec.hostname, or in DaemonSet mode the annotation "
                    f"{wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE} of the Node",
                    CauseType.FORBIDDEN,
                )


def _check_names(nodeset: NodeSet, world: World, findings: Findings) -> None:
    """Refuse names in Slurm that workers of another NodeSet of the same Controller have."""
    path = "spec.template.spec.hostname"
    if isinstance(world.node_sets, Unreadable):
        findings.warn(path, f"cannot compare it with other NodeSets: {world.node_sets.reason}")
        return
    for other in world.node_sets:
        same = other.spec.controller_ref.name == nodeset.spec.controller_ref.name
        if same and other.metadata.name != nodeset.metadata.name and (name := shared_name(nodeset, other)):
            findings.deny(
                path,
                f"conflicts with NodeSet {other.metadata.name!r}: both would have a Slurm node {name!r}; "
                "choose another hostname prefix",
                CauseType.DUPLICATE,
            )


# ------------------------------------------------------------------------------------------------- renderers


def _try(nodeset: NodeSet, worker: WorkerIdentity | None, findings: Findings) -> None:
    """Build everything that is made of a NodeSet, for what cannot be built."""
    controller = standins.controller_of(nodeset, nodeset.spec.controller_ref.name)
    found = standins.found([nodeset.spec.ssh.sssd_conf_ref])
    findings.attempt(lambda: slurmd_conf.node_conf(nodeset))
    findings.attempt(lambda: slurmd_conf.resource_environment(nodeset))
    findings.attempt(lambda: node_fit.node_fit(nodeset))
    findings.attempt(lambda: claims(nodeset, "0"))
    findings.attempt(
        lambda: slurm_conf.controller_files(slurm_conf.SlurmCluster(controller, [nodeset]), found)
    )
    if worker is not None:
        findings.attempt(lambda: _check_pod(nodeset, worker, found, findings))


def _check_pod(nodeset: NodeSet, worker: WorkerIdentity, found: Found, findings: Findings) -> None:
    controller = standins.controller_of(nodeset, nodeset.spec.controller_ref.name)
    template = slurmd.worker_template(
        nodeset, controller, found, cluster_domain=wellknown.DEFAULT_CLUSTER_DOMAIN
    )
    pod = slurmd.pod(template, worker, revision="")["spec"]
    pod_rules.check_pod(pod, _OWN, nodeset.spec.template.spec, findings)
    pod_rules.check_requests(pod, wellknown.APP_SLURMD, "spec.slurmd", findings)
    _check_claims(nodeset, worker, pod, findings)


def _check_claims(nodeset: NodeSet, worker: WorkerIdentity, pod: dict[str, Any], findings: Findings) -> None:
    """Reject unusable claim templates: two of the same name, or one that no container mounts."""
    path = "spec.volumeClaimTemplates"
    names = claim_names(nodeset, worker.claim_identity)
    templates = nodeset.spec.volume_claim_templates or ()
    if len(names) < len(templates):
        findings.deny(path, "two templates have the same name; give each its own", CauseType.DUPLICATE)
    mounts = {name for container in pod_rules.containers(pod) for name in pod_rules.mounted(container)}
    for index, template in enumerate(templates):
        name = template["metadata"]["name"]
        if name not in mounts:
            findings.deny(
                f"{path}[{index}]",
                f"{name!r} is not mounted; add it to spec.slurmd.volumeMounts, or remove the template",
            )
