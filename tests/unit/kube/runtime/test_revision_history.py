from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.manifests.revisions import HASH_LABEL, hash_of
from slurm_operator.kube.models.kinds import ControllerRevision
from slurm_operator.kube.runtime.revision_history import (
    HistoryOwner,
    HistoryPlan,
    new_controller_revision,
    plan_history,
)

LABELS = {"app.kubernetes.io/instance": "compute", "app.kubernetes.io/name": "slurmd"}
OWNER = HistoryOwner("slinky.slurm.net/v1beta1", "NodeSet", "slurm", "compute", "owner-uid", LABELS)


def stored(data: Any, number: int = 1, **changes: Any) -> ControllerRevision:
    """Return a revision as the API server would give it back."""
    body = new_controller_revision(OWNER, data, number, 0)
    body["metadata"]["uid"] = f"uid-{body['metadata']['name']}"
    body["metadata"].update(changes)
    return msgspec.convert(body, ControllerRevision)


def plan(revisions: list[ControllerRevision], data: Any, **kwargs: Any) -> HistoryPlan:
    return plan_history(OWNER, revisions, data, **{"live": (), "limit": 0, **kwargs})


def test_the_first_revision_is_created() -> None:
    """With no history the plan creates revision 1, labelled so that it can be listed, and owned."""
    decided = plan([], {"spec": 1})
    assert decided.current is None
    assert decided.create is not None
    metadata = decided.create["metadata"]
    assert decided.create["revision"] == 1
    assert metadata["labels"].items() >= LABELS.items()
    assert metadata["name"] == f"compute-{metadata['labels'][HASH_LABEL]}"
    assert metadata["ownerReferences"][0]["uid"] == "owner-uid"
    assert metadata["ownerReferences"][0]["controller"] is True


def test_an_unchanged_history_is_left_alone() -> None:
    """When the wanted revision is the newest and everything is in order, nothing is written."""
    decided = plan([stored({"spec": 1})], {"spec": 1})
    assert decided.settled
    assert decided.current == stored({"spec": 1})


def test_a_change_creates_the_next_number() -> None:
    """New data gets a number above all others."""
    decided = plan([stored({"spec": 1}, 4), stored({"spec": 2}, 2)], {"spec": 3}, limit=5)
    assert decided.create is not None
    assert decided.create["revision"] == 5
    assert decided.delete == ()


def test_a_rollback_renumbers_the_old_revision() -> None:
    """Going back to old data reuses its revision and makes it the newest."""
    old = stored({"spec": 1}, 1)
    decided = plan([old, stored({"spec": 2}, 2)], {"spec": 1}, limit=5)
    assert decided.current is old
    assert [(patch.name, patch.body["revision"]) for patch in decided.patches] == [(old.metadata.name, 3)]


def test_a_revision_with_another_hash_and_the_same_meaning_is_used() -> None:
    """A revision made by other code is adopted when it has the same content; its hash stays valid."""
    other = stored({"spec": {"resources": {}}}, name="compute-other", labels={**LABELS, HASH_LABEL: "other"})
    decided = plan([other], {"spec": {}})
    assert decided.create is None
    assert decided.current is other
    assert decided.current_hashes == {"other"}


def test_among_equals_the_one_that_pods_carry_is_preferred() -> None:
    """Duplicates of one content never cause pods to be replaced."""
    first = stored({"a": 1}, 1, name="compute-first", labels={**LABELS, HASH_LABEL: "first"})
    second = stored({"a": 1}, 2, name="compute-second", labels={**LABELS, HASH_LABEL: "second"})
    assert plan([first, second], {"a": 1}).current is second
    decided = plan([first, second], {"a": 1}, live={"first"})
    assert decided.current is first
    assert decided.current_hashes == {"first", "second"}
    assert decided.patches == ()


def test_owned_revisions_without_labels_get_them() -> None:
    """Revisions of Slinky slurm-operator, found by owner, become listable by label."""
    bare = stored({"a": 1}, labels={HASH_LABEL: hash_of(stored({"a": 1}))})
    (patch,) = plan([bare], {"a": 1}).patches
    assert patch.body == {"metadata": {"uid": bare.metadata.uid, "labels": LABELS}}


