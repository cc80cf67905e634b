from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import wellknown
from slurm_operator.plugin.draining import CordonChange, drain_change, signed, undrain_change
from slurm_operator.plugin.exits import CommandError
from tests.support.plugin.sample_rows import worker

if TYPE_CHECKING:
    from slurm_operator.status_rows import WorkerRow

CORDON, BY = wellknown.ANNOTATION_POD_CORDON, wellknown.ANNOTATION_POD_CORDON_BY
REASON = wellknown.ANNOTATION_POD_CORDON_REASON
MINE = {CORDON: "true", REASON: "fan broken (by ann)"}
FOREIGN = worker(2, drained_by="other", state_reason="memtest", state_reason_by="root")


def undrain(
    annotations: dict[str, str], *, force: bool = False, user: str = "ann", of: WorkerRow | None = None
) -> CordonChange:
    return undrain_change(of or worker(2), annotations, user, force=force)


def test_a_drain_is_the_cordon_annotation_with_a_reason_and_its_author() -> None:
    """The operator carries the annotation into Slurm; the reason says whose it is."""
    change = drain_change(worker(2), {}, "fan\nbroken", "ann")
    assert change.annotations == MINE
    assert "takes no new jobs" in change.message


def test_a_cordon_of_the_operator_becomes_the_users() -> None:
    """What the operator drained for a scale-in stays drained when the scale-in is taken back."""
    change = drain_change(worker(2), {CORDON: "true", BY: "ScaleIn"}, "fan broken", "ann")
    assert change.annotations == {**MINE, BY: None}


def test_a_users_cordon_is_not_written_over() -> None:
    """The first user's reason stays."""
    change = drain_change(worker(2), MINE, "other", "bob")
    assert change.annotations == {}
    assert "fan broken (by ann)" in change.message


def test_a_long_reason_keeps_its_author() -> None:
    """The reason is cut, not the user behind it."""
    text = signed("x" * 500, "ann")
    assert len(text) == wellknown.MAX_NODE_REASON
    assert text.endswith(" (by ann)")


def test_undrain_takes_back_the_users_own_drain() -> None:
    """Both annotations are removed."""
    assert undrain(MINE).annotations == {CORDON: None, REASON: None}


def test_undrain_of_what_is_not_drained_does_nothing() -> None:
    """It says so, and is no error."""
    assert undrain({}) == CordonChange({}, "Slurm node workers-2 (pod slurm/workers-2) is not drained")


@pytest.mark.parametrize(
    ("annotations", "user", "told"),
    [
        (MINE, "bob", "another user (fan broken (by ann))"),
        (MINE, "", "another user"),
        ({CORDON: "true"}, "ann", "a user, by its annotation"),
        ({CORDON: "true", REASON: "x (by joann)"}, "ann", "another user"),
    ],
)
def test_the_drain_of_another_user_is_not_undone(annotations: dict[str, str], user: str, told: str) -> None:
    """Without --force only a drain that this user made is taken back; an unknown author is another."""
    with pytest.raises(CommandError, match="--force") as error:
        undrain(annotations, user=user)
    assert told in str(error.value)
    assert undrain(annotations, user=user, force=True).annotations == {CORDON: None, REASON: None}


@pytest.mark.parametrize(
    ("by", "told"), [("NodeCordoned", "kubectl uncordon node-2"), ("ScaleIn", "replicas")]
)
def test_a_drain_of_the_operator_is_never_undone(by: str, told: str) -> None:
    """Its cause has to be taken back instead, also with --force."""
    with pytest.raises(CommandError) as error:
        undrain({CORDON: "true", BY: by}, force=True)
    assert told in str(error.value)


def test_a_drain_in_slurm_is_never_undone() -> None:
    """The command names its author and the way to undo it, also with --force."""
    with pytest.raises(CommandError, match="scontrol update nodename=workers-2 state=resume") as error:
        undrain({}, force=True, of=FOREIGN)
    assert "root" in str(error.value)
    change = undrain(MINE, of=FOREIGN)
    assert change.annotations == {CORDON: None, REASON: None}
    assert "scontrol" in change.message
