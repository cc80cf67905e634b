"""One run of one scenario: a fresh namespace, an operator, at most one fault, and what came of it."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from faultlab import slurm
from faultlab.clearing import clear
from faultlab.cluster import ApiError
from faultlab.director import Director
from faultlab.errors import FaultlabError, OutOfTimeError
from faultlab.process import Operator
from faultlab.proxy import serving
from faultlab.scenario import in_namespace, unmet
from faultlab.state import compare, normalise, normalise_slurm
from faultlab.writes import KUBERNETES, SLURM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from faultlab.cluster import Json, Lab, Resource
    from faultlab.faults import Fault
    from faultlab.kubelets import Kubelets
    from faultlab.scenario import Scenario
    from faultlab.writes import Write

_PAUSE, _LONGEST_PAUSE = 0.1, 0.5
_SETTLE: Final = 2.0
_LULL: Final = 0.5
# At the end of a run with a fault: the state is that of the reference already, so that less will do.
_REST: Final = 3.0
# How many times more than usual something may be created when the past is shown.
_REPEATED: Final = 2
# How much longer than the reference a run with a fault may take; a restart of the operator is part of it.
SLACK: Final = 90.0
# An operator that ends by itself so often is not waited for.
_ENDS: Final = 3
_REFUSALS: Final = (403, 409, 422, 429)


@dataclass(frozen=True)
class Bench:
    """What all runs need."""

    lab: Lab
    kubelets: Kubelets
    kinds: list[Resource]
    command: str
    logs: Path
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    """How many runs there may be at a time; most of a run is waiting."""
    patience: float = 1.0
    """How many times longer than usual everything may take, on a machine that has other work."""


@dataclass
class Reference:
    """What the runs without a fault say about a scenario."""

    state: Json
    ignored: frozenset[str]
    seconds: float
    writes: list[Write]
    families: frozenset[str]
    accepted: dict[str, tuple[int, int]]
    """By signature: how many creations and deletions were accepted, at least and at most."""
    heard: frozenset[str] = frozenset()
    """The kinds of which the operator was sent events."""


@dataclass
class Outcome:
    """What came of a run."""

    scenario: str
    source: str
    """How the scenario is named on the command line."""
    fault: Fault | None
    problems: list[str] = field(default_factory=list)
    reached: bool = True
    """Whether the fault happened."""
    seconds: float = 0.0
    """How long the scenario's own part took."""
    recovery: float = 0.0
    """How long after the crash the end was reached."""
    lives: int = 0
    log: str = ""
    state: Json = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    heard: frozenset[str] = frozenset()

    @property
    def verdict(self) -> str:
        """Return the result in one word."""
        if self.problems:
            return "failed"
        return "passed" if self.reached else "not reached"