def test_orphans_with_our_labels_are_adopted() -> None:
    """A revision without controller that carries the labels gets ours beside its other owners, guarded."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
    orphan = stored({"a": 1}, ownerReferences=[other], resourceVersion="7")
    (patch,) = plan([orphan], {"a": 1}).patches
    assert patch.body == {
        "metadata": {
            "uid": orphan.metadata.uid,
            "resourceVersion": "7",
            "ownerReferences": [other, OWNER.reference()],
        }
    }


def test_revisions_of_others_are_ignored() -> None:
    """Neither use nor touch a revision that another object controls, or an orphan that is not ours."""
    foreign = stored({"a": 1}, ownerReferences=[{**OWNER.reference(), "uid": "other"}])
    other_content = stored({"a": 2}, ownerReferences=[], labels={})
    other_name = stored({"a": 1}, name="other-abc", ownerReferences=[], labels={})
    decided = plan([foreign, other_content, other_name], {"a": 1}, trusted=hash_of(other_content))
    assert decided.create is not None
    assert decided.patches == ()
    assert decided.delete == ()
    assert decided.current_hashes == frozenset()


def test_an_orphan_with_our_name_and_content_is_adopted() -> None:
    """A revision that lost its controller and never had our labels is ours when it says what we want."""
    orphan = stored({"a": 1}, ownerReferences=[], labels={}, resourceVersion="7")
    decided = plan([orphan], {"a": 1})
    assert decided.current is orphan
    (patch,) = decided.patches
    assert patch.body["metadata"]["ownerReferences"] == [OWNER.reference()]
    assert patch.body["metadata"]["labels"] == {**LABELS, HASH_LABEL: hash_of(orphan)}
    assert patch.body["metadata"]["resourceVersion"] == "7"


def test_the_revision_that_the_status_names_comes_before_newer_equals() -> None:
    """Among equals the status decides, unless pods carry another one."""
    first = stored({"a": 1}, 1, name="compute-first", labels={**LABELS, HASH_LABEL: "first"})
    second = stored({"a": 1}, 2, name="compute-second", labels={**LABELS, HASH_LABEL: "second"})
    assert plan([first, second], {"a": 1}, trusted="first").current is first
    assert plan([first, second], {"a": 1}, trusted="first", live={"second"}).current is second


def test_a_revision_being_deleted_is_not_used() -> None:
    """What goes away cannot be the current revision."""
    going = stored({"a": 1}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert plan([going], {"a": 1}).create is not None


def test_truncation_keeps_live_revisions_and_the_newest_others() -> None:
    """Beyond the limit the oldest go first; what pods carry, by name or hash, and what is in use stay."""
    history = [stored({"a": number}, number) for number in range(1, 7)]
    live = {hash_of(history[0]), history[1].metadata.name}
    decided = plan(history, {"a": 6}, live=live, limit=1)
    assert decided.delete == (history[2], history[3])


@given(
    contents=st.lists(st.integers(0, 5), max_size=8, unique=True),
    wanted=st.integers(0, 6),
    live=st.sets(st.integers(0, 6)),
    limit=st.integers(-1, 4),
)
def test_plans_are_safe(contents: list[int], wanted: int, live: set[int], limit: int) -> None:
    """No plan deletes what is in use or live, or leaves more dead history than the limit."""
    history = [stored({"a": content}, number) for number, content in enumerate(contents, start=1)]
    hashes = {hash_of(stored({"a": content})) for content in live}
    decided = plan(history, {"a": wanted}, live=hashes, limit=limit)
    assert (decided.create is None) == (wanted in contents)
    assert (decided.current is None) != (decided.create is None)
    deleted = {hash_of(item) for item in decided.delete}
    assert not deleted & (hashes | decided.current_hashes)
    dead = [item for item in history if hash_of(item) not in hashes | decided.current_hashes]
    assert len(dead) - len(deleted) <= max(0, limit)
    numbers = {item.metadata.name: item.revision for item in history}
    for patch in decided.patches:
        numbers[patch.name] = patch.body["revision"]
    if decided.create is not None:
        numbers[decided.create["metadata"]["name"]] = decided.create["revision"]
    current = decided.create["metadata"]["name"] if decided.create else decided.current.metadata.name  # type: ignore[union-attr]  # one of the two is set, see above
    assert all(number < numbers[current] for name, number in numbers.items() if name != current)
