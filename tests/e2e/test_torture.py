"""A short torture run; `make torture` has long ones."""

from __future__ import annotations

import pytest

from faultlab.torture.session import run
from faultlab.torture.timeline import page
from tests.support.job_killed import JobKilled


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("kube_programs")
def test_no_job_is_lost_under_random_actions_and_faults() -> None:
    """Five minutes of administrator actions and faults lose no job, and leave a cluster at rest."""
    story = run(1, 5.0)
    if story.facts.jobs.lost:
        raise JobKilled("; ".join(story.problems))
    assert story.problems == [], page(story)
