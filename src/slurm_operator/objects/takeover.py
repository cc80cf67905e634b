"""Adopting running pods: no restart for a difference that nobody asked for.

A pod template that changes restarts a daemon. Some of what we render differs from what the Go operator, or an
older version of this one, rendered from the same custom resources: the text of a small script, a label or a
hash that was not there, annotations that should never have been copied. None of these is worth a restart. So
where a running workload differs from the desired one in nothing else, `settle` returns the desired one with
these parts as they run. The first real change, of an image or a setting, then brings everything at once.

A hash that the running template lacks cannot show a change. Until the template has it, it is kept in the
annotations of the workload itself, where it costs no restart: when it differs there, the change is real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import wellknown
from slurm_operator.kube.semantics import canonical_quantity
from slurm_operator.objects import scripts
from slurm_operator.objects.labels import LAST_APPLIED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.objects.desired import Manifest

_SCRIPTS = (scripts.INITCONF, scripts.LOGFILE, scripts.RECONFIGURE)
# May be missing in a running template: the other hashes were always there.
_LATE_HASHES = (wellknown.ANNOTATION_SLURM_KEY_HASH, wellknown.ANNOTATION_SLURM_CONFIG_HASH)


def settle(desired: Manifest, live: Mapping[str, Any] | None, inherited: Mapping[str, str]) -> Manifest:
    """Return the workload to apply: with the running template's own ways, if it differs in nothing else.

    `inherited` are the annotations of the custom resource, which the Go operator copied into templates.
    """
    if live is None:
        return desired
    wanted, running = desired["spec"]["template"], live["spec"]["template"]
    late = {
        name: value
        for name, value in wanted["metadata"]["annotations"].items()
        if name in _LATE_HASHES and name not in _annotations(running)
    }
    recorded = _annotations(live)
    if any(recorded.get(name, value) != value for name, value in late.items()):
        return desired
    template = {
        "metadata": _settled_metadata(wanted["metadata"], running["metadata"], late, inherited),
        "spec": _settled_spec(wanted["spec"], running["spec"]),
    }
    if not contained(template, running):
        return desired
    metadata = dict(desired["metadata"])
    if late:
        metadata["annotations"] = {**metadata.get("annotations", {}), **late}
    return {**desired, "metadata": metadata, "spec": {**desired["spec"], "template": template}}


def contained(wanted: Any, running: Any) -> bool:
    """Tell whether everything wanted is there, and else only what the API server fills in by itself.

    That is scalars and empty maps. Another entry in a list, or a list or map more, was wanted once and is not
    any longer.
    """
    if isinstance(wanted, dict):
        if not isinstance(running, dict):
            return False
        added = (value for key, value in running.items() if key not in wanted)
        return all(contained(value, running.get(key)) for key, value in wanted.items()) and not any(
            isinstance(value, dict | list) and value for value in added
        )
    if isinstance(wanted, list):
        if not isinstance(running, list) or len(wanted) != len(running):
            return not wanted and running is None
        return all(map(contained, wanted, running))
    if running is None:
        return wanted in (False, 0, "", None)  # a zero value is left out when it is stored
    return bool(wanted == running) or str(canonical_quantity(wanted)) == str(canonical_quantity(running))


def _settled_metadata(
    wanted: Mapping[str, Any],
    running: Mapping[str, Any],
    late: Mapping[str, str],
    inherited: Mapping[str, str],
) -> dict[str, Any]:
    annotations = {name: value for name, value in wanted["annotations"].items() if name not in late}
    for name in (*inherited, LAST_APPLIED):
        if name not in annotations and name in running.get("annotations", {}):
            annotations[name] = running["annotations"][name]
    labels = dict(wanted["labels"])
    if wellknown.LABEL_CONTROLLER_ACTIVE not in running.get("labels", {}):
        labels.pop(wellknown.LABEL_CONTROLLER_ACTIVE, None)
    return {**wanted, "labels": labels, "annotations": annotations}


def _settled_spec(wanted: Mapping[str, Any], running: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **wanted,
        **{
            part: _settled_containers(wanted[part], running.get(part) or [])
            for part in ("initContainers", "containers")
            if part in wanted
        },
    }


def _settled_containers(wanted: list[Any], running: list[Any]) -> list[Any]:
    commands = {item.get("name"): item.get("command") or [] for item in running}
    return [
        {**item, "command": commands[item["name"]]}
        if _same_but_script(item.get("command") or [], commands.get(item["name"]) or [])
        else item
        for item in wanted
    ]


def _same_but_script(wanted: list[str], running: list[str]) -> bool:
    """Tell whether a command is one of our scripts, and the running one is another text in its place."""
    return bool(wanted and running and wanted[-1] in _SCRIPTS and wanted[:-1] == running[:-1])


def _annotations(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item.get("metadata", {}).get("annotations") or {}
