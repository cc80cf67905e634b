"""What a person sees of the NodeSets of one namespace, in Kubernetes and in Slurm."""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.api.shared import find_condition
from slurm_operator.kube.errors import NotFound
from tests.support.job_killed import JobKilled
from tests.support.jobs.job_ledger import Ledger
from tests.support.jobs.slurmd_pods import Sighting, SlurmdPods
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kubebox.slurm import SlurmBox
    from slurm_operator.api.shared import Condition
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.kinds import Pod
    from tests.support.jobs.timings import Measured

# The machine may be busy with other things; a test that waits for so long has found a defect.
SECONDS = 180.0
# Asking Slurm starts a program each time.
_PAUSE = 0.2


class ObservedState:
    """The workers of one namespace and their Slurm."""

    def __init__(self, client: Client, namespace: str, slurm: SlurmBox) -> None:
        self.client = client
        self.namespace = namespace
        self.slurm = slurm
        self.workers = SlurmdPods(client, namespace, slurm)
        self._ledgers: list[Ledger] = []

    # ------------------------------------------------------------------------------------------------ at once

    async def get(self, name: str) -> NodeSet | None:
        """Return a NodeSet, or None."""
        try:
            return await self.client.get(NodeSet, name, self.namespace)
        except NotFound:
            return None

    async def condition(self, name: str, kind: str) -> Condition | None:
        """Return a condition of a NodeSet that exists."""
        live = await self.client.get(NodeSet, name, self.namespace)
        return find_condition(live.status.conditions, kind)

    def pods(self, name: str) -> dict[str, Pod]:
        """Return the pods of a NodeSet that are there and stay, by name."""
        return {pod: found for pod, found in self.workers.live(name).items() if not found.deleting}

    def uids(self, name: str) -> dict[str, str]:
        """Return the UIDs of these pods."""
        return {pod: found.metadata.uid for pod, found in self.pods(name).items()}

    def blocked_pods(self, name: str, reason: str) -> list[str]:
        """Return the pods of a NodeSet whose removal is blocked for a reason."""
        said = {pod: found.condition(wellknown.POD_CONDITION_SAFE) for pod, found in self.pods(name).items()}
        return [pod for pod, one in said.items() if one and one.status == "False" and one.reason == reason]

    def cordoned(self, pod: str) -> bool:
        """Return whether a pod has the mark of a cordon."""
        return self.workers.pod(pod).metadata.annotations.get(wellknown.ANNOTATION_POD_CORDON) == "true"

    def most_out(self, name: str, since: int) -> dict[str, str]:
        """Return the workers that were out of service at the worst moment since then, and why each was."""
        last: dict[str, Sighting] = {}
        worst: dict[str, str] = {}
        for index, seen in enumerate(self.workers.sightings):
            if seen.nodeset == name:
                last[seen.name] = seen
                out = {pod: f"{one.why} {one.uid[:4]}" for pod, one in last.items() if one.why}
                if index >= since and len(out) > len(worst):
                    worst = out
        return worst

    def outlived(self, pod: str, ledger: Ledger, job: int, measured: Measured, when: str) -> None:
        """Check that the deletion of a pod was asked for after its job had ended, and take down how long."""
        ended = ledger.ended(job)
        seen = [one for one in self.workers.sightings if one.name == pod and one.leaving]
        assert ended is not None, f"job {job} has ended"
        assert seen, f"{pod} goes"
        if seen[0].at < ended:
            raise JobKilled(f"{pod} was deleted while its job ran")
        measured.add(f"{when}: job end to deletion of the pod", seen[0].at - ended)
        gone = [one.at for one in seen if one.gone]
        assert gone, f"{pod} is gone"
        measured.add(f"{when}: job end to pod gone", gone[0] - ended)

    async def scontrol(self, *words: str) -> str:
        """Run scontrol as root."""
        return (await asyncio.to_thread(self.slurm.run, "scontrol", *words)).stdout

    async def node(self, name: str) -> tuple[set[str], str]:
        """Return the states of a Slurm node and the reason for them."""
        shown = await self.scontrol("show", "node", name)
        (states,) = re.findall(r"^ *State=(\S+)", shown, re.MULTILINE)
        reason = re.search(r"^ *Reason=(.*) \[[^]]*\]$", shown, re.MULTILINE)
        return {*states.replace("*", "+NOT_RESPONDING").split("+")}, reason[1] if reason else ""

    # ------------------------------------------------------------------------------------------------ in time

    async def settled(self, name: str, replicas: int) -> None:
        """Wait until a NodeSet says that it has what it wants, and every worker has its slurmd."""

        async def so() -> bool:
            live = await self.client.get(NodeSet, name, self.namespace)
            ready = find_condition(live.status.conditions, wellknown.CONDITION_READY)
            stay = self.pods(name)
            return (
                live.status.observed_generation == live.metadata.generation
                and ready is not None
                and ready.status == "True"
                and len(self.workers.live(name)) == len(stay) == replicas
                and all(map(self.workers.running, stay))
            )

        await self.until(so, f"{name} has settled with {replicas} workers", name)

    async def left(self, name: str, *pods: str) -> None:
        """Wait until exactly these pods of a NodeSet are left."""
        what = f"of {name} these are left: {', '.join(pods) or 'none'}"
        await self.until(lambda: {*self.workers.live(name)} == {*pods}, what, name)

    async def blocked(self, name: str, reason: str, pods: int) -> None:
        """Wait until exactly so many pods of a NodeSet report that their removal is blocked for a reason."""
        what = f"{pods} workers of {name} are blocked because of {reason}"
        await self.until(lambda: len(self.blocked_pods(name, reason)) == pods, what, name)

    async def seen_busy(self, *pods: str) -> None:
        """Wait until the operator has seen that jobs run on pods, and until when."""
        deadline = wellknown.ANNOTATION_POD_DEADLINE
        await self.until(
            lambda: all(deadline in self.workers.pod(pod).metadata.annotations for pod in pods),
            f"{', '.join(pods)} say until when their jobs run",
        )

    async def seen_draining(self, *pods: str) -> None:
        """Wait until the operator has seen that the nodes of pods drain."""
        kind = f"{wellknown.POD_CONDITION_PREFIX}Drain"
        await self.until(
            lambda: all(self.workers.pod(pod).condition(kind) is not None for pod in pods),
            f"{', '.join(pods)} say that they drain",
        )

    async def idle(self, nodes: Iterable[str]) -> None:
        """Wait until Slurm would start jobs on nodes."""
        wanted = [*nodes]

        async def so() -> bool:
            listed = await asyncio.to_thread(
                self.slurm.run,
                "sinfo",
                "--noheader",
                "--Node",
                f"--nodes={','.join(wanted)}",
                "--format=%N %T",
            )
            lines = [line.split() for line in listed.stdout.splitlines()]
            return len(lines) == len(wanted) and all(state == "idle" for _, state in lines)

        await self.until(so, f"{', '.join(wanted)} are idle in Slurm")

    async def drained(self, node: str, reason: str | None = None) -> None:
        """Wait until a Slurm node takes no new jobs, for a reason if that is given."""

        async def so() -> bool:
            states, said = await self.node(node)
            return "DRAIN" in states and reason in (None, said)

        await self.until(so, f"{node} drains because of {reason}")

    async def undrained(self, node: str) -> None:
        """Wait until a Slurm node takes jobs again."""

        async def so() -> bool:
            states, _ = await self.node(node)
            return "DRAIN" not in states and "DOWN" not in states

        await self.until(so, f"{node} takes jobs")

    async def until(self, question: Any, what: str, name: str = "", deadline: float = SECONDS) -> None:
        """Wait for something; if it does not come, say what is known about a NodeSet."""

        async def asked() -> Any:
            broken = self.broken()
            assert not broken, broken
            for ledger in self._ledgers:
                ledger.check()
            answer = question()
            answer = await answer if inspect.isawaitable(answer) else answer
            if not answer:
                await asyncio.sleep(_PAUSE)
            return answer

        try:
            await eventually(asked, what, deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self._describe(name)}") from None

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Keep accounts of jobs: meanwhile, whoever waits here fails as soon as one is disturbed."""
        with Ledger(self.slurm) as ledger:
            self._ledgers.append(ledger)
            try:
                yield ledger
            finally:
                self._ledgers.remove(ledger)

    def broken(self) -> str:
        """Say what is wrong with the harness itself, if anything is."""
        return f"the harness failed: {self.workers.failures}" if self.workers.failures else ""

    async def _describe(self, name: str) -> str:
        live = await self.get(name) if name else None
        found = live.status.conditions if live is not None else ()
        lines = [f"{one.type}={one.status} {one.reason}: {one.message}" for one in found]
        for pod in self.workers.live(name).values():
            said = [f"{one.type}={one.status} {one.reason}: {one.message}" for one in pod.status.conditions]
            marks = {key: value for key, value in pod.metadata.annotations.items() if "slinky" in key}
            lines.append(f"{pod.metadata.name} deleting={pod.deleting} {pod.status.phase} {marks} {said}")
        told = await asyncio.to_thread(self.slurm.run, "sinfo", "-N", "-o", "%N %T %E", check=False)
        return "\n".join([*lines, told.stdout])
