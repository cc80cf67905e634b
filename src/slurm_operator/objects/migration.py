"""Adopting running pods: no restart for a difference that the user did not ask for.

A pod template that changes restarts a daemon. Some of what we render differs from what Slinky slurm-operator,
or an older version of this one, rendered from the same custom resources: the text of a small script, a label
or a hash that was not there, annotations that should never have been copied. None of these is worth a
restart. So where a running workload differs from the desired one in nothing else, `settle` returns the
desired one with these parts as they run. The first real change, of an image, a setting or a key, then applies
everything at once.

What counts as a change must not be guessed from the running template, which lacks some of our hashes. So each
workload carries, in an annotation of its own that restarts nothing, a digest of the template that was
rendered for it: with the texts of our scripts, and without them. The latter alone means *adopted*: the
running template is not the rendered one. While the digest without scripts stays the same, an adopted template
is left as it runs; once it differs, the rendered template is applied in full. A template that was applied in
full has both digests, and then whatever a person edits in it is put back, scripts and labels included; only
another text of a script in a newer operator is not worth a restart by itself.

Releases of Slinky slurm-operator differ in more. 1.0 to 1.2 had no anti-affinity of slurmctld. 1.0 and 1.1
always had the sidecar that tells slurmctld to read its files again, and no hash of them. 1.0 gave pods none
of the labels of the custom resource, and the JWT key another file name. These stay as they run, too.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.kube.manifests.semantics import canonical_quantity
from slurm_operator.objects import scripts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from slurm_operator.objects.desired import Manifest

_SCRIPTS = (scripts.INITCONF, scripts.LOGFILE, scripts.LOGFILE_OPEN, scripts.RECONFIGURE)
# May be missing in a template of Slinky slurm-operator: the hash of slurmdbd.conf alone was always there.
_LATE_HASHES = (
    wellknown.ANNOTATION_JWT_KEY_HASH,
    wellknown.ANNOTATION_REFERENCED_FILES_HASH,
    wellknown.ANNOTATION_SLURM_CONFIG_HASH,
    wellknown.ANNOTATION_SLURM_KEY_HASH,
    wellknown.ANNOTATION_SSHD_CONF_HASH,
    wellknown.ANNOTATION_SSH_HOST_KEYS_HASH,
    wellknown.ANNOTATION_SSSD_CONF_HASH,
)
# What the Slinky chart puts on custom resources, and 1.0 did not pass on to pods.
_LATE_LABELS = (
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    wellknown.LABEL_CONTROLLER_ACTIVE,
)
_HOSTNAME = "kubernetes.io/hostname"
_RECONFIGURE = wellknown.CONTAINER_RECONFIGURE
_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
_DIGEST_LENGTH = 16


def settle(
    desired: Manifest, live: Mapping[str, Any] | None, *, kept: Collection[str] = frozenset()
) -> Manifest:
    """Return the workload to apply: with the running template's own ways, if it differs in nothing else.

    `live` needs no more than the annotations of the workload and its template. `kept` are annotations of the
    template that stay as they run, because what they are the hashes of stays (`corrections`).
    """
    wanted = desired["spec"]["template"]
    core, full = _digest(_without_scripts(wanted)), _digest(wanted)
    ours = _marked(desired, f"{core}.{full}")
    if live is None:
        return ours
    running = live["spec"]["template"]
    known, _, rendered = _annotations(live).get(wellknown.ANNOTATION_TEMPLATE_HASH, "").partition(".")
    if (known and known != core) or rendered == full:
        return ours
    template = {
        "metadata": _settled_metadata(wanted["metadata"], running.get("metadata", {}), kept),
        "spec": _settled_spec(wanted["spec"], running.get("spec", {})),
    }
    if template == wanted or (not known and not contained(template, running)):
        return ours
    return _marked({**desired, "spec": {**desired["spec"], "template": template}}, core)


def is_settled(item: Mapping[str, Any]) -> bool:
    """Return whether `settle` made a workload."""
    return wellknown.ANNOTATION_TEMPLATE_HASH in _annotations(item)


def is_adopted(item: Mapping[str, Any]) -> bool:
    """Return whether the template of a workload that `settle` made is not the rendered one."""
    return "." not in _annotations(item)[wellknown.ANNOTATION_TEMPLATE_HASH]


def contained(wanted: Any, running: Any) -> bool:
    """Return whether everything wanted is there, and else only what the API server fills in by itself.

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
    wanted: Mapping[str, Any], running: Mapping[str, Any], kept: Collection[str]
) -> dict[str, Any]:
    there, labels = running.get("annotations") or {}, running.get("labels") or {}
    annotations = {
        name: value
        for name, value in wanted["annotations"].items()
        if (name in there or name not in _LATE_HASHES) and name not in kept
    }
    return {
        **wanted,
        "labels": {
            name: value
            for name, value in wanted["labels"].items()
            if name in labels or name not in _LATE_LABELS
        },
        # What Slinky slurm-operator copied from the custom resource, and what `kubectl rollout restart` left.
        "annotations": {**there, **annotations},
    }


