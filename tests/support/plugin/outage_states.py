"""States in which Slurm does not answer, or refuses to."""

from __future__ import annotations

from slurm_operator.status_rows import (
    AgeRow,
    BlockedCounts,
    BlockedRow,
    StateCounts,
)
from tests.support.plugin.sample_rows import (
    LISTS,
    ago,
    cluster,
    condition,
    jobs,
    nodeset,
    worker,
)
from tests.support.plugin.sample_state import State

UNREACHABLE = "slurmrestd does not respond: cannot verify that the node is idle"


def slurmrestd_down() -> State:
    """Return a scale-in while slurmrestd does not answer."""
    message = "cannot connect to slurm-restapi.slurm:6820: Connection refused"
    blocked = BlockedRow(
        action="delete",
        cause="ScaleIn",
        reason="SlurmUnreachable",
        message=UNREACHABLE,
        next=(
            "No action needed: the operator continues as soon as Slurm responds. "
            "If this lasts, check the pods, Service and NetworkPolicies of slurmrestd."
        ),
        since=ago(minutes=2),
    )
    unknown = {
        "known": "unknown",
        "unknown_reason": "SlurmUnreachable",
        "unknown_message": "Slurm does not answer",
        "state": (),
        "summary": "unknown",
        "jobs": (),
        "job_count": 0,
    }
    return State(
        clusters=(
            cluster(
                connected=False,
                reason="SlurmrestdUnreachable",
                message=message,
                failing_since=ago(minutes=2),
                slurmctld=(),
                uptime_seconds=None,
                views={"jobs": AgeRow(age=125.0), "nodes": AgeRow(age=124.0)},
            ),
        ),
        nodesets=(
            nodeset(
                replicas=2,
                desired=2,
                states={"unknown": 3},
                blocked=BlockedCounts(
                    total=1, by_reason={"SlurmUnreachable": 1}, oldest_since=ago(minutes=2)
                ),
                conditions=(
                    condition("Ready", "False", "Removing", "1 worker pending removal, 2 wanted"),
                    condition("Degraded", "True", "SlurmUnreachable", UNREACHABLE),
                ),
            ),
        ),
        workers=(
            worker(0, **unknown),
            worker(1, **unknown),
            worker(
                2,
                **{**unknown, "removal": "ScaleIn", "cordoned": True, "cordoned_by": "ScaleIn"},
                blocked=blocked,
            ),
        ),
        jobs=jobs(error=f"Slurm does not answer: {message}"),
        job=0,
    )


def wrong_token() -> State:
    """Return a Slurm that rejects the operator's token."""
    message = "Slurm rejects the token: put the output of scontrol token there"
    return State(
        clusters=(
            cluster(
                connected=False,
                reason="Refused",
                message=message,
                failing_since=ago(hours=1),
                slurmctld=(),
                uptime_seconds=None,
                views=dict.fromkeys(LISTS, AgeRow()),
                nodes=StateCounts(),
                jobs=StateCounts(),
            ),
        ),
        nodesets=(
            nodeset(
                states={"unknown": 3},
                conditions=(
                    condition("Ready", "True", "AllAvailable", "3 workers available"),
                    condition("Degraded", "True", "TokenRefused", message),
                ),
            ),
        ),
        workers=tuple(
            worker(
                number,
                known="unknown",
                state=(),
                summary="unknown",
                unknown_reason="TokenRefused",
                unknown_message=message,
            )
            for number in range(3)
        ),
        jobs=jobs(error=message),
        pod="workers-0",
        job=0,
    )
