"""What tools for deployments should make of an object of each kind in each state; pure.

`kstatus` has the rules by which Flux, Helm 4 and kpt judge a custom resource (cli-utils, pkg/kstatus), as its
documentation states them. An integration test compares it with the program itself.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import yaml

from slurm_operator.api import KINDS, Accounting, Controller, LoginSet, NodeSet, RestApi
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
from slurm_operator.controllers.nodeset.run.report import conditions as nodeset_conditions
from slurm_operator.controllers.shared.conditions import condition, stalled
from slurm_operator.controllers.shared.problems import WorkloadProblem
from slurm_operator.controllers.workload.decide.rollout import Phase, Rollout
from slurm_operator.controllers.workload.decide.verdict import conditions as workload_conditions
from slurm_operator.kube.models.meta import ObjectMeta
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import observe, pod, reported
from tests.support.slurm.views import node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_operator.api import Kind
    from slurm_operator.api.shared import Condition

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "gitops.md"
GENERATION = 2

CURRENT, IN_PROGRESS, FAILED, TERMINATING = "Current", "InProgress", "Failed", "Terminating"
HEALTHY, PROGRESSING, DEGRADED = "Healthy", "Progressing", "Degraded"


class Case(NamedTuple):
    """An object, and what kstatus and Argo CD should say of it."""

    name: str
    object: dict[str, Any]
    kstatus: str
    argo: str


def kstatus(item: dict[str, Any]) -> str:
    """Return the status of a custom resource by the rules of kstatus."""
    metadata, status = item["metadata"], item.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return TERMINATING
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return IN_PROGRESS
    found = {one["type"]: one["status"] for one in status.get("conditions", ())}
    if found.get("Reconciling") == "True":
        return IN_PROGRESS
    if found.get("Stalled") == "True":
        return FAILED
    return CURRENT if found.get("Ready", "True") == "True" else IN_PROGRESS


def script() -> str:
    """Return the health check for Argo CD as the documentation has it."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    customizations = yaml.safe_load(yaml.safe_load(block)["data"]["resource.customizations"])
    found: str = customizations["slinky.slurm.net/*"]["health.lua"]
    return found


def cases() -> Iterator[Case]:
    """Yield every kind in every state that matters."""
    for kind in KINDS:
        yield Case(
            f"{kind.RESOURCE.kind} that no operator has seen", _object(kind, None), IN_PROGRESS, PROGRESSING
        )
    for workload in (Accounting, Controller, LoginSet, RestApi):
        yield from _workload(workload)
    yield from _nodeset()
    for kind in KINDS:
        if kind.RESOURCE.kind in ("Token", "Cluster"):
            yield from _single(kind)


def _workload(kind: type[Kind]) -> Iterator[Case]:
    live = kind(metadata=ObjectMeta(name="x", generation=GENERATION))
    done = Rollout(Phase.COMPLETE, "runs", 1, 1)
    missing = WorkloadProblem(Reason.MISSING_REFERENCE, "there is no Secret")
    states: list[tuple[str, Rollout | None, list[WorkloadProblem], str, str]] = [
        ("available", done, [], CURRENT, HEALTHY),
        ("scaled to zero", Rollout(Phase.COMPLETE, "scaled to zero"), [], CURRENT, HEALTHY),
        ("external", None, [], CURRENT, HEALTHY),
        ("rolling out", Rollout(Phase.ROLLING, "0 of 1", 0, 1), [], IN_PROGRESS, PROGRESSING),
        ("rollout stalled", Rollout(Phase.STALLED, "quota", 0, 1), [], FAILED, DEGRADED),
        # Its Secret may be created a moment later, so this is no failure.
        ("without its Secret", done, [missing], IN_PROGRESS, DEGRADED),
        ("name taken", done, [WorkloadProblem(Reason.NAME_TAKEN, "of another")], IN_PROGRESS, DEGRADED),
        ("invalid", done, [WorkloadProblem(Reason.INVALID_SPEC, "no port")], FAILED, DEGRADED),
        (
            "unreadable reference",
            done,
            [WorkloadProblem(Reason.REFERENCE_UNREADABLE, "forbidden")],
            IN_PROGRESS,
            DEGRADED,
        ),
        # The daemon runs, and what was asked for in addition cannot be had.
        (
            "immutable wish",
            done,
            [WorkloadProblem(Reason.IMMUTABLE_FIELD, "cannot shrink")],
            CURRENT,
            DEGRADED,
        ),
    ]
    for name, rollout, troubles, expected, argo in states:
        said = workload_conditions(live, rollout, troubles, "daemon")
        yield from _versions(f"{kind.RESOURCE.kind} {name}", kind, said, expected, argo)


