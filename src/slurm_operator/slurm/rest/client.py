"""The part of slurmrestd's API that this operator uses, typed.

A `RestClient` speaks to one server; every call either returns or raises one of `errors` within its deadline
(see `session`, `exchange` and `circuit_breaker` for how).

What callers must know about Slurm, seen on 24.11 and 26.05:

- `node` is stale for many seconds. Decide only from `nodes`.
- To a refused token `ping` shows every slurmctld as not responding, `ping(require=True)` finds out why.
- 24.11 answers a conditional question for nodes with a 500 if nodes have changed and partitions have not; it
  is asked again without the condition.
- Jobs that have not changed since come as an empty list with the time 0; `jobs` makes None of it.
- Jobs come with the cores that each uses unless `flags` says otherwise, which may be most of the reply.
- A bulk update that names a node that does not exist may have changed none, some or all of the others.
- 24.11 ends with a crash when it reads a malformed hostlist, slurmctld 26.05 when a node is to be created
  from a malformed line, and every release takes `ALL` for all nodes: all of that is checked here before it is
  sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, TypeVar
from urllib.parse import quote

import msgspec

from slurm_operator.slurm.decide.circuit_breaker import Breaker
from slurm_operator.slurm.decode.refusals import NO_SUCH_NODE, NO_SUCH_RESERVATION
from slurm_operator.slurm.decode.replies import (
    Envelope,
    JobDetails,
    JobsReply,
    JobStates,
    NodesReply,
    Partitions,
    Pings,
    Reservations,
    Statistics,
    moment,
)
from slurm_operator.slurm.errors import BadReply, ControllerDown
from slurm_operator.slurm.model import reply_limits
from slurm_operator.slurm.model.records import (
    Diag,
    JobDetail,
    JobList,
    JobStateList,
    Node,
    NodeList,
    NodeUpdate,
    NoVal,
    Ping,
    ReservationList,
    ReservationSpec,
    SlurmPartition,
)
from slurm_operator.slurm.model.slurm_address import (
    check_hostlist,
    check_name,
    check_node_conf,
    check_reservation_name,
    parse_url,
)
from slurm_operator.slurm.model.versions import Feature
from slurm_operator.slurm.rest.exchange import SlurmTransport
from slurm_operator.slurm.rest.reply_memory import SHARED
from slurm_operator.slurm.rest.session import CallInfo, RestTiming, Session, SlurmCall, TokenSource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType

    from slurm_operator.slurm.rest.reply_memory import ReplyMemory

__all__ = ["CallInfo", "RestClient", "RestTiming", "TokenSource", "parse_url"]

E = TypeVar("E", bound=Envelope)

_LONGEST_NAMES: Final = 80
# A time that no change can be newer than: the shortest question that slurmctld itself must answer.
_FAR_FUTURE: Final = 2**33
_LIMITS: Final[Mapping[type[Envelope], reply_limits.ReplyLimit]] = {
    NodesReply: reply_limits.NODES,
    JobsReply: reply_limits.JOBS,
    Reservations: reply_limits.RESERVATIONS,
}
# Jobs of all partitions, hidden ones included, without the cores that each of them uses.
_PATHS: Final = {"nodes": "nodes/", "jobs": "jobs/?flags=ALL", "reservations": "reservations/"}
# What a list of unchanged jobs says about its time; one without jobs has a time like any other.
_NEVER: Final = NoVal(set=True)


class RestClient:
    """A client of one slurmrestd; to be used from one event loop.

    What all clients share is shared between the namespaces that they are made for.
    """

    def __init__(
        self,
        url: str,
        token: TokenSource,
        *,
        ca: bytes | None = None,
        timing: RestTiming | None = None,
        concurrency: int = 4,
        observe: Callable[[CallInfo], None] | None = None,
        breaker: Breaker | None = None,
        namespace: str = "",
        room: ReplyMemory = SHARED,
    ) -> None:
        self.url = parse_url(url)
        self.namespace = namespace
        self.breaker = breaker or Breaker()
        timing = timing or RestTiming()
        self._transport = SlurmTransport(
            self.url, ca=ca, connect=timing.connect, keep_idle=timing.keep_idle, namespace=namespace
        )
        self._session = Session(
            self.url,
            token,
            self._transport,
            timing=timing,
            concurrency=concurrency,
            breaker=self.breaker,
            observe=observe,
            namespace=namespace,
            room=room,
        )

    @property
    def version(self) -> str | None:
        """Return the version of the API that was agreed on; None before the first answer."""
        return self._session.version

    @property
    def release(self) -> str:
        """Return the release of Slurm that the server says it is; empty before the first answer."""
        return self._session.release

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"RestClient({self.url})"

    async def close(self) -> None:
        """Close every connection; calls that are under way, and later ones, fail as `RestUnreachable`."""
        self._transport.close()
        # The sockets are closed in the next round of the loop.
        await asyncio.sleep(0)

    # --- asking

    async def ping(self, *, require: bool = False) -> tuple[Ping, ...]:
        """Return how each slurmctld answers slurmrestd; with `require`, raise unless one does."""
        pings = await self._ask(SlurmCall("ping", "ping/", "ping"), Pings)
        if require and not any(ping.responding for ping in pings.pings):
            # Only a question that slurmctld must answer tells whether it is down or refuses our token.
            path = f"reservations/?update_time={_FAR_FUTURE}"
            await self._session.ask(SlurmCall("ping", path, "ping"), Reservations)
            raise ControllerDown(f"{self._session.words('ping')}: no slurmctld responds to slurmrestd")
        return pings.pings

    async def nodes(self, since: int | None = None) -> NodeList | None:
        """Return all nodes, or None if nothing has changed since."""
        reply = await self._list("nodes", NodesReply, since)
        if reply is None:
            return None
        return NodeList(
            nodes=reply.nodes,
            last_update=self._time("nodes", reply),
            cluster=reply.meta.slurm.cluster,
        )

    async def jobs(self, since: int | None = None) -> JobList | None:
        """Return all jobs, or None if nothing has changed since."""
        reply = await self._list("jobs", JobsReply, since)
        if reply is None or (since is not None and _same_jobs(reply)):
            return None
        return JobList(
            jobs=reply.jobs, last_update=self._time("jobs", reply), cluster=reply.meta.slurm.cluster
        )

    async def job_states(self, numbers: Collection[int]) -> JobStateList:
        """Return which of these jobs may still hold nodes, and which are said to have ended."""
        if not numbers:
            raise ValueError("no job is asked about, and slurmrestd would report all")
        # A list with commas is refused, whatever the description of the API says.
        path = "jobs/state/?" + "&".join(f"job_id={number}" for number in numbers)
        call = SlurmCall("job_states", path, "read job states", limit=reply_limits.JOB_STATES.size)
        reply = await self._ask(call, JobStates)
        ended, others, unfinished = set[int](), set[int](), set[int]()
        # The number of an array brings all of its tasks, each with its own number.
        for job in reply.jobs:
            if job.number is None:
                raise BadReply(f"{self._session.words(call.what)}: a job has no number: {job.job_id[:20]!r}")
            (ended if job.ended else others).add(job.number)
            if not job.finished:
                unfinished.add(job.number)
        asked = frozenset(numbers)
        # Of a number that comes twice, all entries must say so.
        return JobStateList(
            unfinished=asked & unfinished, ended=asked & (ended - others), cluster=reply.meta.slurm.cluster
        )

    async def job_details(self) -> tuple[JobDetail, ...]:
        """Return all jobs with what is shown of them; for users, never to decide from."""
        call = SlurmCall("job_details", _PATHS["jobs"], "list job details", limit=reply_limits.JOBS.size)
        return (await self._ask(call, JobDetails)).jobs

    async def reservations(self, since: int | None = None) -> ReservationList | None:
        """Return all reservations, or None if nothing has changed since."""
        reply = await self._list("reservations", Reservations, since)
        if reply is None:
            return None
        return ReservationList(
            reservations=reply.reservations,
            last_update=self._time("reservations", reply),
            cluster=reply.meta.slurm.cluster,
        )

    async def node(self, name: str) -> Node:
        """Return one node as it was some time ago: good to look at, not to decide from."""
        path = f"node/{quote(check_name(name), safe='')}"
        # slurmrestd has no number for this one: "Failure to query node", error 0.
        absent = frozenset({0, NO_SUCH_NODE})
        reply = await self._ask(SlurmCall("node", path, f"read node {name}", absent=absent), NodesReply)
        for node in reply.nodes:
            if node.name == name:
                return node
        raise BadReply(f"{self._session.words(f'read node {name}')}: the answer is not about it")

    async def partitions(self) -> tuple[SlurmPartition, ...]:
        """Return all partitions."""
        size = reply_limits.PARTITIONS.size
        call = SlurmCall("partitions", "partitions/", "list partitions", limit=size)
        return (await self._ask(call, Partitions)).partitions

    async def diag(self) -> Diag:
        """Return what slurmctld says about itself."""
        call = SlurmCall("diag", "diag/", "read statistics", limit=reply_limits.STATISTICS.size)
        return (await self._ask(call, Statistics)).statistics

    # --- changing

    async def update_nodes(
        self, hostlist: str, update: NodeUpdate, wanted: Callable[[], bool] | None = None
    ) -> None:
        """Change nodes; after `Refused` any of them may have been changed, the next list tells.

        `wanted` is asked in the moment before it is sent; if it says no, nothing is, and `WithdrawnError` is
        raised.
        """
        check_hostlist(hostlist)
        await self._ask(
            SlurmCall(
                "update_nodes",
                "nodes/",
                f"update nodes {_short(hostlist)}",
                method="POST",
                body={"name": [hostlist], **msgspec.to_builtins(update)},
                write=True,
                feature=Feature.TOPOLOGY if update.topology_str is not None else None,
                absent=frozenset({NO_SUCH_NODE}),
                wanted=wanted,
            ),
            Envelope,
        )

    async def create_nodes(self, conf: str) -> None:
        """Create nodes from a line of slurm.conf, such as `NodeName=n[1-9] CPUs=2 State=CLOUD`."""
        check_node_conf(conf)
        await self._ask(
            SlurmCall(
                "create_nodes",
                "new/node/",
                f"create nodes {_short(conf)}",
                method="POST",
                body={"node_conf": conf},
                write=True,
                feature=Feature.CREATE_NODES,
            ),
            Envelope,
        )

    async def delete_node(self, name: str, wanted: Callable[[], bool] | None = None) -> None:
        """Delete the record of one node; `Refused` while it has work; `wanted` as of `update_nodes`."""
        await self._ask(
            SlurmCall(
                "delete_node",
                f"node/{quote(check_name(name), safe='')}",
                f"delete node {name}",
                method="DELETE",
                write=True,
                absent=frozenset({NO_SUCH_NODE}),
                wanted=wanted,
            ),
            Envelope,
        )

    async def create_reservation(self, spec: ReservationSpec) -> None:
        """Create a reservation, or change the one of that name: Slurm does not distinguish."""
        await self._reserve("create_reservation", "create", spec)

    async def update_reservation(self, spec: ReservationSpec) -> None:
        """Change a reservation; `NotFound` if there is none and the spec is not enough to create one."""
        absent = frozenset({NO_SUCH_RESERVATION}) if spec.start_time is None else frozenset[int]()
        await self._reserve("update_reservation", "update", spec, absent)

    async def delete_reservation(self, name: str) -> None:
        """Delete a reservation."""
        await self._ask(
            SlurmCall(
                "delete_reservation",
                f"reservation/{quote(check_reservation_name(name), safe='')}",
                f"delete reservation {name}",
                method="DELETE",
                write=True,
                feature=Feature.RESERVATIONS,
                absent=frozenset({NO_SUCH_RESERVATION}),
            ),
            Envelope,
        )

    async def reconfigure(self) -> None:
        """Have slurmctld read its configuration again."""
        # A GET that does something: it is sent like a write.
        await self._ask(SlurmCall("reconfigure", "reconfigure/", "reconfigure", write=True), Envelope)

    async def _reserve(
        self, operation: str, verb: str, spec: ReservationSpec, absent: frozenset[int] = frozenset()
    ) -> None:
        check_reservation_name(spec.name)
        if spec.node_list:
            check_hostlist(spec.node_list)
        await self._ask(
            SlurmCall(
                operation,
                "reservation",
                f"{verb} reservation {spec.name}",
                method="POST",
                body=spec.body(),
                write=True,
                feature=Feature.RESERVATIONS,
                absent=absent,
            ),
            Envelope,
        )

    # --- how

    async def _list(self, what: str, shape: type[E], since: int | None) -> E | None:
        path = _PATHS[what]
        call = SlurmCall(what, path, f"list {what}", limit=_LIMITS[shape].size)
        if since is None:
            return await self._ask(call, shape)
        conditional = f"{path}{'&' if '?' in path else '?'}update_time={since}"
        return await self._session.ask(replace(call, path=conditional, plain=path), shape)

    def _time(self, what: str, reply: NodesReply | JobsReply | Reservations) -> int:
        time = moment(reply.last_update)
        if time is None:
            raise BadReply(
                f"{self._session.words(f'list {what}')}: the list does not have the time of its last update"
            )
        return time

    async def _ask(self, call: SlurmCall, shape: type[E]) -> E:
        reply = await self._session.ask(call, shape)
        if reply is None:
            raise BadReply(f"{self._session.words(call.what)}: unchanged, to a request without a condition")
        return reply


def _same_jobs(reply: JobsReply) -> bool:
    """Return whether an answer says, in its own way, that no job has changed."""
    return not reply.jobs and reply.last_update == _NEVER and bool(reply.warnings)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAMES else f"{text[:_LONGEST_NAMES]}…"
