"""What is wrong after a run: jobs that were lost, writes at rest, objects that are left, memory that grew."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from faultlab.writes import stable_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faultlab.torture.submissions import Tally

# A cluster of this size needs about 70 MiB; the chart limits the operator to 1 GiB.
MEMORY_LIMIT: Final = 256.0
# Kinds that say nothing about an operator, or whose number is bounded by a limit of their own.
_LEFT_OUT: Final = ("endpoints/", "endpointslice", "event", "lease", "replicaset", "controllerrevision")
_HELM: Final = "secret/sh.helm.release."
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_FREQUENT: Final = frozenset({"leases", "events"})


@dataclass
class Facts:
    """What was found out about a run."""

    jobs: Tally
    rest_writes: list[str]
    before: Counter[str]
    after: Counter[str]
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the start, and the operator's resident memory in MiB."""
    unsettled: str = ""
    """What was still missing when the repair ended; empty if everything was as it should be."""

    @property
    def peak(self) -> float:
        """The largest memory of the operator, in MiB."""
        return max((size for _, size in self.memory), default=0.0)


def inventory(names: Iterable[str]) -> Counter[str]:
    """Count objects by kind and name (`kubectl get --output=name`), without hashes in generated names."""
    kept = (name for name in names if not name.startswith((*_LEFT_OUT, _HELM)))
    return Counter(
        "/".join((kind, stable_name(name))) for kind, _, name in (one.partition("/") for one in kept)
    )


def writes_of(audit: Iterable[str], user: str, since: str) -> list[str]:
    """Return the writes of a user since a time (RFC 3339), from the lines of the audit log."""
    found = []
    for line in audit:
        try:
            event = json.loads(line)
        except ValueError:
            # The last line may be half written.
            continue
        about = event.get("objectRef", {})
        if (
            event["user"].get("username") == user
            and event["verb"] in _WRITES
            and event["requestReceivedTimestamp"] > since
            and about.get("resource") not in _FREQUENT
            and not str(about.get("resource", "")).endswith("reviews")
        ):
            what = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
            found.append(f"{event['verb']} {what} {about.get('name', '')}".rstrip())
    return found


def problems(facts: Facts) -> list[str]:
    """Return what is wrong, most serious first."""
    found = [f"job {loss.job} was lost: {loss.why}" for loss in facts.jobs.lost]
    if facts.unsettled:
        found.append(f"not settled after the repair: {facts.unsettled}")
    if facts.jobs.unfinished:
        found.append(f"{facts.jobs.unfinished} jobs have not ended")
    if not facts.jobs.completed:
        found.append("no job has completed: the run shows nothing")
    found += [f"a write at rest: {write}" for write in facts.rest_writes]
    found += [f"left behind: {name}" for name in sorted((facts.after - facts.before).elements())]
    found += [f"missing: {name}" for name in sorted((facts.before - facts.after).elements())]
    if facts.peak > MEMORY_LIMIT:
        found.append(f"the operator used {facts.peak:.0f} MiB, more than {MEMORY_LIMIT:.0f} MiB")
    return found
