"""The decisions of the Controller controller, beyond what `objects` decides."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.api import Controller, NodeSet
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.controller import node_set_controllers, size_changed
from slurm_operator.controllers.workload import volume_claims
from slurm_operator.controllers.workload.active_slurmctld import fresh_pings, pings_changed
from slurm_operator.controllers.workload.decide.read_models import VolumeClaim
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.models.store import Change
from slurm_operator.slurm.model.records import Ping
from slurm_operator.slurm.model.view import ClusterView, ViewUpdate


def controller(**spec: Any) -> Controller:
    return msgspec.convert({"metadata": {"name": "slurm", "namespace": "ns"}, "spec": spec}, Controller)


def node_set(owner: str, desired: int = 0, *conditions: str) -> NodeSet:
    body = {
        "metadata": {"name": "gpu", "namespace": "ns"},
        "spec": {"controllerRef": {"name": owner}},
        "status": {
            "desired": desired,
            "conditions": [{"type": one, "status": "True", "reason": "Some"} for one in conditions],
        },
    }
    return msgspec.convert(body, NodeSet)


def claim(*modes: str) -> VolumeClaim:
    return msgspec.convert({"spec": {"accessModes": modes}}, VolumeClaim)


HA = {"ha": {"enabled": True}, "persistence": {"existingClaim": "state"}}


def test_node_set_concerns_both_controllers() -> None:
    """A NodeSet that moves concerns the Controller that it leaves as well."""
    moved = Change(node_set("a"), node_set("b"))
    assert list(node_set_controllers(moved)) == [Key("ns", "a"), Key("ns", "b")]
    assert list(node_set_controllers(Change(None, node_set("a")))) == [Key("ns", "a")]


def test_only_the_size_in_a_status_matters() -> None:
    """Of the status of a NodeSet, slurm.conf depends on the number of wanted nodes, and on its records."""
    assert size_changed(Change(node_set("a", 1), node_set("a", 2)))
    assert not size_changed(Change(node_set("a", 1), node_set("a", 1)))
    assert size_changed(Change(None, node_set("a")))
    assert size_changed(Change(node_set("a", 1, "Autoscaling"), node_set("a", 1)))
    assert not size_changed(Change(node_set("a", 1, "Ready"), node_set("a", 1)))


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({}, ["statesave-slurm-controller-0"]),
        ({"persistence": {"existingClaim": "state"}}, ["state"]),
        ({"persistence": {"enabled": False, "existingClaim": "state"}}, []),
        ({"external": True}, []),
        (HA, ["state"]),
    ],
)
def test_claims_that_are_watched(spec: dict[str, Any], names: list[str]) -> None:
    """Exactly the claims in use are watched."""
    assert volume_claims.names(controller(**spec)) == names


def test_claim_of_the_user() -> None:
    """A claim must exist, and with standbys every node must be able to mount it."""
    missing = volume_claims.claim_trouble(controller(**HA), None)
    assert missing is not None
    assert (missing.cause, missing.field) == (Reason.MISSING_REFERENCE, "spec.persistence.existingClaim")
    narrow = volume_claims.claim_trouble(controller(**HA), claim("ReadWriteOnce"))
    assert narrow is not None
    assert narrow.cause is Reason.INVALID_SPEC
    assert "ReadWriteOnce" in narrow.message
    assert volume_claims.claim_trouble(controller(**HA), claim("ReadWriteOnce", "ReadWriteMany")) is None
    alone = {"persistence": {"existingClaim": "state"}}
    assert volume_claims.claim_trouble(controller(**alone), claim("ReadWriteOnce")) is None


# -------------------------------------------------------------------------------------------------- the label
def view(*pings: tuple[str, bool], listed_at: float | None = 100.0) -> ClusterView:
    found = tuple(Ping(hostname=name, responding=responding) for name, responding in pings)
    return ClusterView(controllers=found, controllers_pinged_at=listed_at, stale_after=30.0)


def test_old_pings_say_nothing() -> None:
    """Who was in charge a while ago is no reason to move a label."""
    seen = view(("a", True))
    assert fresh_pings(seen, 130.0) == seen.controllers
    assert fresh_pings(seen, 130.1) == ()
    assert fresh_pings(view(listed_at=None), 0.0) == ()


def test_updates_that_matter_for_the_label() -> None:
    """Only who responds can move the label; latencies and nodes cannot."""
    assert pings_changed(ViewUpdate(view(("a", True)), view(("a", False)), ()))
    assert pings_changed(ViewUpdate(view(("a", True)), view(), ()))
    assert not pings_changed(ViewUpdate(view(("a", True), listed_at=200.0), view(("a", True)), ()))
