"""Text for views and explanations, as a terminal shows it: `render(view) -> text`; pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from slurm_operator.plugin.text_tables import (
    PLAIN,
    Cell,
    age,
    counted,
    duration,
    indented,
    listed,
    shortened,
    table,
    visible,
)
from slurm_operator.status_rows import find

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from slurm_operator.plugin.explanations import Explanation
    from slurm_operator.plugin.text_tables import Palette
    from slurm_operator.status_rows import (
        AgeRow,
        ClusterRow,
        HistoryReply,
        JobReply,
        JobRow,
        NodeSetRow,
        Overview,
        StateCounts,
        WorkerReply,
        WorkerRow,
    )

_MESSAGE: Final = 100
_JOB_NAME: Final = 24
_SHOWN_BLOCKED: Final = 10
_SHOWN_DECISIONS: Final = 5
_SHOWN_JOBS: Final = 3
_COLOURS: Final = {
    "idle": "green",
    "busy": "cyan",
    "draining": "yellow",
    "drained": "yellow",
    "powered-down": "dim",
    "starting": "yellow",
    "terminating": "yellow",
    "down": "red",
    "unknown": "red",
}


def render_status(view: Overview, palette: Palette = PLAIN, *, wide: bool = False) -> str:
    """Return control plane, NodeSets, nodes, jobs and what is blocked, on one screen."""
    lines = _limited(view.limited, palette)
    for number, cluster in enumerate(view.clusters):
        lines += ([""] if number or lines else []) + _cluster(cluster, view, palette, wide=wide)
    loose = [one for one in view.nodesets if not any(_of(one, cluster) for cluster in view.clusters)]
    if loose:
        lines += ["", *_nodesets(loose, view.at, palette, wide=wide)]
    if view.blocked:
        lines += ["", *_blocked(view, palette, wide=wide)]
    if view.decisions:
        lines += ["", *_decisions(view)]
    return _text(lines)


def _limited(why: str, palette: Palette) -> list[str]:
    if not why:
        return []
    told = "Limited view, from conditions and Events only"
    return [palette.paint(f"{told}: {visible(why)}", "yellow")]


def _of(nodeset: NodeSetRow, cluster: ClusterRow) -> bool:
    return (nodeset.namespace, nodeset.cluster) == (cluster.namespace, cluster.name)


def _cluster(cluster: ClusterRow, view: Overview, palette: Palette, *, wide: bool) -> list[str]:
    name = f"{cluster.namespace}/{cluster.name}"
    extra = (
        f" ({cluster.cluster_name})" if cluster.cluster_name and cluster.cluster_name != cluster.name else ""
    )
    lines = [palette.paint(visible(f"Slurm cluster {name}{extra}"), "bold")]
    rows = [("connection", _connection(cluster, view.at, palette))]
    if control := _control_plane(cluster, palette):
        rows.append(("slurmctld", control))
    if cluster.suspicion:
        rows.append(("node list", palette.paint(f"not trusted: {visible(cluster.suspicion)}", "yellow")))
    if stale := [name for name, one in sorted(cluster.views.items()) if one.stale]:
        rows.append(("lists", palette.paint(f"stale: {', '.join(stale)}", "yellow")))
    if wide and (ages := _ages(cluster)):
        rows.append(("list ages", ages))
    if cluster.nodes.total or not view.limited:
        rows.append(("nodes", _tally(cluster.nodes, cluster.views.get("nodes"))))
    if not view.limited:
        rows.append(("jobs", _tally(cluster.jobs, cluster.views.get("jobs"))))
    rows += [(kind, palette.paint(text, "red")) for kind, text in _wrong(cluster)]
    width = max(len(label) for label, _ in rows)
    lines += [f"  {label.ljust(width)}  {text}" for label, text in rows]
    own = [one for one in view.nodesets if _of(one, cluster)]
    if own:
        lines += ["", *_nodesets(own, view.at, palette, wide=wide)]
    else:
        lines += ["", "  No NodeSet belongs to this cluster."]
    return lines


def _tally(found: StateCounts, listing: AgeRow | None) -> str:
    """Return a count by state, and how old it is if the list is stale; without any list it is unknown."""
    text = f"{found.total}{_in_brackets(listed(found.by_state))}"
    if listing is None or not (listing.stale or listing.age is None):
        return text
    return "unknown" if listing.age is None else f"{text}, {duration(listing.age)} ago"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _connection(cluster: ClusterRow, now: datetime | None, palette: Palette) -> str:
    if cluster.connected:
        version = f"Slurm {cluster.slurm_version}" if cluster.slurm_version else ""
        api = f"API {cluster.api_version}" if cluster.api_version else ""
        via = f"via {cluster.via}" if cluster.via else ""
        parts = [one for one in (version, api, cluster.server, via) if one]
        told = f"{palette.paint('connected', 'green')}"
        return f"{told}, {visible(', '.join(parts))}" if parts else told
    old = age(cluster.failing_since, now)
    word = palette.paint("not connected", "red") + (f" for {old}" if old else "")
    return f"{word} ({visible(cluster.reason) or 'no reason'}): {visible(cluster.message)}"


def _control_plane(cluster: ClusterRow, palette: Palette) -> str:
    parts = []
    for one in cluster.slurmctld:
        role = "primary" if one.primary else "standby"
        word = "responding" if one.responding else palette.paint("not responding", "red")
        parts.append(f"{visible(one.host)} {role} {word}")
    if cluster.uptime_seconds is not None:
        parts.append(f"up {duration(cluster.uptime_seconds)}")
    if cluster.external:
        parts.append("external")
    return ", ".join(parts)


def _ages(cluster: ClusterRow) -> str:
    return ", ".join(
        f"{name} {'never' if one.age is None else duration(one.age)}"
        for name, one in sorted(cluster.views.items())
    )


def _wrong(cluster: ClusterRow) -> list[tuple[str, str]]:
    """Return conditions of the Controller that need attention; that of the connection is shown already."""
    found = []
    for kind, bad in (("Ready", "False"), ("Degraded", "True"), ("Stalled", "True")):
        one = find(cluster.conditions, kind)
        if one is not None and one.status == bad:
            found.append(
                (kind.lower() if bad == "True" else "not ready", f"{one.reason}: {visible(one.message)}")
            )
    configured = find(cluster.conditions, "Configured")
    if configured is not None and configured.reason == "CorrectionsPending":
        found.append(("configured", f"{configured.reason}: {visible(configured.message)}"))
    return found


def _nodesets(rows: Iterable[NodeSetRow], now: datetime | None, palette: Palette, *, wide: bool) -> list[str]:
    head = ["NODESET", "DESIRED", "PODS", "READY", "UPDATED", "NODES", "BLOCKED", "HEALTH", "AGE"]
    head += ["CLUSTER", "MODE", "STRATEGY", "PROTECTED"] if wide else []
    body: list[list[str | Cell]] = []
    notes = []
    for one in rows:
        health, colour, note = _health(one)
        blocked = Cell(listed(one.blocked.by_reason), "yellow" if one.blocked.total else "")
        row: list[str | Cell] = [one.name, str(one.desired), str(one.pods), str(one.ready), str(one.updated)]
        row += [listed(one.states), blocked, Cell(health, colour), age(one.created_at, now)]
        row += [one.cluster, one.mode, one.update_strategy, str(one.protected)] if wide else []
        body.append(row)
        notes += [f"{one.name}: {text}" for text in note]
    return indented([*table(head, body, palette), *(shortened(note, 2 * _MESSAGE) for note in notes)])


def _health(one: NodeSetRow) -> tuple[str, str, list[str]]:
    """Return a word for a NodeSet, its colour, and the sentences that belong to it."""
    degraded = find(one.conditions, "Degraded")
    ready = find(one.conditions, "Ready")
    window = find(one.conditions, "ReservationCreated")
    notes = [f"{wait.reason}: {wait.message}" for wait in one.waits]
    if window is not None and window.status == "True":
        notes.append(window.message)
    if one.deleting:
        return "Deleting", "yellow", notes
    if degraded is not None and degraded.status == "True":
        if not any(degraded.message in note for note in notes):
            notes.insert(0, f"{degraded.reason}: {degraded.message}")
        return degraded.reason, "red", notes
    if ready is not None and ready.status != "True":
        return ready.reason, "yellow", notes
    return ("Ready", "green", notes) if ready is not None else ("Unknown", "red", notes)


def _blocked(view: Overview, palette: Palette, *, wide: bool) -> list[str]:
    rows: list[list[str | Cell]] = []
    limit = len(view.blocked) if wide else _SHOWN_BLOCKED
    for one in view.blocked[:limit]:
        if one.blocked is not None:
            message = one.blocked.message if wide else shortened(one.blocked.message, _MESSAGE)
            rows.append(
                [
                    f"{one.namespace}/{one.pod}",
                    one.blocked.action + _in_brackets(one.blocked.cause or ""),
                    Cell(one.blocked.reason, "yellow"),
                    age(one.blocked.since, view.at),
                    message,
                ]
            )
    lines = [palette.paint(f"Blocked: {counted(view.blocked_total, 'worker')}", "bold")]
    lines += indented(table(["POD", "ACTION", "REASON", "SINCE", "MESSAGE"], rows, palette))
    if view.blocked_total > len(rows):
        lines.append(f"  and {view.blocked_total - len(rows)} more: kubectl slurm nodes --blocked")
    first = view.blocked[0]
    lines.append(f"  More: kubectl slurm explain pod {first.pod} -n {first.namespace}")
    return lines


def _decisions(view: Overview) -> list[str]:
    lines = ["Last decisions"]
    for one in view.decisions[:_SHOWN_DECISIONS]:
        times = f" (x{one.count})" if one.count > 1 else ""
        text = f"{age(one.at, view.at) or '-'} ago  {one.object.kind} {one.object.name}  {one.what}{times}"
        lines.append(f"  {visible(text)}: {shortened(one.why, _MESSAGE)}")
    return lines


# ----------------------------------------------------------------------------------------------------- tables


def render_nodes(
    reply: WorkerReply, palette: Palette = PLAIN, *, wide: bool = False, spaces: bool = False
) -> str:
    """Return workers, one a line: Slurm node, state, pod, Kubernetes node, jobs and what is blocked."""
    head = ["NODE", "STATE", "JOBS", "POD", "KUBERNETES NODE", "BLOCKED", "AGE"]
    head = (["NAMESPACE"] if spaces else []) + head
    head += ["NODESET", "PARTITIONS", "JOBS END", "PROTECTED", "REASON"] if wide else []
    rows: list[list[str | Cell]] = []
    for one in reply.items:
        row: list[str | Cell] = [one.namespace] if spaces else []
        row += [one.slurm_node, Cell(_state(one), _COLOURS.get(one.summary, "")), _jobs(one)]
        row.append("" if one.without_pod else one.pod)
        row += [one.kubernetes_node, Cell(_obstacle(one), "yellow"), age(one.created_at, reply.at)]
        if wide:
            end = age(reply.at, one.jobs_end) if one.jobs_end_known and one.jobs_end else ""
            row += [one.nodeset, ",".join(one.partitions), end, _protected(one)]
            row.append(one.problem or one.state_reason)
        rows.append(row)
    lines = _limited(reply.limited, palette)
    return _text([*lines, *table(head, rows, palette)] if rows else [*lines, "No workers found."])


def _protected(one: WorkerRow) -> str:
    return "" if one.without_pod else "yes" if one.protected else "no"


def _state(one: WorkerRow) -> str:
    if one.state:
        return "+".join(one.state)
    return {"absent": "not in Slurm"}.get(one.known, one.summary or "unknown")


def _jobs(one: WorkerRow) -> str:
    if not one.job_count:
        return ""
    shown = ",".join(str(job) for job in one.jobs[:_SHOWN_JOBS])
    return shown if one.job_count <= _SHOWN_JOBS else f"{shown} +{one.job_count - _SHOWN_JOBS}"


def _obstacle(one: WorkerRow) -> str:
    if one.blocked is not None:
        return one.blocked.reason
    return one.problem.partition(":")[0].partition(" ")[0]


def render_jobs(
    reply: JobReply, palette: Palette = PLAIN, *, wide: bool = False, spaces: bool = False
) -> str:
    """Return jobs, one a line, and what is missing from the list."""
    head = ["JOB", "NAME", "USER", "PARTITION", "STATE", "REASON", "TIME", "NODES", "WORKERS"]
    head = (["NAMESPACE", "CLUSTER"] if spaces else []) + head
    head += ["CPUS", "FEATURES", "RESERVATION", "LIMIT", "ENDS IN"] if wide else []
    rows = [
        [*((part.namespace, part.cluster) if spaces else ()), *_job(job, reply.at, wide=wide)]
        for part in reply.items
        for job in part.jobs
    ]
    lines = table(head, rows, palette) if rows else ["No jobs found."]
    for part in reply.items:
        name = f"{part.namespace}/{part.cluster}"
        if part.error:
            lines.append(palette.paint(f"{name}: jobs are unknown: {visible(part.error)}", "red"))
        elif part.shown < part.matched:
            lines.append(
                f"{name}: {part.shown} of {part.matched} jobs are shown; narrow it down, such as by --user"
            )
        if part.total and (spaces or wide):
            lines.append(f"{name}: {counted(part.total, 'job')}{_in_brackets(listed(part.by_state))}")
    return _text(lines)


def _job(job: JobRow, now: datetime | None, *, wide: bool) -> list[str | Cell]:
    pending = "PENDING" in job.state
    number = f"{job.array_job_id}_{job.array_task}" if job.array_job_id and job.array_task else str(job.id)
    colour = "yellow" if pending else "green" if "RUNNING" in job.state else ""
    begun = job.submit_time if pending else job.start_time
    ended = now if pending or "RUNNING" in job.state or job.end_time is None else job.end_time
    row: list[str | Cell] = [number, shortened(job.name, _JOB_NAME), job.user, job.partition]
    row += [Cell("+".join(job.state), colour), job.state_reason if pending else "", age(begun, ended)]
    row += [job.nodes or str(job.node_count or ""), ",".join(job.workers)]
    if wide:
        limit = "" if job.time_limit_minutes is None else duration(60 * job.time_limit_minutes)
        ends = age(now, job.end_time) if "RUNNING" in job.state and job.end_time else ""
        row += [str(job.cpus or ""), job.features, job.reservation, limit, ends]
    return row


def render_history(reply: HistoryReply, palette: Palette = PLAIN, *, wide: bool = False) -> str:
    """Return what the operator did, the newest first."""
    rows: list[list[str | Cell]] = []
    for one in reply.items:
        times = f"x{one.count}" if one.count > 1 else ""
        colour = "red" if one.warning else "yellow" if one.type == "blocked" else ""
        why = one.why if wide else shortened(one.why, _MESSAGE)
        rows.append(
            [
                age(one.at, reply.at),
                f"{one.object.kind}/{one.object.name}",
                one.type,
                Cell(one.what, colour),
                times,
                why,
            ]
        )
    lines = _limited(reply.limited, palette)
    if rows:
        lines += table(["AGE", "OBJECT", "TYPE", "WHAT", "TIMES", "WHY"], rows, palette)
        kinds = Counter(one.type for one in reply.items)
        lines += [f"{counted(len(rows), 'entry', 'entries')}: {listed(kinds)}"] if wide else []
    else:
        since = age(reply.operator.since, reply.at)
        lines.append(f"Nothing is recorded{f' since this operator leads ({since})' if since else ''}.")
    return _text(lines)


# ----------------------------------------------------------------------------------------------- explanations


def render_explanation(given: Explanation, palette: Palette = PLAIN) -> str:
    """Return an explanation as labelled paragraphs."""
    lines = [*_limited(given.limited, palette), palette.paint(visible(given.subject), "bold")]
    parts: tuple[tuple[str, tuple[str, ...], str], ...] = (
        ("State", given.state, ""),
        ("Why", given.why, ""),
        ("Waits for", given.waits_for, "yellow"),
        ("Since", (given.since,) if given.since else (), ""),
        ("Caused by", given.caused_by, ""),
        ("Next", given.next, ""),
        ("Try", given.commands, "cyan"),
    )
    for label, texts, colour in parts:
        for number, text in enumerate(texts):
            lines.append(f"  {'' if number else label:<10} {palette.paint(visible(text), colour)}")
    return _text(lines)


def _text(lines: Iterable[str]) -> str:
    return "\n".join([*lines, ""])
