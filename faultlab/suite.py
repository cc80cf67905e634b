"""The runs of a scenario: references without a fault, then one run for each fault, several at a time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Final

from faultlab import faults
from faultlab.errors import FaultlabError
from faultlab.faults import Fault
from faultlab.run import Outcome, Reference, Run, accepted_counts
from faultlab.state import unstable
from faultlab.writes import SLURM, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faultlab.run import Bench
    from faultlab.scenario import Scenario
    from faultlab.writes import Write

SUITES: Final = ("crash", "stale", "withheld", "errors", "none")
TURNS: Final = "turns"
"""Each write is crashed at in one of the ways, which take turns."""
_HELD_SECONDS: Final = 8.0
_ERRORS: Final = (409, 429, 500, 504)


async def reference(bench: Bench, scenario: Scenario) -> tuple[Reference, list[Outcome]]:
    """Run a scenario twice without a fault; what differs between the two is not compared later."""
    runs = [*await asyncio.gather(Run(bench, scenario).go(), Run(bench, scenario).go())]
    for run in runs:
        if run.problems:
            text = f"{scenario.name} fails without any fault: {'; '.join(run.problems)} (log: {run.log})"
            raise FaultlabError(text)
    one, other = runs
    counts = [accepted_counts(run.writes) for run in runs]
    signatures = {*counts[0], *counts[1]}
    return (
        Reference(
            one.state,
            unstable(one.state, other.state),
            max(one.seconds, other.seconds),
            [write for write in one.writes if write.counted],
            # What is said about a pod that drains depends on how long that takes.
            frozenset(
                write.family
                for run in runs
                for write in run.writes
                if write.counted or write.kind == "pods/status"
            ),
            {name: (min(had := [c[name] for c in counts]), max(had)) for name in signatures},
            frozenset[str]().union(*(run.heard for run in runs)),
        ),
        runs,
    )


def plan(suite: str, found: Reference, most: int, ways: Sequence[str] = faults.KILLS) -> list[Fault]:
    """Return the faults of a suite for a scenario; at most so many writes of each family are crashed at."""
    points = sample(_certain(found.writes), most)
    if suite == "crash" and [*ways] == [TURNS]:
        return [
            Fault(way, point=write.point) for write, way in zip(points, cycle(faults.KILLS), strict=False)
        ]
    if suite == "crash":
        return [Fault(way, point=write.point) for write in points for way in ways]
    # Only a kind of which something changes can be shown as it was.
    kinds = sorted(found.heard)
    if suite == "stale":
        deletions = [write for write in points if write.method == "DELETE"] or points[len(points) // 2 :][:1]
        at: list[Write | None] = [None, *deletions]
        return [
            Fault(faults.STALE, kind=kind, point=write.point if write else "", seconds=_HELD_SECONDS)
            for kind in kinds
            for write in at
        ]
    if suite == "withheld":
        held = [Fault(faults.WITHHOLD, kind=kind, seconds=_HELD_SECONDS) for kind in kinds]
        return [*held, Fault(faults.FROZEN_SLURM, server=SLURM, method="GET", seconds=_HELD_SECONDS)]
    if suite == "errors":
        kinds = sorted({write.kind.partition("/")[0] for write in found.writes if write.server != SLURM})
        at_writes = [Fault(do, point=write.point) for write in points for do in (faults.REFUSE, faults.LOSE)]
        return [*at_writes, *_errors(kinds)]
    return []


def _certain(writes: Sequence[Write]) -> list[Write]:
    """Leave out comments where pods are replaced: one follows only if a pod gets another node than before."""
    replaced = any(write.method == "DELETE" and write.kind == "pods" for write in writes)
    return [write for write in writes if not (replaced and write.follows_placement)]


def _errors(kinds: Sequence[str]) -> list[Fault]:
    bursts = [
        Fault(faults.ANSWER, status=status, times=20, method=way)
        for status in _ERRORS
        for way in ("PATCH", "POST")
    ]
    whole = [
        Fault(do, server=server)
        for do in (faults.DELAY, faults.RESET, faults.DRIP, faults.FREEZE)
        for server in ("kubernetes", SLURM)
    ]
    one = [Fault(faults.ANSWER, status=500, times=5, kind=kind) for kind in kinds]
    return [*bursts, *whole, *one, Fault(faults.ANSWER, status=500, server=SLURM)]


async def run_all(
    bench: Bench,
    scenario: Scenario,
    wanted: Sequence[Fault],
    found: Reference,
    tell: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run a scenario once for each fault, as many at a time as the bench has room for."""

    async def one(fault: Fault) -> Outcome:
        outcome = await Run(bench, scenario, fault, found).go()
        tell(outcome)
        return outcome

    return await asyncio.gather(*(one(replace(fault)) for fault in wanted))
