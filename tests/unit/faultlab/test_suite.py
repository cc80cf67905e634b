from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from faultlab import faults
from faultlab.faults import parse
from faultlab.report import Folder, Repetition, Section, repeat_command, table, to_json
from faultlab.run import Outcome, Reference, accepted_counts, unexpected, wrong_in_the_present
from faultlab.suite import plan
from faultlab.writes import Write

if TYPE_CHECKING:
    from pathlib import Path


def write(signature: str, number: int = 1, *, status: int = 200, changed: bool = True) -> Write:
    method, kind, name = signature.split(" ", 2)
    server = "slurm" if kind.startswith("slurm:") else "kubernetes"
    return Write(
        number, server, method, kind, name, 1, "", 0.0, 1, counted=True, status=status, changed=changed
    )


WRITES = [
    write("POST pods compute-0", 1),
    write("POST pods compute-1", 2),
    write("PATCH nodesets/status compute", 3),
    write("POST slurm:nodes compute-1 DRAIN", 4),
    write("DELETE pods compute-1", 5),
]
REFERENCE = Reference(
    {},
    frozenset(),
    2.0,
    WRITES,
    frozenset(one.family for one in WRITES),
    {"POST pods compute-0": (1, 1)},
    frozenset({"pods", "secrets"}),
)


def test_crashes_are_planned_in_three_ways_at_each_sampled_write() -> None:
    """Of the two creations one is taken, of the others each."""
    planned = plan("crash", REFERENCE, 1)
    assert len(planned) == 4 * len(faults.KILLS)
    assert planned[0].to_text() == "do=kill-before write='POST pods compute-0 #1'"
    assert len(plan("crash", REFERENCE, 0)) == len(WRITES) * len(faults.KILLS)


def test_no_crash_is_planned_at_a_comment_that_depends_on_where_a_pod_lands() -> None:
    """A replaced pod may return to its old node, and then none follows; a first one is certain."""
    comment = write("POST slurm:nodes compute-1 comment", 6)
    replaced = replace(REFERENCE, writes=[*WRITES, comment])
    assert not any(fault.point == comment.point for fault in plan("crash", replaced, 0))
    created = replace(REFERENCE, writes=[WRITES[0], comment])
    assert any(fault.point == comment.point for fault in plan("crash", created, 0))


def test_ways_may_take_turns() -> None:
    """Each sampled write is then crashed at once, in the next way."""
    assert [one.do for one in plan("crash", REFERENCE, 1, ["turns"])] == [*faults.KILLS, faults.KILLS[0]]


def test_stale_and_withheld_go_over_the_kinds_of_which_events_come() -> None:
    """Each such kind is stale at a restart, also right after a deletion, and withheld once."""
    stale = {(fault.kind, fault.point) for fault in plan("stale", REFERENCE, 1)}
    assert stale == {(kind, at) for kind in ("pods", "secrets") for at in ("", "DELETE pods compute-1 #1")}
    withheld = plan("withheld", REFERENCE, 1)
    assert [fault.do for fault in withheld] == [faults.WITHHOLD, faults.WITHHOLD, faults.FROZEN_SLURM]


def test_each_sampled_write_is_refused_once_and_its_answer_is_lost_once() -> None:
    """Without a crash, so that the process that gets the error must cope with it."""
    planned = plan("errors", REFERENCE, 1)
    for do in (faults.REFUSE, faults.LOSE):
        points = [fault.point for fault in planned if fault.do == do]
        assert points == [fault.point for fault in plan("crash", REFERENCE, 1, ["kill-before"])]


def test_every_planned_fault_can_be_given_back() -> None:
    """What is planned can be repeated from the command line."""
    for suite in ("crash", "stale", "withheld", "errors"):
        for fault in plan(suite, REFERENCE, 0):
            assert parse(fault.to_text()) == fault


def test_unexpected_writes() -> None:
    """A changed object of a new kind is unexpected; an apply that changes nothing is not."""
    assert unexpected(REFERENCE, [write("PATCH services x", changed=False), WRITES[0]], hit=True) == []
    assert unexpected(REFERENCE, [write("PATCH services x"), WRITES[0]], hit=True) == [
        "unexpected write: PATCH services x #1"
    ]
    again = [write("PATCH services x", changed=False), write("PATCH services x"), WRITES[0]]
    assert unexpected(REFERENCE, again, hit=True) == [], "another client has changed its status meanwhile"
    twice = [WRITES[0], WRITES[0]]
    assert unexpected(REFERENCE, twice, hit=True) == [
        "POST pods compute-0 was accepted 2 times, in the reference 1"
    ]
    assert accepted_counts([write("POST pods a", status=409)]) == {}


