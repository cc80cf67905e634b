"""What a new process says before Slurm has answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.shared import Condition, find_condition
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import DeletePod, PatchPodStatus
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.slurm_state import FIRST_ANSWER_SECONDS, steady
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model.answers import AnswerReason
from slurm_operator.slurm.model.view import ClusterView
from tests.support.simulation.kubernetes import SimPod, make_node, make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, drained_node, node

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.slurm.model.records import Node

DEGRADED = wellknown.CONDITION_DEGRADED
FINE = ("False", "AsExpected", messages.NO_PROBLEMS)
DOWN = ("True", "NodesDown", messages.nodes_down(1, "gpu-0"))
# Of the process that led before.
UNREACHABLE = ("True", "SlurmUnreachable", steady(AnswerReason.SLURM_UNREACHABLE))
JUST_STARTED = NOW - 1
NOT_ASKED: list[ClusterView | None] = [None, ClusterView()]


def says(*pods: SimPod, before: tuple[str, str, str] | None, **fields: Any) -> tuple[str, str, str]:
    """Return status, reason and message of `Degraded`, when the NodeSet says something else so far."""
    nodeset = make_nodeset(replicas=len(pods), finalizers=(wellknown.FINALIZER_DRAIN,))
    if before is not None:
        status, reason, message = before
        said = Condition(type=DEGRADED, status=status, reason=reason, message=message)
        nodeset = msgspec.structs.replace(
            nodeset, status=msgspec.structs.replace(nodeset.status, conditions=(said,))
        )
    seen = observe(*pods, nodeset=nodeset, **fields)
    found = find_condition(report(seen, plan(seen)).conditions, DEGRADED)
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.parametrize("before", [FINE, DOWN, UNREACHABLE], ids=lambda one: one[1])
@pytest.mark.parametrize("view", NOT_ASKED, ids=["no connection", "no answer"])
def test_a_restart_is_no_news(view: ClusterView | None, before: tuple[str, str, str]) -> None:
    """Until Slurm has had the time to answer, what was said of it before stays, word for word."""
    assert says(pod(0), before=before, view=view, since=JUST_STARTED) == before


@pytest.mark.parametrize("before", [FINE, DOWN, UNREACHABLE], ids=lambda one: one[1])
def test_a_new_connection_is_no_news(before: tuple[str, str, str]) -> None:
    """The same holds for a process that has led for long, and has replaced its connection."""
    view = ClusterView()
    assert says(pod(0), before=before, view=view, since=NOW - 1000, connected=NOW - 1) == before
    late = NOW - FIRST_ANSWER_SECONDS
    assert says(pod(0), before=before, view=view, since=NOW - 1000, connected=late)[0] == "True"


@pytest.mark.parametrize("view", NOT_ASKED, ids=["no connection", "no answer"])
def test_silence_becomes_news(view: ClusterView | None) -> None:
    """When Slurm has still not answered after that, it is reported, and a requeue is asked for in time."""
    assert says(pod(0), before=FINE, view=view, since=NOW - FIRST_ANSWER_SECONDS)[0] == "True"
    waiting = plan(observe(pod(0), view=view, since=JUST_STARTED)).requeue
    assert waiting is not None
    assert waiting <= FIRST_ANSWER_SECONDS


def test_an_answer_is_news_at_once() -> None:
    """Slurm's own word, be it that it cannot be reached, does not wait."""
    refused = ClusterView(failure=RestUnreachable("refused"))
    assert says(pod(0), before=FINE, view=refused, since=JUST_STARTED)[1] == "SlurmUnreachable"
    assert says(pod(0), before=FINE, slurm=(node("gpu-0", "DOWN"),), since=NOW - 2) == DOWN
    assert says(pod(0), before=UNREACHABLE, slurm=(node("gpu-0"),), since=NOW - 2) == FINE


def test_who_never_said_anything_says_what_is_so() -> None:
    """A NodeSet without a status is not called healthy by who cannot know."""
    assert says(pod(0), before=None, view=None, since=JUST_STARTED)[:2] == ("True", "NoConnection")


def test_what_needs_no_slurm_is_said_at_once() -> None:
    """A pod that has failed is seen without Slurm, and one that has recovered is not remembered."""
    failed = ("True", "PodsFailed", messages.pods_failed(1, "gpu-0"))
    assert says(pod(0, phase="Failed"), before=FINE, view=None, since=JUST_STARTED)[1] == "PodsFailed"
    assert says(pod(0), before=failed, view=None, since=JUST_STARTED) == FINE


def test_what_needs_no_slurm_does_not_hide_what_slurm_has_said() -> None:
    """Of two troubles that were told, the one that only Slurm can tell of stays beside the other."""
    pods = (pod(0), pod(1, phase="Failed", ready_since=None))
    both = says(*pods, before=None, slurm=(node("gpu-0", "DOWN"), node("gpu-1")))
    assert both[1] == "PodsFailed"
    assert DOWN[2] in both[2]
    assert says(*pods, before=both, view=None, since=JUST_STARTED) == both


