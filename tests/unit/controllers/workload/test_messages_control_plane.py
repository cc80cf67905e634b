"""The sentences about slurmctld, slurmdbd, slurmrestd and login pods: conditions and Events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import Controller, LoginSet, RestApi, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import Condition, ConfigMapKeySelector, SecretKeySelector
from slurm_operator.controllers.loginset import keys_trouble
from slurm_operator.controllers.shared.problems import WorkloadProblem
from slurm_operator.controllers.workload import children, volume_claims
from slurm_operator.controllers.workload.decide import effects, rollout, verdict
from slurm_operator.controllers.workload.decide.read_models import (
    DeploymentDetails,
    StatefulSetDetails,
    VolumeClaim,
    Workload,
)
from slurm_operator.kube.errors import Forbidden
from slurm_operator.kube.models.kinds import ConfigMap, Secret, Service
from slurm_operator.objects import corrections, slurmctld
from slurm_operator.objects.content_references import Found
from slurm_operator.objects.desired import Problem, Unbuildable
from slurm_operator.objects.slurm_conf import SlurmCluster
from slurm_operator.objects.slurmctld_claim import keep_claims
from tests.support import message_golden
from tests.support.objects.resources import controller, found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMED = {"name": "slurm", "namespace": "ns", "uid": "uid-1", "generation": 3}
LIVE = msgspec.convert({"metadata": NAMED}, RestApi)
READY: dict[str, Any] = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
QUOTA = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}


def workload(kind: type[Workload], wanted: int = 2, **status: Any) -> Workload:
    seen = {"observedGeneration": 3, "currentRevision": "a", "updateRevision": "a"} | READY | status
    return msgspec.convert({"metadata": NAMED, "spec": {"replicas": wanted}, "status": seen}, kind)


def rollouts() -> Iterator[rollout.Rollout]:
    """Yield every state of a rollout."""
    yield rollout.assess(None, "slurmctld")
    for kind, daemon in ((StatefulSetDetails, "slurmctld"), (DeploymentDetails, "slurmrestd")):
        for wanted, status in (
            (2, {}),
            (0, dict.fromkeys(READY, 0)),
            (2, {"observedGeneration": 2}),
            (2, {"readyReplicas": 1, "availableReplicas": 1}),
            (2, {"updatedReplicas": 1, "updateRevision": "b"}),
            (2, {"replicas": 3}),
            (2, {"replicas": 4}),
            (2, {"conditions": [LATE]}),
            (2, {"conditions": [LATE | {"message": "ReplicaSet has timed out progressing."}]}),
            (2, {"conditions": [QUOTA]}),
        ):
            yield rollout.assess(workload(kind, wanted, **status), daemon)
    ending = {**NAMED, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    body = {"metadata": ending, "spec": {"replicas": 2}, "status": READY}
    yield rollout.assess(msgspec.convert(body, StatefulSetDetails), "slurmctld")


def conditions() -> Iterator[str]:
    """Yield the conditions, without and with a problem."""
    done, begun = (rollout.assess(one, "slurmrestd") for one in (workload(DeploymentDetails), None))
    problem = WorkloadProblem(
        Reason.MISSING_REFERENCE, "Secret 'keys' does not exist; create it", "spec.slurmKeyRef"
    )
    cases: tuple[tuple[rollout.Rollout | None, list[WorkloadProblem]], ...] = (
        (done, []),
        (begun, []),
        (None, []),
        (done, [problem]),
    )
    for state, problems in cases:
        for one in verdict.conditions(LIVE, state, problems, "slurmrestd"):
            yield f"{one.type} {one.reason}: {one.message}"


def configured() -> Iterator[str]:
    """Yield the condition Configured, for each effect of a change."""
    secret = Secret(data={"slurm.key": b"k"})
    template: dict[str, Any] = {"metadata": {"annotations": {}}}
    inputs = effects.Inputs(Found({"keys": secret}), [])
    live = msgspec.convert({"spec": {"template": template}}, StatefulSetDetails)
    marks = effects.hashes(
        {value: "new" for name, value in vars(wellknown).items() if name.endswith("_HASH")}
    )
    cases: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({}, {"live": None}),
        ({}, {}),
        (marks, {"applied": True}),
        (marks, {"applied": True, "changed": ["Secret 'keys'"]}),
    )
    for given_marks, given in cases:
        arguments: dict[str, Any] = {
            "sent": {"spec": {"template": {"metadata": {"annotations": given_marks}}}},
            "live": live,
            "applied": False,
            "reconfigures": False,
            "changed": (),
            "previous": None,
        }
        yield "Configured {}: {}".format(*effects.effect("slurmctld", inputs, **arguments | given))
    files = effects.Inputs(Found(config_maps={"gres": ConfigMap(data={"gres.conf": "a"})}), [])
    before = Condition(type="Configured", status="True", reason="Started", message="before")
    for reconfigures in (True, False):
        for changed in ((), ("ConfigMap 'gres'", "slurm.conf")):
            reason, message = effects.effect(
                "slurmctld",
                files,
                sent={"spec": {"template": template}},
                live=live,
                applied=False,
                reconfigures=reconfigures,
                changed=changed,
                previous=before,
            )
            yield f"Configured {reason}: {message}"
    written = {"slurm.conf": "AuthType=auth/slurm\nSlurmctldHost=a\n"}
    ours = {"slurm.conf": "SlurmctldHost=b\n"}
    waiting = corrections.differences(written, ours, {"AuthType=auth/slurm", "SlurmctldHost=a"})
    yield "Configured {}: {}".format(*effects.pending(LIVE, "slurmctld", inputs, waiting or ()))


def child_problems() -> Iterator[str]:
    """Yield what is said of children that belong to others, or cannot be written."""
    owners: tuple[list[dict[str, Any]], ...] = (
        [],
        [{"kind": "RestApi", "name": "slurm", "uid": "old"}],
        [{"kind": "Controller", "name": "x", "uid": "u"}],
    )
    for owner in owners:
        references = [one | {"controller": True} for one in owner]
        taken = msgspec.convert({"metadata": NAMED | {"ownerReferences": references}}, Service)
        labels = {wellknown.LABEL_APP_NAME: "slurmrestd", wellknown.LABEL_APP_INSTANCE: "slurm"}
        found_ = children.name_conflict(LIVE, taken, {"metadata": {"labels": labels}})
        assert found_ is not None
        yield f"{found_.cause}: {found_.text}"
    error = Forbidden("patch Service ns/slurm: no (HTTP 403)", status=403)
    for action in ("Create", "Patch", "Delete"):
        slot = children.ChildKey("Service", "slurm")
        yield f"{Reason.APPLY_FAILED}: {children.failure(action, slot, error)}"


def claim_problems() -> Iterator[str]:
    """Yield what is said of volume claims."""
    shared = {"ha": {"enabled": True}, "persistence": {"existingClaim": "state"}}
    live = msgspec.convert({"metadata": NAMED, "spec": shared}, Controller)
    narrow = msgspec.convert({"spec": {"accessModes": ["ReadWriteOnce"]}}, VolumeClaim)
    for claim in (None, narrow):
        trouble = volume_claims.claim_trouble(live, claim)
        assert trouble is not None
        yield f"{trouble.cause}: {trouble.text}"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}
    existing = [{"metadata": {"name": "statesave"}, "spec": spec}]
    for wish, templates in (
        ({"storageClassName": "fast"}, existing),
        ({"resources": {"requests": {"storage": "1Gi"}}}, existing),
        ({"enabled": False}, existing),
        ({}, []),
    ):
        made = slurmctld.stateful_set(SlurmCluster(controller(persistence=wish)), found())
        yield from map(problem_line, keep_claims(made, templates)[1])


def host_keys() -> Iterator[str]:
    """Yield what is said of the Secret with the host keys of a LoginSet."""
    live = msgspec.convert({"metadata": NAMED | {"name": "login"}}, LoginSet)
    owners: tuple[list[dict[str, Any]], ...] = (
        [],
        [{"kind": "LoginSet", "name": "login", "uid": "old"}],
        [{"kind": "Token", "name": "t", "uid": "u"}],
    )
    for owner in owners:
        references = [one | {"controller": True} for one in owner]
        body = {"metadata": {"name": "login-ssh-host-keys", "namespace": "ns", "ownerReferences": references}}
        yield from _host_keys(live, body)
    yield from _host_keys(
        live, {"metadata": {"name": "login-ssh-host-keys", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    )


def _host_keys(live: LoginSet, body: dict[str, Any]) -> Iterator[str]:
    trouble = keys_trouble(live, msgspec.convert(body, Secret))
    assert trouble is not None
    yield f"{trouble.cause}: {trouble.text}"


def references() -> Iterator[str]:
    """Yield what is said of references to what is missing."""
    there = Found({"keys": Secret(data={})}, {"files": ConfigMap(data={})})
    where, secret = "spec.slurmKeyRef", SecretKeySelector
    attempts: tuple[Callable[[], object], ...] = (
        lambda: there.secret_key(None, where),
        lambda: there.secret_key(secret(name="", key="k"), where),
        lambda: there.secret_key(secret(name="absent", key="k"), where),
        lambda: there.secret_key(secret(name="keys", key="k"), where),
        lambda: there.config_map("", "spec.configFileRefs[0]"),
        lambda: there.config_map("absent", "spec.configFileRefs[0]"),
        lambda: there.config_map_key(ConfigMapKeySelector(name="files", key="k"), "spec.jwksKeyRef"),
    )
    for attempt in attempts:
        with pytest.raises(Unbuildable) as refused:
            attempt()
        yield from map(problem_line, refused.value.problems)


def problem_line(problem: Problem) -> str:
    return f"{problem.reason.value}: {problem.field}: {problem.message}"


def test_control_plane() -> None:
    """Each sentence is as in the golden file."""
    message_golden.compare(
        "Control plane",
        [
            *(f"{one.phase}: {one.message}" for one in rollouts()),
            *conditions(),
            *configured(),
            *child_problems(),
            *claim_problems(),
            *host_keys(),
            *references(),
        ],
    )