def test_what_was_right_in_the_past_may_be_done_and_undone() -> None:
    """A pod that was created once more may be deleted; others may not, and nothing again and again."""
    created, deleted = WRITES[0], write("DELETE pods compute-0")
    assert wrong_in_the_present(REFERENCE, [created, created, deleted]) == []
    assert wrong_in_the_present(REFERENCE, [created, deleted]) == [
        "DELETE pods compute-0 was accepted 1 times, in the reference 0"
    ]
    assert wrong_in_the_present(REFERENCE, [created, write("PATCH services x")]) == []
    assert wrong_in_the_present(REFERENCE, [created] * 4) == [
        "POST pods compute-0 was accepted 4 times, in the reference 1"
    ]


def test_a_comment_is_expected_wherever_the_scheduler_puts_a_pod() -> None:
    """It names the Kubernetes node; in the runs without a fault each pod may have returned to its old one."""
    assert unexpected(REFERENCE, [WRITES[0], write("POST slurm:nodes compute-1 comment")], hit=True) == []
    resumed = write("POST slurm:nodes compute-1 RESUME")
    assert unexpected(REFERENCE, [WRITES[0], resumed], hit=True) == [
        "unexpected write: POST slurm:nodes compute-1 RESUME #1"
    ]


def test_the_repeat_command_is_one_line_that_a_shell_reads() -> None:
    """It names scenario, arguments and fault."""
    fault = plan("crash", REFERENCE, 1)[0]
    outcome = Outcome("scale-out", "scale-out", fault, ["wrong"])
    command = repeat_command(outcome, Repetition("python -m faultlab run", ["--operator", "o --x={slurm}"]))
    words = shlex.split(command)
    assert words[:5] == ["python", "-m", "faultlab", "run", "scale-out"]
    assert words[5:7] == ["--operator", "o --x={slurm}"]
    assert parse(words[-1]) == fault


def test_the_table_counts_the_verdicts() -> None:
    """A fault that never happened is not counted as passed."""
    outcomes = [
        Outcome("s", "s", None),
        Outcome("s", "s", None, ["wrong"]),
        Outcome("s", "s", None, reached=False),
    ]
    row = table([to_json(Section("s", "crash", REFERENCE, outcomes), Repetition(""))]).splitlines()[1].split()
    assert row == ["s", "crash", "5", "3", "1", "1", "1", "2.0", "0.0"]


def test_a_section_is_kept_for_the_same_run_only(tmp_path: Path) -> None:
    """Not for another version or another sample, and never without a version."""
    section = to_json(Section("s", "crash", REFERENCE, [Outcome("s", "s", None)]), Repetition(""))
    same = {"version": "abc", "sample": 1}
    Folder(tmp_path, same).save(section)
    assert Folder(tmp_path, {**same}).find("s", "crash") == section
    assert Folder(tmp_path, same).find("s", "stale") is None
    for other in ({**same, "version": "abd"}, {**same, "sample": 2}):
        assert Folder(tmp_path, other).find("s", "crash") is None
    Folder(tmp_path, {**same, "version": ""}).save(section)
    assert Folder(tmp_path, {**same, "version": ""}).find("s", "crash") is None
    Folder(None, same).save(section)
    assert Folder(None, same).find("s", "crash") is None
    (tmp_path / "s-stale.json").write_text('{"half": ')
    assert Folder(tmp_path, same).find("s", "stale") is None


def test_records_of_slurm_nodes_are_counted_by_node() -> None:
    """However the requests are divided: created once in one request for two nodes, or in one for each."""
    together = [write("POST slurm:new/node NodeName=compute-[0-1] CPUs=4 State=CLOUD")]
    apart = [write(f"POST slurm:new/node NodeName=compute-{number} CPUs=4") for number in (0, 1)]
    assert accepted_counts(together) == accepted_counts(apart)
    assert accepted_counts(apart) == {"POST slurm:node compute-0": 1, "POST slurm:node compute-1": 1}
    deleted = accepted_counts(
        [write("DELETE slurm:node compute-0"), write("POST slurm:nodes compute-1 DRAIN")]
    )
    assert deleted == {"DELETE slurm:node compute-0": 1}
    reference = replace(REFERENCE, accepted={"POST slurm:node compute-0": (1, 1)})
    assert unexpected(reference, [apart[0], apart[0]], hit=True)[-1:] == [
        "POST slurm:node compute-0 was accepted 2 times, in the reference 1"
    ]
