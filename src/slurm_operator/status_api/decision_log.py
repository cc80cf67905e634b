"""What the operator decided, blocked and reported, remembered for a while; no I/O.

Three sources feed it: each plan of a NodeSet (its actions, and what it blocks), and every Event that any
controller records. An entry that repeats the newest one of its object only counts further. Memory is bounded:
so many entries for each object, and so many in all, the oldest going first. It is of this process alone.

Of each NodeSet also the last plan is kept, as far as it is shown: what is blocked and since when, what the
NodeSet waits for, and which pods are being removed.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide import actions as do
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.scale import pause_seconds
from slurm_operator.status_api.moments import moment
from slurm_operator.status_rows import DecisionRow, ObjectRef

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from slurm_operator.controllers.nodeset.decide.actions import Action, Blocked, Defer, RemovalCause
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.kube.decide.event_series import Occurrence
    from slurm_operator.kube.models.meta import Key

MOST_OF_ONE: Final = 50
MOST_IN_ALL: Final = 20_000
# Of one plan; a plan that creates thousands of pods must not take the event loop for long.
_MOST_OF_A_PLAN: Final = 1000
_NAMED: Final = 5


class Subject(NamedTuple):
    """The object of an entry."""

    kind: str
    namespace: str
    name: str


class Remark(NamedTuple):
    """What is remembered, without when."""

    type: str
    what: str
    why: str
    warning: bool = False


@dataclass(slots=True)
class _LogEntry:
    subject: Subject
    nodeset: str
    remark: Remark
    first: datetime
    last: datetime
    version: int
    count: int = 1


class LateNode(NamedTuple):
    """A node did not come up in time: so often in a row, and when the operator makes it usable again."""

    times: int
    resumed_at: datetime | None


@dataclass(frozen=True, slots=True)
class LastPlan:
    """What is shown of the last plan of a NodeSet."""

    blocked: Mapping[str, tuple[Blocked, datetime]] = field(default_factory=dict)
    """What is blocked, by the name of the pod, and since when."""
    waits: tuple[Defer, ...] = ()
    going: Mapping[str, RemovalCause] = field(default_factory=dict)
    """Why pods are being removed, by their UID."""
    same: frozenset[str] = frozenset()
    """The hashes of revisions that are current."""
    late: Mapping[str, LateNode] = field(default_factory=dict)
    """Nodes that did not come up in time, by their names in Slurm."""


NO_PLAN: Final = LastPlan()


class DecisionLog:
    """Remembers decisions; to be used from one event loop."""

    def __init__(
        self,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        most_of_one: int = MOST_OF_ONE,
        most_in_all: int = MOST_IN_ALL,
    ) -> None:
        self._clock = clock
        self._most_of_one = most_of_one
        self._most_in_all = most_in_all
        self._plans: dict[Key, LastPlan] = {}
        # In the order of their last occurrence; the key is the number of the entry.
        self._entries: OrderedDict[int, _LogEntry] = OrderedDict()
        self._of_subject: dict[Subject, deque[int]] = {}
        self._numbers = 0
        self.version = 0
        """Grows with every entry, and with every one that is counted further."""

    # --- reading

    def plan(self, key: Key) -> LastPlan:
        """Return what is known of the last plan of a NodeSet."""
        return self._plans.get(key, NO_PLAN)

    def of(self, subject: Subject) -> list[DecisionRow]:
        """Return the entries of one object, the newest first."""
        return [_row(self._entries[number]) for number in reversed(self._of_subject.get(subject, ()))]

    def newest(
        self,
        limit: int,
        namespaces: Container[str] | None = None,
        after: int = -1,
        wanted: Callable[[Subject], bool] = lambda _: True,
    ) -> list[DecisionRow]:
        """Return the newest entries, newest first: of these namespaces, and later than a version."""
        found = (
            entry
            for entry in self._later(after)
            if (namespaces is None or entry.subject.namespace in namespaces) and wanted(entry.subject)
        )
        return [_row(entry) for entry in islice(found, limit)]

    def _later(self, version: int) -> Iterator[_LogEntry]:
        for entry in reversed(self._entries.values()):
            if entry.version <= version:
                return
            yield entry

    def __len__(self) -> int:
        return len(self._entries)

    # --- writing

    def planned(self, seen: Observation, plan: Plan) -> None:
        """Take in a plan of a NodeSet."""
        now, key = self._clock(), seen.nodeset.key
        before = self.plan(key).blocked
        blocked: dict[str, tuple[Blocked, datetime]] = {}
        noted = 0
        for one in plan.blocked:
            if one.cause is None and one.pod in blocked:
                continue  # what is to be done with the whole pod counts more than its drain
            known = before.get(one.pod)
            lasts = (
                known is not None and known[0].cause == one.cause and known[0].wait.reason == one.wait.reason
            )
            blocked[one.pod] = (one, known[1] if lasts and known is not None else now)
            if (known is None or known[0] != one) and noted < _MOST_OF_A_PLAN:
                noted += 1
                remark = Remark("blocked", _blocked(one), f"{one.wait.reason}: {one.wait.message}")
                self._note(Subject("Pod", key.namespace, one.pod), key.name, remark, now)
        self._plans[key] = LastPlan(blocked, plan.waits, dict(plan.going), seen.revision.same, _late(seen))
        for subject, remark in _remarks(seen, plan):
            self._note(subject, key.name, remark, now)

    def forgotten(self, key: Key) -> None:
        """Drop the last plan of a NodeSet that is gone; what was decided about it stays."""
        self._plans.pop(key, None)

    def reported(self, occurrence: Occurrence) -> None:
        """Take in an Event."""
        about = occurrence.regarding
        subject = Subject(about.kind, about.namespace, about.name)
        nodeset = about.name if about.kind == "NodeSet" else ""
        remark = Remark("event", occurrence.reason, occurrence.note, occurrence.type == "Warning")
        self._note(subject, nodeset, remark, occurrence.time)
        related = occurrence.related
        if related is not None and related.kind == "Pod":
            self._note(Subject("Pod", related.namespace, related.name), nodeset, remark, occurrence.time)

    def _note(self, subject: Subject, nodeset: str, remark: Remark, now: datetime) -> None:
        self.version += 1
        numbers = self._of_subject.setdefault(subject, deque())
        if numbers and (last := self._entries[numbers[-1]]).remark == remark:
            last.last, last.version = now, self.version
            last.count += 1
            self._entries.move_to_end(numbers[-1])
            return
        self._numbers += 1
        numbers.append(self._numbers)
        self._entries[self._numbers] = _LogEntry(subject, nodeset, remark, now, now, self.version)
        if len(numbers) > self._most_of_one:
            del self._entries[numbers.popleft()]
        while len(self._entries) > self._most_in_all:
            number, oldest = self._entries.popitem(last=False)
            others = self._of_subject[oldest.subject]
            others.remove(number)
            if not others:
                del self._of_subject[oldest.subject]


def _late(seen: Observation) -> dict[str, LateNode]:
    found = {}
    for name, failed in seen.resumes.items():
        left = failed.at + pause_seconds(failed.times) - seen.now
        found[name] = LateNode(failed.times, moment(seen.wall + timedelta(seconds=left)))
    return found


def _row(entry: _LogEntry) -> DecisionRow:
    kind, namespace, name = entry.subject
    return DecisionRow(
        object=ObjectRef(kind=kind, namespace=namespace, name=name),
        nodeset=entry.nodeset,
        first=moment(entry.first),
        at=moment(entry.last),
        count=entry.count,
        type=entry.remark.type,
        what=entry.remark.what,
        why=entry.remark.why,
        warning=entry.remark.warning,
    )


# --- from a plan to words


def _blocked(one: Blocked) -> str:
    return "UndrainBlocked" if one.cause is None else f"{one.cause}Blocked"


def _remarks(seen: Observation, plan: Plan) -> Iterator[tuple[Subject, Remark]]:
    """Yield what a plan does, for the NodeSet as a whole and for each pod, without its conditions."""
    namespace, name = seen.where
    whole: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    of_pods: list[tuple[Subject, Remark]] = []
    pods: dict[str, str] | None = None
    for action in plan.actions:
        if isinstance(action, do.PatchPodStatus):
            continue
        if isinstance(action, _STATE_CHANGES):
            pods = pods or {worker.slurm_name: worker.name for worker in seen.workers}
            what, why = _state_change(action)
            for node in action.names:
                whole[what, why].append(node)
                if node in pods and len(of_pods) < _MOST_OF_A_PLAN:
                    of_pods.append((Subject("Pod", namespace, pods[node]), Remark("decision", what, why)))
            continue
        told = _of_pod(action, plan)
        if told is not None:
            pod, what, why = told
            whole[what, why].append(pod)
            if len(of_pods) < _MOST_OF_A_PLAN:
                of_pods.append((Subject("Pod", namespace, pod), Remark("decision", what, why)))
        elif (of_whole := _of_nodeset(action)) is not None:
            whole[of_whole].append("")
    for (what, why), names in whole.items():
        yield Subject("NodeSet", namespace, name), Remark("decision", what, _with_names(why, names))
    yield from of_pods


def _with_names(why: str, names: list[str]) -> str:
    shown = [name for name in names if name]
    if not shown:
        return why
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"{', '.join(shown[:_NAMED])}{more}: {why}"


_STATE_CHANGES: Final = (
    do.DrainNodes
    | do.UndrainNodes
    | do.ResumeNodes
    | do.ResumeCloudNodes
    | do.PowerUpNodes
    | do.CreateRecords
)


def _state_change(
    action: do.DrainNodes
    | do.UndrainNodes
    | do.ResumeNodes
    | do.ResumeCloudNodes
    | do.PowerUpNodes
    | do.CreateRecords,
) -> tuple[str, str]:
    if isinstance(action, do.ResumeCloudNodes):
        return "ResumeNode", "slurmctld took it down because it did not come up in time"
    if isinstance(action, do.PowerUpNodes):
        return "PowerUpNode", "fewer nodes are up than minReplicas"
    if isinstance(action, do.CreateRecords):
        return "CreateNodeRecord", "Slurm may power up so many workers"
    if isinstance(action, do.DrainNodes):
        return "DrainNode", action.reason
    if isinstance(action, do.UndrainNodes):
        return "UndrainNode", messages.UNDRAINING
    return "ResumeNode", "slurmd was started after the node went down"


def _of_pod(action: Action, plan: Plan) -> tuple[str, str, str] | None:
    """Return pod, action and reason."""
    match action:
        case do.CreatePod():
            return action.name, "CreatePod", f"the NodeSet should have {plan.desired} workers"
        case do.DeletePod():
            return action.name, "DeletePod", f"{action.cause}: {action.because}"
        case do.ReleasePod():
            return action.name, "UnprotectPod", "its Slurm node is drained, so Kubernetes may remove it"
        case do.RestoreClaims():
            return action.pod, "RestoreClaims", f"PVCs disappeared: {', '.join(action.names)}"
        case do.PatchPod():
            return _of_patch(action)
        case _:
            return None


def _of_patch(action: do.PatchPod) -> tuple[str, str, str] | None:
    if wellknown.ANNOTATION_POD_CORDON in action.annotations:
        if action.annotations[wellknown.ANNOTATION_POD_CORDON] is None:
            return action.name, "UncordonPod", "the cause of the cordon no longer exists"
        by = action.annotations.get(wellknown.ANNOTATION_POD_CORDON_BY) or "cordon"
        return action.name, "CordonPod", f"{by}: its Slurm node takes no new jobs"
    if wellknown.LABEL_POD_PROTECT in action.labels:
        if action.labels[wellknown.LABEL_POD_PROTECT] == wellknown.TRUE:
            return action.name, "ProtectPod", "jobs may run in it, so Kubernetes must not remove it"
        return action.name, "UnprotectPod", "Kubernetes may remove it"
    return None


def _of_nodeset(action: Action) -> tuple[str, str] | None:
    """Return action and reason of what concerns the NodeSet as a whole."""
    match action:
        case do.AddFinalizer() | do.RemoveFinalizer():
            return type(action).__name__, action.name
        case do.RecordExternal():
            return "RecordExternal", f"its Slurm is external: {str(action.external).lower()}"
        case do.DeleteRecord():
            return "DeleteNodeRecord", f"{action.name} is gone for good"
        case do.WriteReservation():
            return "WriteReservation", f"maintenance window {action.spec.name}"
        case do.DeleteReservation():
            return "DeleteReservation", f"maintenance window {action.name}"
        case _:
            return None
