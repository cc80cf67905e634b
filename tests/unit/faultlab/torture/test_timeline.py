from __future__ import annotations

import json
from collections import Counter

from faultlab.torture.assess import Facts, problems
from faultlab.torture.submissions import Loss, Tally
from faultlab.torture.timeline import Event, Sample, Story, page


def story(jobs: Tally) -> Story:
    facts = Facts(jobs, [], Counter(), Counter(), [(6.0, 71.4)])
    events = [
        Event(64.0, "freeze-slurmd", 12.0, "slurm-worker-demo-0"),
        Event(21.0, "scale", 0.0, "3 replicas"),
        Event(30.0, "evict", 0.0, "a | b\n  c", failed=True),
    ]
    samples = [Sample(18.0, 4, 2), Sample(60.0, 3, 0)]
    return Story(7, 5.0, "abc1234", "x86_64", facts, problems(facts), 420.0, 10, 1, events, samples)


def test_a_page_tells_result_figures_and_course() -> None:
    """The heading says whether it passed; the actions are in order of time."""
    text = page(story(Tally(completed=9)))
    assert text.startswith("# Torture, seed 7: passed\n")
    assert "`make torture MINUTES=5 SEED=7`" in text
    assert "| **lost** | **0** |" in text
    assert "| actions | 3, of which 2 were accepted |" in text
    course = text.partition("## Timeline")[2].strip().splitlines()[2:]
    assert course == [
        "| 00:21 | 4, 2 | scaled the NodeSet | 3 replicas |",
        "| 00:30 |  | evicted a worker | a / b c |",
        "| 01:04 | 3, 0 | stopped the slurmd of a worker with SIGSTOP, for 12 s | slurm-worker-demo-0 |",
    ]


def test_problems_come_first() -> None:
    """A run with a lost job has failed, and says why before anything else."""
    text = page(story(Tally(completed=9, lost=(Loss("12", "NODE_FAIL with 0:0 on demo-1"),))))
    assert text.startswith("# Torture, seed 7: FAILED: 1 problem\n")
    assert "- job 12 was lost: NODE_FAIL with 0:0 on demo-1" in text.partition("## What was done")[0]


def test_the_whole_story_is_json() -> None:
    """Everything can be written down and read again."""
    found = json.loads(json.dumps(story(Tally(completed=9)).to_json()))
    assert found["jobs"]["completed"] == 9
    assert len(found["events"]) == 3