def _nodeset() -> Iterator[Case]:
    settled = observe(pod(0), slurm=(node("gpu-0"),))
    none = observe(nodeset=make_nodeset(replicas=0))
    starting = observe(nodeset=make_nodeset(replicas=2))
    invalid = ReconcileOutcome()
    invalid.trouble(Reason.INVALID_SPEC, "spec.template: no image")
    for name, seen, outcome, expected, argo in (
        ("settled", settled, ReconcileOutcome(), CURRENT, HEALTHY),
        ("scaled to zero", none, ReconcileOutcome(), CURRENT, HEALTHY),
        ("scaling out", starting, ReconcileOutcome(), IN_PROGRESS, PROGRESSING),
        ("invalid", settled, invalid, FAILED, DEGRADED),
    ):
        said = nodeset_conditions(seen.nodeset, reported(seen).conditions, outcome)
        yield from _versions(f"NodeSet {name}", NodeSet, said, expected, argo)


def _single(kind: type[Kind]) -> Iterator[Case]:
    """Yield the states of the kinds whose only condition is `Ready`."""
    live = kind(metadata=ObjectMeta(name="x", generation=GENERATION))
    wrong = {"Token": "KeyInvalid", "Cluster": "InvalidServer"}[kind.RESOURCE.kind]
    away = {"Token": "KeyMissing", "Cluster": "SlurmrestdUnreachable"}[kind.RESOURCE.kind]
    for status, reason, expected, argo in (
        (True, "Connected", CURRENT, HEALTHY),
        (None, "Connecting", IN_PROGRESS, PROGRESSING),
        (False, away, IN_PROGRESS, DEGRADED),
        (False, wrong, FAILED, DEGRADED),
    ):
        ready = condition("Ready", status, reason, "", live)
        said = (ready, stalled(live, ready))
        yield from _versions(f"{kind.RESOURCE.kind} {reason}", kind, said, expected, argo)


def _versions(
    name: str, kind: type[Kind], said: tuple[Condition, ...] | list[Condition], expected: str, argo: str
) -> Iterator[Case]:
    yield Case(name, _object(kind, said), expected, argo)
    edited = _object(kind, said, generation=GENERATION + 1)
    yield Case(f"{name}, edited since", edited, IN_PROGRESS, PROGRESSING)
    deleted = _object(kind, said)
    deleted["metadata"]["deletionTimestamp"] = "2026-11-16T20:00:00Z"
    # Argo CD runs no script for what is being deleted.
    yield Case(f"{name}, being deleted", deleted, TERMINATING, argo)


def _object(
    kind: type[Kind], said: tuple[Condition, ...] | list[Condition] | None, generation: int = GENERATION
) -> dict[str, Any]:
    status: dict[str, Any] = {"observedGeneration": -1}
    if said is not None:
        status = {"observedGeneration": GENERATION, "conditions": msgspec.to_builtins([*said])}
    return {
        "apiVersion": kind.RESOURCE.api_version,
        "kind": kind.RESOURCE.kind,
        "metadata": {"name": "x", "namespace": "slurm", "generation": generation},
        "status": status,
    }
