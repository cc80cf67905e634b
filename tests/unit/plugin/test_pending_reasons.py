from __future__ import annotations

import pytest

from slurm_operator.plugin.pending_reasons import REASONS, Topic, pending_reason


def test_at_least_thirty_reasons_have_a_sentence() -> None:
    """Each reason has a sentence about it and an advice, both whole sentences."""
    assert len(REASONS) >= 70
    for one in REASONS.values():
        assert one.meaning.endswith(".")
        assert one.advice.endswith((".", "`."))
        assert one.meaning[0].isupper()


@pytest.mark.parametrize(
    ("given", "topic"),
    [
        ("Resources", Topic.NODES),
        ("(Resources)", Topic.NODES),
        ("Priority", Topic.PRIORITY),
        ("ReqNodeNotAvail, UnavailableNodes:gpu-[0-1]", Topic.NODES),
        ("ReqNodeNotAvail, May be reserved for other job", Topic.WINDOW),
        ("ReqNodeNotAvail,_May_be_reserved_for_other_job", Topic.WINDOW),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            Topic.NODES,
        ),
        ("launch failed requeued held", Topic.ADMINISTRATOR),
        ("PartitionConfig", Topic.NODES),
        ("QOSMaxGRESPerUser", Topic.LIMIT),
        ("JobHeldUser", Topic.USER),
        ("None", Topic.SLURM),
    ],
)
def test_what_slurm_adds_to_a_code_does_not_hide_it(given: str, topic: Topic) -> None:
    """A reason is recognised as slurmctld writes it, with names behind it or spaces for underscores."""
    found = pending_reason(given)
    assert found is not None
    assert found.topic is topic


@pytest.mark.parametrize("given", ["", "SomethingNew", "ResourcesOfTomorrow", "Prioritys"])
def test_an_unknown_code_is_unknown(given: str) -> None:
    """A code that only begins like a known one is not taken for it."""
    assert pending_reason(given) is None