def _settled_spec(wanted: Mapping[str, Any], running: Mapping[str, Any]) -> dict[str, Any]:
    settled = {
        **wanted,
        **{
            part: _settled_containers(wanted[part], running.get(part) or [])
            for part in ("initContainers", "containers")
            if part in wanted
        },
    }
    if "initContainers" in settled:
        settled["initContainers"] = [
            *_sidecar(settled["initContainers"], running.get("initContainers") or []),
            *settled["initContainers"],
        ]
    if "affinity" in settled:
        affinity = _settled_affinity(settled.pop("affinity"), running.get("affinity") or {})
        if affinity or "affinity" in running:
            settled["affinity"] = affinity
    if "volumes" in settled:
        settled["volumes"] = _settled_volumes(settled["volumes"], running.get("volumes") or [])
    return settled


def _sidecar(wanted: list[Any], running: list[Any]) -> list[Any]:
    """Return the sidecar that tells slurmctld of its files, if it runs first and is not wanted."""
    first = running[:1]
    names = {item.get("name") for item in wanted}
    return (
        first if [item.get("name") for item in first] == [_RECONFIGURE] and _RECONFIGURE not in names else []
    )


def _settled_affinity(wanted: Mapping[str, Any], running: Mapping[str, Any]) -> dict[str, Any]:
    """Return the affinity without the terms that keep two slurmctlds apart, where these are not running."""
    apart = wanted.get("podAntiAffinity") or {}
    there = (running.get("podAntiAffinity") or {}).get(_TERMS) or []
    terms = [
        term for term in apart.get(_TERMS) or () if term in there or term.get("topologyKey") != _HOSTNAME
    ]
    kept = {**apart, _TERMS: terms} if terms else {name: apart[name] for name in apart if name != _TERMS}
    others = {name: value for name, value in wanted.items() if name != "podAntiAffinity"}
    return {**others, "podAntiAffinity": kept} if kept else others


def _settled_volumes(wanted: list[Any], running: list[Any]) -> list[Any]:
    """Return volumes in which the JWT key has the file name of 1.0, where it has that."""
    projected = {item.get("name"): (item.get("projected") or {}).get("sources") or [] for item in running}

    def settled(source: Mapping[str, Any], there: list[Any]) -> Mapping[str, Any]:
        secret = source.get("secret") or {}
        named = {
            **secret,
            "items": [
                {**item, "path": wellknown.FILE_JWT_HS256_KEY}
                if item.get("path") == wellknown.FILE_JWT_KEY
                else item
                for item in secret.get("items") or ()
            ],
        }
        return (
            {**source, "secret": named} if any(contained({"secret": named}, one) for one in there) else source
        )

    return [
        {
            **item,
            "projected": {
                **item["projected"],
                "sources": [
                    settled(source, projected[item["name"]]) for source in item["projected"]["sources"]
                ],
            },
        }
        if projected.get(item["name"]) and "projected" in item
        else item
        for item in wanted
    ]


def _settled_containers(wanted: list[Any], running: list[Any]) -> list[Any]:
    commands = {item.get("name"): item.get("command") or [] for item in running}
    return [
        {**item, "command": commands[item["name"]]}
        if _same_but_script(item.get("command") or [], commands.get(item["name"]) or [])
        else item
        for item in wanted
    ]


def _same_but_script(wanted: list[str], running: list[str]) -> bool:
    """Return whether a command is one of our scripts, and the running one is another text in its place."""
    return bool(wanted and running and wanted[-1] in _SCRIPTS and wanted[:-1] == running[:-1])


def _without_scripts(template: Mapping[str, Any]) -> dict[str, Any]:
    def blank(item: Mapping[str, Any]) -> dict[str, Any]:
        command = item.get("command") or []
        return {**item, "command": ["" if word in _SCRIPTS else word for word in command]}

    spec = template["spec"]
    parts = {part: [blank(item) for item in spec.get(part, ())] for part in ("initContainers", "containers")}
    return {**template, "spec": {**spec, **parts}}


def _marked(manifest: Manifest, mark: str) -> Manifest:
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), wellknown.ANNOTATION_TEMPLATE_HASH: mark}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _digest(value: object) -> str:
    text = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:_DIGEST_LENGTH]


def _annotations(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item.get("metadata", {}).get("annotations") or {}