# -------------------------------------------------------------------------------------- in the middle of work
SAFE = wellknown.POD_CONDITION_SAFE
SCALES_IN = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "ScaleIn"}
CORDONED = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "NodeCordoned"}
BUSY = node("gpu-1", "MIXED", "DRAIN", alloc=1, reason="slurm-operator: NodeSet (slurm/gpu) scales in")


class Story:
    """A NodeSet about which a process has said all there is to say, and then another one begins to lead."""

    def __init__(self, *pods: SimPod, slurm: tuple[Node, ...], replicas: int, **fields: Any) -> None:
        self.pods, self.fields = pods, fields
        self.nodeset = make_nodeset(replicas=replicas, finalizers=(wellknown.FINALIZER_DRAIN,))
        self.tell(self.seen(slurm=slurm))

    def seen(self, **fields: Any) -> Observation:
        return observe(*self.pods, nodeset=self.nodeset, **(self.fields | fields))

    def tell(self, seen: Observation) -> None:
        """Write the conditions that belong to what is seen."""
        decided = plan(seen)
        said = report(seen, decided).conditions
        status = msgspec.structs.replace(self.nodeset.status, conditions=said)
        self.nodeset = msgspec.structs.replace(self.nodeset, status=status)
        for action in decided.actions:
            if isinstance(action, PatchPodStatus):
                one = next(one for one in self.pods if one.uid == action.uid)
                one.conditions |= {new.type: new for new in action.set}

    def news(self, seen: Observation) -> tuple[set[str], set[str]]:
        """Return the pods and the conditions of the NodeSet about which something else would be written."""
        decided = plan(seen)
        pods = {action.name for action in decided.actions if isinstance(action, PatchPodStatus)}
        before, after = (
            {(one.type, one.status, one.reason, one.message) for one in some}
            for some in (self.nodeset.status.conditions, report(seen, decided).conditions)
        )
        return pods, {kind for kind, *_ in before ^ after}


def scale_in() -> Story:
    slurm = (node("gpu-0", "MIXED", alloc=1), BUSY)
    return Story(pod(0), pod(1, annotations=dict(SCALES_IN)), slurm=slurm, replicas=1)


def drained_by_somebody() -> Story:
    return Story(pod(0), slurm=(node("gpu-0", "IDLE", "DRAIN", reason="memtest by ann"),), replicas=1)


def cordoned() -> Story:
    """Return the story of a worker whose Kubernetes node was cordoned, and whose Slurm node is drained."""
    kube_node = make_node("node-0", cordoned=True)
    worker = pod(0, annotations=dict(CORDONED))
    return Story(worker, slurm=(drained_node("gpu-0"),), replicas=1, nodes={"node-0": kube_node})


@pytest.mark.parametrize("view", NOT_ASKED, ids=["no connection", "no answer"])
@pytest.mark.parametrize("told", [scale_in, drained_by_somebody, cordoned])
def test_a_restart_in_the_middle_says_nothing_new(
    told: Callable[[], Story], view: ClusterView | None
) -> None:
    """What is blocked, waited for and left alone keeps its words until Slurm has had the time to answer."""
    story = told()
    assert story.news(story.seen(view=view, since=JUST_STARTED)) == (set(), set())
    late = story.news(story.seen(view=view, since=NOW - FIRST_ANSWER_SECONDS))
    assert wellknown.CONDITION_DEGRADED in late[1]


@pytest.mark.parametrize(
    ("status", "reason", "word"),
    [
        ("False", "DrainPending", "DrainPending"),
        ("False", "JobsRunning", "JobsRunning"),
        ("False", "SaidByAnotherVersion", "NoConnection"),
        ("True", "Safe", "NoConnection"),
        ("True", "DrainPending", "NoConnection"),
    ],
)
def test_the_words_stay_and_so_does_the_hold(status: str, reason: str, word: str) -> None:
    """Whatever a pod was said to wait for, it is blocked; that it is safe is taken back at once."""
    story = scale_in()
    said = story.pods[1].conditions
    said[SAFE] = msgspec.structs.replace(said[SAFE], status=status, reason=reason)
    decided = plan(story.seen(view=None, since=JUST_STARTED))
    assert not any(isinstance(action, DeletePod) for action in decided.actions)
    assert [(one.pod, one.wait.reason.value) for one in decided.blocked] == [("gpu-1", word)]
    patches = [action for action in decided.actions if isinstance(action, PatchPodStatus)]
    told = [(one.status, one.reason) for patch in patches for one in patch.set]
    assert told == ([] if word == reason else [("False", word)])


def test_what_has_changed_meanwhile_is_said_at_once() -> None:
    """More pods are to be removed since: that needs no answer from Slurm, nor do their first messages."""
    story = scale_in()
    story.nodeset = msgspec.structs.replace(
        story.nodeset, spec=msgspec.structs.replace(story.nodeset.spec, replicas=0)
    )
    pods, kinds = story.news(story.seen(view=None, since=JUST_STARTED))
    assert pods == {"gpu-0"}
    assert wellknown.CONDITION_PROGRESSING in kinds


def test_the_first_answer_is_said_at_once() -> None:
    """As soon as Slurm has answered, its word counts."""
    story = scale_in()
    refused = ClusterView(failure=RestUnreachable("refused"))
    assert story.news(story.seen(view=refused, since=JUST_STARTED))[0] == {"gpu-1"}
