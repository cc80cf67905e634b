"""What the status API and `kubectl slurm explain` say about the workers of a plan, compared with the plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from slurm_operator.plugin.explanations import explain_pod
from slurm_operator.status_api.decision_log import DecisionLog
from slurm_operator.status_api.worker_rows import WorkerFacts, facts_of, worker_row
from slurm_operator.status_rows import WorkerRow

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.plan import Plan


def explained(seen: Observation, decided: Plan) -> dict[str, WorkerRow]:
    """Return the rows of all workers of a plan, by pod."""
    log = DecisionLog(clock=lambda: seen.wall)
    log.planned(seen, decided)
    last = log.plan(seen.nodeset.key)
    rows = {}
    for worker in seen.workers:
        node, unknown = (
            (None, None) if seen.view is None else facts_of(seen.view.node(worker.slurm_name, seen.now))
        )
        facts = WorkerFacts(
            node=node,
            unknown=unknown,
            jobs=None if seen.view is None else seen.view.jobs.by_node.get(worker.slurm_name),
            blocked=last.blocked.get(worker.name),
            cause=last.going.get(worker.uid),
            current=worker.revision in last.same,
        )
        rows[worker.name] = worker_row(*seen.where, "slurm", worker, facts)
    return rows


def check_explained(seen: Observation, decided: Plan) -> None:
    """Fail unless every blocked pod, and no other, has the plan's own reason and message, and a next step."""
    if not decided.blocked and not decided.going:
        return
    rows = explained(seen, decided)
    causes = {worker.name: decided.going.get(worker.uid) for worker in seen.workers}
    for name, row in rows.items():
        theirs = [one for one in decided.blocked if one.pod == name]
        if not theirs:
            assert row.blocked is None, f"{name} is not blocked"
            continue
        assert row.blocked is not None, f"{name} is blocked by {theirs}"
        said = (row.blocked.cause, row.blocked.reason, row.blocked.message)
        assert said in {
            ("" if one.cause is None else one.cause.value, one.wait.reason.value, one.wait.message)
            for one in theirs
        }
        assert row.blocked.next, "a blocked pod has a next step"
        # What `kubectl slurm explain pod` makes of the row as it arrives there.
        told = explain_pod(
            msgspec.json.decode(msgspec.json.encode(row), type=WorkerRow), None, None, seen.wall
        )
        assert told.waits_for[0] == f"{row.blocked.reason}: {row.blocked.message}"
        assert told.next == (row.blocked.next,)
        cause = causes[name]
        assert row.removal == ("" if cause is None else cause.value)
        ends = seen.view.latest_end(row.slurm_node) if seen.view is not None else None
        assert row.jobs_end_known == (ends is None or row.jobs_end is not None)
        assert row.jobs_end is None or (ends is not None and math.isfinite(ends))
