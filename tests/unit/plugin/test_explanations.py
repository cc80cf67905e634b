from __future__ import annotations

from slurm_operator.plugin.explanations import explain_pod
from slurm_operator.status_rows import AgeRow
from tests.support.plugin.sample_rows import NOW, busy, cluster, nodeset


def test_jobs_of_a_stale_list_are_said_to_be_that() -> None:
    """The list of jobs may be old while that of nodes is fresh, such as when it is too long to be read."""
    views = {"nodes": AgeRow(age=1.0, stale=False), "jobs": AgeRow(age=900.0, stale=True)}
    told = "The operator's list of jobs is stale: 15m old"
    assert told in explain_pod(busy(0, 42), nodeset(), cluster(views=views), NOW).state
    fresh = {**views, "jobs": AgeRow(age=1.0, stale=False)}
    assert told not in explain_pod(busy(0, 42), nodeset(), cluster(views=fresh), NOW).state
    never = {**views, "jobs": AgeRow()}
    found = explain_pod(busy(0, 42), nodeset(), cluster(views=never), NOW)
    assert "The operator has not listed the jobs yet" in found.state
