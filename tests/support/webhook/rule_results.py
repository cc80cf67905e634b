"""What the rules say about a case, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import Controller, NodeSet
from slurm_operator.kube.models.kinds import ConfigMap, PersistentVolumeClaim
from slurm_operator.webhook.rules import wanted
from slurm_operator.webhook.rules.admission import validate
from slurm_operator.webhook.rules.world import Running, World
from tests.support.webhook.rule_cases import read

if TYPE_CHECKING:
    from slurm_operator.webhook.rules.findings import Finding
    from tests.support.webhook.rule_cases import Case


def world(case: Case) -> World:
    """Return what a lookup would find: the other objects of the case, and nothing else."""
    asked = wanted(read(case.new), None if case.old is None else read(case.old))
    there = {(item["kind"], item["metadata"]["name"]): item for item in case.others}

    def find(kind: type[Any], name: str) -> Any:
        body = there.get((kind.__name__, name))
        return None if body is None else msgspec.convert(body, kind)

    sets = [read(item) for item in (case.old, *case.others) if item and item["kind"] == "NodeSet"]
    pods = [item["metadata"] for item in case.others if item["kind"] == "Pod"]
    workers = {pod["labels"]["slinky.slurm.net/cluster"]: pod["name"] for pod in pods}
    known = [read(item) for item in (case.old, *case.others) if item and item["kind"] == "Controller"]
    clusters = [item for item in known if isinstance(item, Controller)] if asked.clusters else []
    return World(
        {name: find(ConfigMap, name) for name in asked.config_maps},
        {name: find(PersistentVolumeClaim, name) for name in asked.claims},
        tuple(item for item in sets if isinstance(item, NodeSet)) if asked.node_sets else (),
        clusters=tuple(Running(item, workers.get(item.metadata.name)) for item in clusters),
    )


def validated(case: Case, namespace: str = "slurm") -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Return the errors and warnings about a case, by the pure functions."""
    old = None if case.old is None else read(case.old, namespace)
    return validate(read(case.new, namespace), old, world(case))
