"""Nodes, jobs and views for tests, in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.slurm.decide.node_list_trust import by_name
from slurm_operator.slurm.model.jobs import JobBook, UnfinishedJobs
from slurm_operator.slurm.model.records import Job, Node, NoVal
from slurm_operator.slurm.model.steps import at_once
from slurm_operator.slurm.model.view import ClusterView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_operator.slurm.decide.node_list_trust import NodeListTrust

NOW = 1000.0


def node(name: str, *state: str, alloc: int | None = 0, **fields: Any) -> Node:
    """Return a node; without a state an idle one."""
    return Node(name=name, state=state or ("IDLE", "DYNAMIC_NORM"), alloc_cpus=alloc, **fields)


def drained_node(name: str, **fields: Any) -> Node:
    """Return a node that looks drained by its own state."""
    return node(name, "IDLE", "DRAIN", "DYNAMIC_NORM", **fields)


def number(value: float) -> NoVal:
    """Return a number as Slurm sends it."""
    return NoVal(set=True, number=value)


def job(job_id: int, nodes: str, *state: str, **fields: Any) -> Job:
    """Return a job; without a state a running one of an hour."""
    times = {"start_time": number(10_000), "end_time": number(13_600), "time_limit": number(60)}
    return Job(job_id=job_id, nodes=nodes, job_state=state or ("RUNNING",), **(times | fields))


def jobs(*listed: Job) -> UnfinishedJobs:
    """Return what one list of jobs says."""
    return JobBook().listed(listed, NOW)


def view(*nodes: Node, **fields: Any) -> ClusterView:
    """Return a fresh view of these nodes, in which nothing speaks against a drain."""
    settled: dict[str, Any] = {
        "nodes": {entry.name: entry for entry in nodes},
        "listed_at": NOW - 1,
        "jobs_listed_at": NOW - 1,
        "complete": True,
        "up_since": 0.0,
    }
    return ClusterView(**(settled | fields))


def take_list(node_trust: NodeListTrust, nodes: Sequence[Node], sent: float) -> None:
    """Give a whole list of nodes to what decides whether to trust it."""
    node_trust.listed(at_once(by_name(nodes, node_trust.snapshot.nodes)), sent)