class Run:
    """One run; `await Run(…).go()` is all that is needed."""

    def __init__(
        self, bench: Bench, scenario: Scenario, fault: Fault | None = None, reference: Reference | None = None
    ) -> None:
        self._bench = bench
        self._scenario = scenario
        self._reference = reference
        # Not longer than a namespace may be called, and short for names that are built from it.
        self._namespace = f"{scenario.name[:20].rstrip('-')}-{secrets.token_hex(3)}"
        self._outcome = Outcome(scenario.name, scenario.source, fault)
        self._slurm = slurm.Cluster()
        self._operator: Operator | None = None
        self._director = Director(self._namespace, self._kill, fault, leases=scenario.leases)

    def _kill(self) -> None:
        if self._operator is not None:
            self._operator.kill()

    async def go(self) -> Outcome:
        """Run the scenario when there is room for it, and return what came of it."""
        async with self._bench.room:
            return await self._go()

    async def _go(self) -> Outcome:
        outcome, log = self._outcome, self._bench.logs / f"{self._namespace}.log"
        outcome.log = str(log)
        log.touch()
        try:
            async with AsyncExitStack() as stack:
                await self._prepare(stack, log)
                await self._play()
        except FaultlabError as error:
            outcome.problems.append(str(error))
        finally:
            self._bench.kubelets.leave(self._namespace)
        await clear(self._bench.lab.kube, self._namespace, self._bench.kinds)
        outcome.writes = [write for write in self._director.writes if write.number]
        outcome.heard = frozenset(self._director.heard)
        outcome.reached = outcome.fault is None or self._director.hit
        if self._operator is not None:
            outcome.lives = self._operator.lives
            if self._operator.ends:
                outcome.problems.append(f"the operator ended by itself with {self._operator.ends}")
        outcome.problems += self._slurm.lost
        return outcome

    async def _prepare(self, stack: AsyncExitStack, log: Path) -> None:
        lab, name, director = self._bench.lab, self._namespace, self._director
        await lab.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self._slurm, url = await stack.enter_async_context(slurm.running())
        self._bench.kubelets.serve(name, self._slurm)
        kube = await stack.enter_async_context(
            serving(director, KUBERNETES, lab.box.server, trust=lab.trust, tls=lab.tls)
        )
        rest = await stack.enter_async_context(serving(director, SLURM, url))
        config = lab.kubeconfig(log.with_suffix(".kubeconfig"), kube, await lab.token(), name)
        stack.callback(config.unlink)
        words = " ".join([self._bench.command, *self._scenario.flags])
        command = words.replace("{namespace}", name).replace("{slurm}", rest)
        command = command.replace("{kubeconfig}", str(config))
        environment = {"KUBECONFIG": str(config), "PATH": os.environ.get("PATH", os.defpath)}
        self._operator = Operator(command, environment, log)
        await self._create_objects()
        await stack.enter_async_context(self._operator)

    async def _create_objects(self) -> None:
        uids: dict[str, str] = {}
        for item in self._scenario.objects:
            body = in_namespace(item, self._namespace)
            for owner in body["metadata"].get("ownerReferences", ()):
                owner["uid"] = uids[f"{owner['kind']}/{owner['name']}"]
            made = await self._bench.lab.kube.create(body, self._namespace)
            uids[f"{made['kind']}/{made['metadata']['name']}"] = made["metadata"]["uid"]
            if status := body.get("status"):
                await self._bench.lab.kube.patch(
                    body["kind"], self._namespace, body["metadata"]["name"], {"status": status}, "status"
                )

    async def _play(self) -> None:
        scenario, director = self._scenario, self._director
        if scenario.setup:
            for step in scenario.setup:
                await self._step(step)
            await self._settled(_SETTLE)
        director.begin(await self._bench.lab.kube.version())
        began = director.seconds()
        for step in scenario.steps:
            await self._step(step)
        for condition in scenario.end:
            await self._until(self._condition(condition), self._time())
        # What is right during the fault may be undone when it ends.
        await self._until(self._fault_lasts, self._time())
        if self._reference is None:
            await self._settled(scenario.quiet)
            self._outcome.state = await self._state()
            self._outcome.seconds = director.last_write - began
            return
        await self._same(self._reference)
        self._outcome.seconds = director.last_write - began
        self._outcome.recovery = (
            max(0.0, director.last_write - director.killed_at) if director.killed else 0.0
        )
        fault = self._outcome.fault
        if fault is not None and fault.shows_the_past:
            self._outcome.problems += wrong_in_the_present(self._reference, director.writes)
        else:
            self._outcome.problems += unexpected(self._reference, director.writes, director.hit)

    def _time(self) -> float:
        reference = self._reference
        usual = self._scenario.limit if reference is None else reference.seconds + SLACK
        return usual * self._bench.patience

    # --- the state

    async def _state(self) -> Json:
        objects = await self._bench.lab.kube.everything(self._namespace, self._bench.kinds)
        found = normalise(objects, self._namespace, self._scenario.ignore)
        return {**found, "Slurm": normalise_slurm(self._slurm.snapshot(), objects, self._namespace)}

    async def _same(self, reference: Reference) -> None:
        """Wait until the state is that of the reference and nothing is written any more."""
        left: dict[str, str] = {}

        async def same() -> str:
            nonlocal left
            if self._director.seconds() - self._director.last_write < _LULL:
                # Not worth reading everything yet.
                return f"a write just now: {self._last()}"
            left = await self._different(reference)
            if left:
                # The longer nothing is written, the less often everything is read again.
                await asyncio.sleep(min(5.0, (self._director.seconds() - self._director.last_write) / 5))
                return "; ".join(f"{path}: {text}" for path, text in left.items())
            await self._settled(_REST)
            left = await self._different(reference)
            return "the state changed again at rest" if left else ""

        await self._until(same, self._time(), pause=0.5)

    async def _different(self, reference: Reference) -> dict[str, str]:
        fault = self._outcome.fault
        history = fault is None or not fault.shows_the_past
        return compare(reference.state, await self._state(), reference.ignored, history=history)

    async def _fault_lasts(self) -> str:
        return "the fault lasts" if self._director.fault_lasts else ""

    async def _settled(self, seconds: float) -> None:
        async def quiet() -> str:
            director = self._director
            if director.seen_since is None:
                # One that is just being started is not at rest.
                return "the operator starts"
            since = director.seconds() - max(director.last_write, director.seen_since)
            return "" if since >= seconds else f"a write {since:.1f} s ago: {self._last()}"

        # Counted from now: what has not been written yet is waited for, too.
        await asyncio.sleep(min(seconds, 1.0))
        await self._until(quiet, self._time() + seconds)

    def _last(self) -> str:
        return next((write.point for write in reversed(self._director.writes) if write.number), "none")

    async def _until(
        self, question: Callable[[], Awaitable[str]], seconds: float, *, pause: float = _PAUSE
    ) -> None:
        """Ask until the answer is empty; it says what is still missing."""
        end = asyncio.get_running_loop().time() + seconds
        while missing := await question():
            if self._slurm.lost:
                # It has failed, whatever comes; the jobs are added to its problems.
                raise FaultlabError(f"not waited for, as a job was lost: {missing}")
            if self._operator is not None and len(self._operator.ends) >= _ENDS:
                raise FaultlabError(f"the operator does not stay up: {self._operator.tail()}")
            if asyncio.get_running_loop().time() > end:
                raise OutOfTimeError(f"not within {seconds:.0f} s: {missing}")
            await asyncio.sleep(pause)
            # Ten questions a second from each run would be what kube-apiserver is busy with most.
            pause = min(1.3 * pause, _LONGEST_PAUSE)

    # --- what a person does

    async def _step(self, step: Json) -> None:
        ((verb, given),) = in_namespace(step, self._namespace).items()
        kube, name = self._bench.lab.kube, self._namespace
        if verb == "create":
            await kube.create(given, name)
        elif verb == "patch":
            await kube.patch(given["kind"], name, given["name"], given["body"], given.get("subresource", ""))
        elif verb == "delete":
            await self._maybe(kube.delete(given["kind"], name, given["name"]), given)
        elif verb == "evict":
            await self._maybe(self._evict(given["pod"]), given)
        elif verb == "wait":
            await self._until(self._condition(given), self._time())
        elif verb == "settle":
            await self._settled(given)
        elif verb == "pause":
            await asyncio.sleep(given)
        else:
            self._slurm_step(verb, given)

    def _slurm_step(self, verb: str, given: Any) -> None:
        if verb == "job":
            self._slurm.start(given["name"], given["node"])
        elif verb == "end-job":
            self._slurm.finish(given)
        else:
            body = {"state": [given["state"]], **({"reason": given["reason"]} if "reason" in given else {})}
            self._slurm.update([given["node"]], body)

    async def _evict(self, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/eviction"
        await self._bench.lab.kube.request("POST", path, body)

    async def _maybe(self, request: Awaitable[None], given: Json) -> None:
        """Send a request that is to be refused, if the scenario says so."""
        try:
            await request
        except ApiError as error:
            if given.get("refused") and error.status in _REFUSALS:
                return
            raise
        if given.get("refused"):
            raise FaultlabError(f"{given} was accepted: it should have been refused")

    def _condition(self, condition: Json) -> Callable[[], Awaitable[str]]:
        wanted = in_namespace(condition, self._namespace)

        async def missing() -> str:
            if "node" in wanted:
                return self._unmet_node(wanted)
            kube = self._bench.lab.kube
            if "count" in wanted:
                path = (await kube.resource(wanted["kind"])).path(self._namespace)
                query = {
                    "labelSelector": ",".join(
                        f"{key}={value}" for key, value in wanted.get("labels", {}).items()
                    )
                }
                found = len((await kube.request("GET", path, query=query))["items"])
                return "" if found == wanted["count"] else f"{found} of {wanted}"
            return unmet(await kube.get(wanted["kind"], self._namespace, wanted["name"]), wanted)

        return missing

    def _unmet_node(self, wanted: Json) -> str:
        nodes, name = self._slurm.nodes, wanted["node"]
        if wanted.get("gone"):
            return f"Slurm still has node {name}" if name in nodes else ""
        if name not in nodes:
            return f"Slurm has no node {name}"
        state = {*nodes[name]["state"]}
        missing = {*wanted.get("state", ())} - state
        extra = {*wanted.get("not", ())} & state
        if empty := [key for key in wanted.get("set", ()) if not nodes[name][key]]:
            return f"Slurm node {name} has no {', '.join(empty)}"
        return f"Slurm node {name} is {','.join(sorted(state))}" if missing or extra else ""


def accepted_counts(writes: list[Write]) -> Counter[str]:
    """Count the creations and deletions that were accepted, of objects and of Slurm's nodes, by signature."""
    return Counter(
        signature
        for write in writes
        if write.counted and write.accepted
        for signature in write.made_or_deleted
    )


def wrong_in_the_present(reference: Reference, writes: list[Write]) -> list[str]:
    """Return what an operator that was shown the past must not have done.

    It does what was right then: it may create something once more and remove it when it sees the present.
    What it has not created more often it must not delete more often, and nothing again and again.
    """
    found = accepted_counts(writes)
    problems: list[str] = []
    for signature, count in found.items():
        usual = reference.accepted.get(signature, (0, 0))[1]
        created = signature.replace("DELETE", "POST", 1)
        undone = found[created] - reference.accepted.get(created, (0, 0))[1]
        allowed = max(0, undone) if signature.startswith("DELETE") else _REPEATED
        if count - usual > min(allowed, _REPEATED):
            problems.append(f"{signature} was accepted {count} times, in the reference {usual}")
    return problems


def unexpected(reference: Reference, writes: list[Write], hit: bool) -> list[str]:  # noqa: FBT001 - a fact
    """Return what was written in a run and has no place in one without a fault."""
    strange: dict[str, str] = {}
    applied: set[tuple[str, str]] = set()
    for write in writes:
        # The same apply once more changes nothing, also if another client has changed the object meanwhile.
        again = write.method == "PATCH" and (write.signature, write.body_hash) in applied
        if write.accepted:
            applied.add((write.signature, write.body_hash))
        if (
            write.counted
            and write.changed
            and not again
            and write.family not in reference.families
            and not write.follows_placement
        ):
            strange[write.family] = write.point
    problems = [f"unexpected write: {point}" for point in strange.values()]
    found = accepted_counts(writes)
    for signature in {**reference.accepted, **found}:
        least, most = reference.accepted.get(signature, (0, 0))
        if not least <= found[signature] <= most and hit:
            problems.append(f"{signature} was accepted {found[signature]} times, in the reference {least}")
    return problems
