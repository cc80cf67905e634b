"""Runs the commands: fetch views, explain, render, print."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from slurm_operator import __version__
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import ConfigError, Forbidden, KubeError, Unauthorized
from slurm_operator.plugin import rendering
from slurm_operator.plugin.exits import CommandError, ExitCode, ManagerUnavailable
from slurm_operator.plugin.explain_job import explain_job
from slurm_operator.plugin.explanations import explain_kubernetes_node, explain_nodeset, explain_pod
from slurm_operator.plugin.manager_api import ManagerApi, ViewerAccount
from slurm_operator.plugin.pod_proxy import PodProxy
from slurm_operator.plugin.text_tables import Palette
from slurm_operator.plugin.view_sources import ManagerSource
from slurm_operator.status_rows import JobReply, StatusRow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from slurm_operator.plugin.arguments import Options
    from slurm_operator.plugin.explanations import Explanation
    from slurm_operator.plugin.view_sources import ViewProvider
    from slurm_operator.status_rows import (
        ClusterJobs,
        ClusterRow,
        NodeSetRow,
        Overview,
        WorkerRow,
    )

T = TypeVar("T", bound=StatusRow)

USER_AGENT: Final = f"kubectl-slurm/{__version__}"
_WATCH_SECONDS: Final = 2.0
# Slurm has ten seconds to list its jobs.
_JOB_SECONDS: Final = 20.0
_CLEAR: Final = "\x1b[2J\x1b[H"


@dataclass(slots=True)
class CommandSession:
    """One run of the command: what was asked for, and the ways to answer it."""

    options: Options
    client: Client
    api: ManagerApi
    limited_because: str = ""
    """Why the manager cannot be asked, once that is known: one run does not try again."""

    @property
    def namespace(self) -> str:
        """Return the namespace to look at; empty for all."""
        if self.options.all_namespaces or (self.options.command == "doctor" and not self.options.namespace):
            return ""
        return self.options.namespace or self.client.config.namespace

    @property
    def place(self) -> str:
        """Return where was looked, for messages."""
        return f"namespace {self.namespace}" if self.namespace else "any namespace"

    async def view(self, ask: Callable[[ViewProvider], Awaitable[T]]) -> T:
        """Return a view from the manager, or a limited one from Kubernetes."""
        if not self.limited_because:
            try:
                return await ask(ManagerSource(self.api))
            except ManagerUnavailable as why:
                self.limited_because = str(why)
        from slurm_operator.plugin.limited_source import LimitedSource  # noqa: PLC0415 - loads every kind

        try:
            return await ask(LimitedSource(self.client, self.limited_because))
        except Forbidden as error:
            text = f"no permission: {error}; and {self.limited_because}"
            raise CommandError(text, ExitCode.FORBIDDEN) from None


def run(options: Options) -> int:
    """Run a command and return its exit code."""
    try:
        return asyncio.run(_run(options))
    except (Forbidden, Unauthorized) as error:
        raise CommandError(f"no permission: {error}", ExitCode.FORBIDDEN) from None
    except ConfigError as error:
        raise CommandError(str(error)) from None
    except KubeError as error:
        raise CommandError(str(error)) from None


async def _run(options: Options) -> int:
    config = load_config(options.kubeconfig, options.context)
    viewer = ViewerAccount(*options.viewer.split("/")) if options.viewer else None
    async with (
        Client(config, user_agent=USER_AGENT, timeout=10.0) as client,
        PodProxy(config, USER_AGENT) as proxy,
    ):
        api = ManagerApi(client, proxy, namespace=options.operator_namespace, viewer=viewer)
        session = CommandSession(options, client, api)
        if options.watch:
            return await _watch(session)
        if options.command in _VIEWS:
            sys.stdout.write(
                await _VIEWS[options.command](session, colours(os.environ, terminal=sys.stdout.isatty()))
            )
            return ExitCode.DONE
        return await _ACTIONS[options.command](session)


def colours(environment: Mapping[str, str], *, terminal: bool) -> Palette:
    """Return a palette that is on only on a terminal that wants colours (https://no-color.org)."""
    return Palette(terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb")


async def _watch(session: CommandSession) -> int:
    """Print a view again and again, each time that it has changed, until the user ends it."""
    palette = colours(os.environ, terminal=sys.stdout.isatty())
    before = ""
    while True:
        session.limited_because = ""
        text = await _VIEWS[session.options.command](session, palette)
        if text != before:
            sys.stdout.write(f"{_CLEAR}{text}" if sys.stdout.isatty() else f"{text}\n")
            sys.stdout.flush()
        before = text
        await asyncio.sleep(_WATCH_SECONDS)


def formatted(view: StatusRow, output: str) -> str:
    """Return a view as JSON or YAML."""
    plain = msgspec.to_builtins(view)
    if output == "yaml":
        import yaml  # noqa: PLC0415 - only where it is asked for

        text: str = yaml.safe_dump(plain, sort_keys=False)
        return text
    # Escaped beyond ASCII, so that no name can carry a control sequence to a terminal.
    return json.dumps(plain, indent=2) + "\n"


# ------------------------------------------------------------------------------------------------------ views


async def _status(session: CommandSession, palette: Palette) -> str:
    view = await session.view(lambda source: source.overview(session.namespace))
    if name := session.options.name:
        view = only_cluster(view, name)
        if not view.clusters:
            raise CommandError(
                f"no Slurm cluster (Controller) {name!r} in {session.place}", ExitCode.NOT_FOUND
            )
    if session.options.output in ("json", "yaml"):
        return formatted(view, session.options.output)
    text = rendering.render_status(view, palette, wide=session.options.output == "wide")
    if not view.clusters and not view.nodesets:
        text += f"No Slurm cluster in {session.place}."
        text += "" if session.options.all_namespaces else " Add -n NAMESPACE, or -A for all namespaces."
        text += "\n"
    return text.lstrip("\n")


def only_cluster(view: Overview, name: str) -> Overview:
    """Return what belongs to the clusters of one name."""
    clusters = tuple(one for one in view.clusters if one.name == name)
    places = {one.namespace for one in clusters}
    own = {
        (one.namespace, one.name) for one in view.nodesets if one.cluster == name and one.namespace in places
    }
    blocked = tuple(one for one in view.blocked if (one.namespace, one.nodeset) in own)
    nodesets = tuple(one for one in view.nodesets if (one.namespace, one.name) in own)
    # Of many blocked workers only some are sent; the NodeSets count all of theirs.
    total = max(len(blocked), sum(one.blocked.total for one in nodesets))
    return msgspec.structs.replace(
        view,
        clusters=clusters,
        nodesets=nodesets,
        blocked=blocked,
        blocked_total=total,
        decisions=tuple(
            one for one in view.decisions if (one.object.namespace, one.nodeset or one.object.name) in own
        ),
    )


async def _nodes(session: CommandSession, palette: Palette) -> str:
    options = session.options
    filters = {"nodeset": options.name} if options.name else {}
    filters |= {"blocked": "true"} if options.blocked else {}
    reply = await session.view(lambda source: source.workers(session.namespace, **filters))
    if options.name and not reply.items and not options.blocked:
        await _nodeset(session, options.name)
    if options.output in ("json", "yaml"):
        return formatted(reply, options.output)
    wide = options.output == "wide"
    return rendering.render_nodes(reply, palette, wide=wide, spaces=options.all_namespaces)


async def _jobs(session: CommandSession, palette: Palette) -> str:
    options = session.options
    query = {
        "namespace": session.namespace,
        "cluster": options.name,
        "user": options.user,
        "state": options.state.upper(),
        "partition": options.partition,
        "node": options.node,
    }
    reply = await _ask_jobs(session, query)
    if options.name and not reply.items:
        raise CommandError(
            f"no Slurm cluster (Controller) {options.name!r} in {session.place}", ExitCode.NOT_FOUND
        )
    if options.output in ("json", "yaml"):
        return formatted(reply, options.output)
    wide = options.output == "wide"
    return rendering.render_jobs(reply, palette, wide=wide, spaces=options.all_namespaces)


async def _ask_jobs(session: CommandSession, query: dict[str, str]) -> JobReply:
    wanted = {key: value for key, value in query.items() if value}
    try:
        return await session.api.get("jobs", wanted, JobReply, seconds=_JOB_SECONDS)
    except ManagerUnavailable as why:
        raise CommandError(f"jobs are known only to the operator: {why}", why.code) from None


async def _history(session: CommandSession, palette: Palette) -> str:
    options = session.options
    reply = await session.view(lambda source: source.history(session.namespace, options.kind, options.name))
    if options.output in ("json", "yaml"):
        return formatted(reply, options.output)
    return rendering.render_history(reply, palette, wide=options.output == "wide")


# ----------------------------------------------------------------------------------------------- explanations


async def _explain(session: CommandSession, palette: Palette) -> str:
    found = await _EXPLAIN[session.options.kind](session, session.options.name)
    # The operator may have failed after the first of several questions.
    found = msgspec.structs.replace(found, limited=session.limited_because)
    if session.options.output in ("json", "yaml"):
        return formatted(found, session.options.output)
    return rendering.render_explanation(found, palette)


async def _explain_pod(session: CommandSession, name: str) -> Explanation:
    reply = await session.view(lambda source: source.workers(session.namespace, pod=name))
    worker = _only(session, f"worker pod {name!r}", reply.items)
    nodesets, clusters = await _surroundings(session, worker.namespace)
    return explain_pod(
        worker,
        _named(nodesets, worker.namespace, worker.nodeset),
        _named(clusters, worker.namespace, worker.cluster),
        reply.at,
        reply.limited,
    )


async def _explain_nodeset(session: CommandSession, name: str) -> Explanation:
    nodeset = await _nodeset(session, name)
    place = nodeset.namespace
    reply = await session.view(lambda source: source.workers(place, nodeset=name))
    _, clusters = await _surroundings(session, place)
    return explain_nodeset(
        nodeset, reply.items, _named(clusters, place, nodeset.cluster), reply.at, reply.limited
    )


async def _explain_node(session: CommandSession, name: str) -> Explanation:
    """Explain a node of Slurm, or one of Kubernetes; Slurm's comes first if both have the name."""
    reply = await session.view(lambda source: source.workers(session.namespace, slurm_node=name))
    if reply.items:
        return await _explain_pod(session, _only(session, f"Slurm node {name!r}", reply.items).pod)
    reply = await session.view(lambda source: source.workers(session.namespace, kubernetes_node=name))
    if not reply.items:
        raise CommandError(
            f"no Slurm node and no Kubernetes node {name!r} with a worker in {session.place}",
            ExitCode.NOT_FOUND,
        )
    return explain_kubernetes_node(name, reply.items, reply.limited)


async def _explain_job(session: CommandSession, name: str) -> Explanation:
    reply = await _ask_jobs(session, {"namespace": session.namespace, "id": name})
    found = [(part, job) for part in reply.items for job in part.jobs]
    if not found:
        wrong = [part.error for part in reply.items if part.error]
        if wrong:
            raise CommandError(f"jobs are unknown: {wrong[0]}")
        raise CommandError(f"Slurm lists no job {name} in {session.place}", ExitCode.NOT_FOUND)
    if len({(part.namespace, part.cluster) for part, _ in found}) > 1:
        raise CommandError(f"{_several(f'job {name}', [part for part, _ in found])}")
    # The number of an array is that of all its tasks; the record with that very number comes first.
    part, job = next(((part, job) for part, job in found if job.id == int(name)), found[0])
    nodesets, clusters = await _surroundings(session, part.namespace)
    workers = await session.view(lambda source: source.workers(part.namespace))
    return explain_job(
        job,
        _named(clusters, part.namespace, part.cluster),
        [one for one in nodesets if one.cluster == part.cluster and one.namespace == part.namespace],
        [one for one in workers.items if one.cluster == part.cluster],
        reply.at,
    )


def _several(what: str, parts: list[ClusterJobs]) -> str:
    places = ", ".join(sorted({f"{one.namespace}/{one.cluster}" for one in parts}))
    return f"{what} is in several clusters ({places}): add -n"


async def _surroundings(
    session: CommandSession, namespace: str
) -> tuple[tuple[NodeSetRow, ...], tuple[ClusterRow, ...]]:
    view = await session.view(lambda source: source.overview(namespace))
    return view.nodesets, view.clusters


async def _nodeset(session: CommandSession, name: str) -> NodeSetRow:
    reply = await session.view(lambda source: source.nodesets(session.namespace))
    return _only(session, f"NodeSet {name!r}", [one for one in reply.items if one.name == name])


N = TypeVar("N", "NodeSetRow", "ClusterRow")
R = TypeVar("R", "NodeSetRow", "WorkerRow")


def _named(rows: tuple[N, ...], namespace: str, name: str) -> N | None:
    return next((one for one in rows if (one.namespace, one.name) == (namespace, name)), None)


def _only(session: CommandSession, what: str, found: tuple[R, ...] | list[R]) -> R:
    """Return the one that was found; none, or one of several namespaces, is an error."""
    if not found:
        raise CommandError(f"no {what} in {session.place}", ExitCode.NOT_FOUND)
    if len(found) > 1:
        places = ", ".join(sorted({one.namespace for one in found}))
        raise CommandError(f"{what} is not unique ({places}): add -n NAMESPACE")
    return found[0]


async def find_worker(session: CommandSession, name: str) -> WorkerRow:
    """Return the worker of a Slurm node or of a pod."""
    reply = await session.view(lambda source: source.workers(session.namespace, slurm_node=name))
    if not reply.items:
        reply = await session.view(lambda source: source.workers(session.namespace, pod=name))
    if reply.items:
        found = _only(session, f"worker {name!r}", reply.items)
        if found.without_pod:
            change = f"scontrol update nodename={found.slurm_node} state=drain reason=TEXT, or state=resume"
            raise CommandError(
                f"Slurm node {found.slurm_node} has no pod now ({found.power or 'its state is unknown'}): "
                f"drain and undrain it in Slurm, with {change}"
            )
        return found
    raise CommandError(
        f"no worker with the Slurm node or pod {name!r} in {session.place}", ExitCode.NOT_FOUND
    )


_EXPLAIN: Final = {
    "pod": _explain_pod,
    "nodeset": _explain_nodeset,
    "node": _explain_node,
    "job": _explain_job,
}
_VIEWS: Final = {
    "status": _status,
    "nodes": _nodes,
    "jobs": _jobs,
    "history": _history,
    "explain": _explain,
}


async def _drain(session: CommandSession) -> int:
    from slurm_operator.plugin.draining import drain  # noqa: PLC0415 - only where it is asked for

    return await drain(session, await find_worker(session, session.options.name))


async def _undrain(session: CommandSession) -> int:
    from slurm_operator.plugin.draining import undrain  # noqa: PLC0415 - only where it is asked for

    return await undrain(session, await find_worker(session, session.options.name))


async def _doctor(session: CommandSession) -> int:
    from slurm_operator.plugin.doctor import doctor  # noqa: PLC0415 - only where it is asked for

    return await doctor(session)


async def _dashboard(session: CommandSession) -> int:
    from slurm_operator.plugin.dashboard import dashboard  # noqa: PLC0415 - only where it is asked for

    return await dashboard(session)


_ACTIONS: Final = {"drain": _drain, "undrain": _undrain, "doctor": _doctor, "dashboard": _dashboard}
