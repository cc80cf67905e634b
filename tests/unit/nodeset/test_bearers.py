from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.controllers.nodeset.run.slurm_names import Bearers, bearing
from slurm_operator.kube.meta import Key
from slurm_operator.kube.models import Pod
from slurm_operator.kube.store import Store

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
    assert bearing(worker("red", "a-0", "x", "u", 1)) == ("red", "x", "u")
    assert bearing(worker("red", "a-0", "", "u", 1)) == ("red", "a-0", "u")
    assert bearing(worker("red", "a-0", "x", "u", 1, "Succeeded")) is None
    assert bearing(worker("red", "a-0", "x", "", 1)) is None


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
    kept = Bearers()
    for version, (space, name, hostname, owner, phase) in enumerate(steps, 1):
        pod = worker(space, name, hostname, owner, version, phase)
        for change in store.remove(Key(space, name)) if phase == "gone" else store.put(pod):
            kept.changed(change)
    for space in SPACES:
        named: defaultdict[str, set[str]] = defaultdict(set)
        for found in map(bearing, store.list(space)):
            if found is not None:
                named[found.name].add(found.owner)
        assert kept.within(space) == named
