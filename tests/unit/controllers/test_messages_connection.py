"""The sentences about the way to slurmrestd, and about what Slurm says of a node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import Cluster, Controller, RestApi
from slurm_operator.controllers import cluster, slurmclient
from slurm_operator.controllers.shared.connection_health import ConnectionHealth, ConnectionProblem
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.slurm.decide.node_changes import Drain, NotSent, ResumeCloud, SetState, decide
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model.answers import Absent, Known
from slurm_operator.slurm.web_token import TokenClaims
from tests.support import message_golden
from tests.support.slurm.views import NOW, drained_node, job, jobs, node, view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_operator.slurm.model.view import ClusterView

NAMED = {"name": "slurm", "namespace": "ns"}
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
REST = {"controllerRef": {"name": "slurm"}}


def of_cluster() -> Iterator[str]:
    """Yield what is said of a Cluster that leads nowhere."""
    good = {"auth-token": b"abc.def"}
    for server, name, data in (
        ("slurm:6820", "token", good),
        ("http://slurm:6820", "", good),
        ("http://slurm:6820", "token", None),
        ("http://slurm:6820", "token", {}),
        ("http://slurm:6820", "token", {"auth-token": b"SLURM_JWT=abc.def"}),
        ("http://slurm:6820", "token", {"auth-token": b"two words"}),
    ):
        body = {"metadata": NAMED, "spec": {"server": server, "token": {"secretRef": name}}}
        secret = None if data is None else Secret(data=data)
        yield from problem("Cluster", cluster.target(msgspec.convert(body, Cluster), secret, None))
    for left in (timedelta(hours=1), timedelta(hours=-1)):
        end = NOON + left
        claims = TokenClaims("slurm", end - timedelta(days=1), end)
        yield f"Cluster: {cluster.expiry(claims, 'token', NOON).note}"


def of_controller() -> Iterator[str]:
    """Yield what is said of a Controller without a way to its slurmrestd."""
    plain = controller()
    named = controller({"slinky.slurm.net/cluster-ref": "far"})
    yield from problem("Controller", slurmclient.choose(plain, [], []))
    yield from problem("Controller", slurmclient.choose(named, [], []))
    unread = {"slurm": "Expected `str`, got `int` - at `$.spec.server`"}
    yield from problem("Controller", slurmclient.choose(plain, [], [], unread_clusters=unread))
    yield from problem("Controller", slurmclient.choose(plain, [], [], unread_restapis=unread))
    keyed = controller(jwtKeyRef={"name": "keys", "key": "jwt.key"})
    for data in (None, {}, {"jwt.key": b""}):
        secret = None if data is None else Secret(data=data)
        yield from problem("Controller", slurmclient.signing_key(keyed, secret))
    yield from problem("Controller", slurmclient.signing_key(plain, None))
    spec = REST | {"service": {"port": 70000}}
    broken = msgspec.convert({"metadata": NAMED, "spec": spec}, RestApi)
    found = slurmclient.target(keyed, broken, Secret(data={"jwt.key": b"k"}), None)
    yield from problem("Controller", found)
    for conditions in (
        [],
        [{"type": "Ready", "status": "False", "reason": "SlurmUnreachable", "message": "no answer"}],
    ):
        body = {"metadata": NAMED, "status": {"conditions": conditions}}
        yield from problem("Controller", slurmclient.mirror(msgspec.convert(body, Cluster)))


def controller(annotations: dict[str, str] | None = None, **spec: Any) -> Controller:
    return msgspec.convert({"metadata": NAMED | {"annotations": annotations or {}}, "spec": spec}, Controller)


def problem(kind: str, found: object) -> Iterator[str]:
    assert isinstance(found, ConnectionProblem | ConnectionHealth)
    yield f"{kind} {found.reason}: {found.message}"


def of_nodes() -> Iterator[str]:
    """Yield what is known of a node, for each reason."""
    gone, idle, drained = node("other"), node("w-0"), drained_node("w-0")
    failure = RestUnreachable("list nodes: cannot connect")
    views: tuple[ClusterView, ...] = (
        view(drained),
        view(idle),
        view(gone),
        view(gone, complete=False),
        view(gone, up_since=None),
        view(drained, failure=failure, stale_after=0.5),
        view(drained, stale_after=0.5),
        view(drained, jobs=jobs(job(7, "w-0"))),
        view(drained, jobs=jobs(job(7, "w-0"), job(8, "w-0"))),
        view(drained, jobs=jobs(job(7, ""))),
        view(drained, jobs_stale_after=0.5),
        view(drained_node("w-0", alloc=2)),
        view(drained_node("w-0", alloc=None)),
        view(node("w-0", "IDLE", "DRAIN", "STRANGE", "DYNAMIC_NORM")),
        view(node("w-0", "IDLE", "DRAIN", "UNDRAIN", "DYNAMIC_NORM")),
        view(node("w-0", "IDLE", "DRAIN", "COMPLETING", "DYNAMIC_NORM")),
        view(node("w-0", "UNKNOWN", "DRAIN", "DYNAMIC_NORM")),
    )
    for one in views:
        answer = one.drained("w-0", NOW)
        yield f"Node {answer.reason}: {answer.message}"
    later = view(drained).drained("w-0", NOW, NOW)
    yield f"Node {later.reason}: {later.message}"


def of_changes() -> Iterator[str]:
    """Yield why a change of a node is not sent."""
    by_alice = node("w-0", "IDLE", "DRAIN", reason="bad disk", reason_set_by_user="alice")
    cases = (
        (Drain("scale-in"), Absent(NOW, 2, NOW)),
        (Drain("scale-in"), Known(by_alice, NOW)),
        (Drain("scale-in"), Known(node("w-0", "IDLE", "DRAIN", reason="bad disk"), NOW)),
        (Drain("scale-in"), Known(node("w-0", "IDLE", "DRAIN"), NOW)),
        (Drain("scale-in"), Known(node("w-0", "IDLE", "CLOUD", "POWERING_UP"), NOW)),
        (ResumeCloud(), Known(node("w-0", "DOWN", "CLOUD", reason="bad disk"), NOW)),
        (SetState("STRANGE", ""), Known(node("w-0"), NOW)),
    )
    for change, answer in cases:
        outcome = decide(change, answer, "slurm-operator: ")
        assert isinstance(outcome, NotSent), change
        yield f"Change {outcome.reason}: {outcome.message}"


def test_slurm_connection() -> None:
    """Each sentence is as in the golden file."""
    message_golden.compare("Slurm connection", [*of_cluster(), *of_controller(), *of_nodes(), *of_changes()])
