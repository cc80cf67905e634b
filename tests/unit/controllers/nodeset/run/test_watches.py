from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.controllers.nodeset.run.watches import NameHolders, concerns_all, name_holder
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.models.store import Store
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model.records import Node
from slurm_operator.slurm.model.view import ClusterView, NodeDelta, ViewUpdate

SPACES = ("red", "blue")


def worker(space: str, name: str, hostname: str, owner: str, version: int, phase: str = "Running") -> Pod:
    owners = [{"apiVersion": "v1", "kind": "NodeSet", "name": "n", "uid": owner, "controller": True}]
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": space,
        "uid": f"{name}/{owner}",
        "resourceVersion": str(version),
        "labels": {"nodeset.slinky.slurm.net/scaling-mode": "StatefulSet"},
        "ownerReferences": owners if owner else [],
    }
    body = {"metadata": metadata, "spec": {"hostname": hostname}, "status": {"phase": phase}}
    return msgspec.convert(body, Pod)


def test_a_pod_has_its_name_until_it_is_gone_or_has_ended() -> None:
    """One that nobody owns has none for anybody."""
    assert name_holder(worker("red", "a-0", "x", "u", 1)) == ("red", "x", "u")
    assert name_holder(worker("red", "a-0", "", "u", 1)) == ("red", "a-0", "u")
    assert name_holder(worker("red", "a-0", "x", "u", 1, "Succeeded")) is None
    assert name_holder(worker("red", "a-0", "x", "", 1)) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(SPACES),
            st.sampled_from(("a-0", "b-0", "c-0")),
            st.sampled_from(("x", "y")),
            st.sampled_from(("", "u1", "u2")),
            st.sampled_from(("Running", "Failed", "gone")),
        )
    )
)
def test_what_is_kept_is_what_the_pods_say(steps: list[tuple[str, str, str, str, str]]) -> None:
    """However pods come, change and go, the names are those of the pods that are there."""
    store: Store[Pod] = Store()
    kept = NameHolders()
    for version, (space, name, hostname, owner, phase) in enumerate(steps, 1):
        pod = worker(space, name, hostname, owner, version, phase)
        for change in store.remove(Key(space, name)) if phase == "gone" else store.put(pod):
            kept.changed(change)
    for space in SPACES:
        named: defaultdict[str, set[str]] = defaultdict(set)
        for found in map(name_holder, store.list(space)):
            if found is not None:
                named[found.name].add(found.owner)
        assert kept.within(space) == named


# ------------------------------------------------------------------------------------------------------- view
BEFORE = ClusterView(listed_at=1.0, complete=True)
CHANGE = NodeDelta("n", None, Node(name="n"))


@pytest.mark.parametrize(
    ("changed", "all_of_them"),
    [
        ({}, False),
        ({"suspicion": "half of it is missing"}, True),
        ({"complete": False}, True),
        ({"just_started": True}, True),
        ({"failure": RestUnreachable("away")}, True),
        ({"reservations": {"r": object()}}, True),
    ],
)
async def test_news_of_single_nodes_go_to_their_nodesets_only(
    changed: dict[str, Any], *, all_of_them: bool
) -> None:
    """What changes the outlook on the whole cluster concerns every NodeSet of it; a node alone does not."""
    after = dataclasses.replace(BEFORE, **changed)
    assert concerns_all(ViewUpdate(after, BEFORE, (CHANGE,))) is all_of_them


async def test_an_update_without_nodes_concerns_all() -> None:
    """It says that the view as a whole is another one: older, for example."""
    assert concerns_all(ViewUpdate(BEFORE, BEFORE, ()))
