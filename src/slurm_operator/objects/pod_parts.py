"""Pods: the parts they are built from, and how a user's wishes are merged into them.

The merge is Kubernetes' strategic merge (`kube.merge`): maps are merged, lists by their key where they have
one, and what the user sets wins, also `false`, `0` and `""`. A `null` or an empty list means the same as
nothing at all, as it does everywhere in the Kubernetes API. A few things are not left to it:

- Arguments of a container are the operator's, then the user's.
- A user's probe brings its own handler: two of them in one probe would be refused by the API server.
- A user's container of a known name changes that container; any other is added behind the operator's.
- Tolerations and terms of affinity add up. They are plain lists to Kubernetes, so a merge would drop what
  keeps two slurmctlds off one node as soon as the user has a wish of his own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from slurm_operator.api import wellknown
from slurm_operator.kube.manifests.merge import MergeError, strategic_merge
from slurm_operator.objects import scripts
from slurm_operator.objects.desired import invalid
from slurm_operator.objects.labels import App, app_labels, merge_maps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api import Kind
    from slurm_operator.api.shared import ConfigMapKeySelector, PodTemplate, SecretKeySelector

T = TypeVar("T", dict[str, Any], list[Any])

# Read by the owner alone; by the group of the daemon as well, and executable for it (scripts are in there).
MODE_PRIVATE = 0o600
MODE_PUBLIC = 0o644
MODE_SLURM_ETC = 0o610

_KEY_SET_SUFFIX = ".jwks"
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_HANDLERS = ("exec", "grpc", "httpGet", "tcpSocket")
_CONTAINER_LISTS = ("initContainers", "containers")
_SHAPES: dict[type, str] = {dict: "map", list: "list"}
# The terms of which all must hold. Required terms of node affinity are alternatives: adding one would weaken.
_TERMS = (
    ("nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
    ("podAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    ("podAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
    ("podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    ("podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
)


# --------------------------------------------------------------------------------------------------- merging


def container(base: Mapping[str, Any], wish: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a container changed by what the user wrote in the field `where`; its name stays."""
    wanted = _given(wish)
    wanted.pop("name", None)
    arguments = [*base.get("args", ()), *take(wanted, "args", list, where)]
    wanted.pop("args", None)
    take(wanted, "command", list, where)
    bare = dict(base)
    for probe in _PROBES:
        if probe in bare and take(wanted, probe, dict, where).keys() & set(_HANDLERS):
            bare[probe] = {key: value for key, value in bare[probe].items() if key not in _HANDLERS}
    merged = _merge(bare, wanted, "Container", where)
    return {**merged, **({"args": arguments} if arguments else {})}


def pod_spec(base: Mapping[str, Any], template: PodTemplate) -> dict[str, Any]:
    """Return a pod's spec changed by the template that the user gave."""
    where = "spec.template.spec"
    wish = _given(template.spec)
    ours = {
        "affinity": _affinity(base.get("affinity", {}), take(wish, "affinity", dict, where), where),
        "tolerations": _together(base.get("tolerations", []), take(wish, "tolerations", list, where)),
        **{
            name: _containers(base.get(name, []), take(wish, name, list, where), f"{where}.{name}")
            for name in _CONTAINER_LISTS
        },
    }
    merged = _merge(
        {key: value for key, value in base.items() if key not in ours},
        {key: value for key, value in wish.items() if key not in ours},
        "PodSpec",
        where,
    )
    for name in base.keys() - ours.keys():
        if isinstance(base[name], list):
            take(merged, name, list, where)
        elif isinstance(base[name], dict):
            take(merged, name, dict, where)
    return {**merged, **{name: value for name, value in ours.items() if value}}


def _containers(base: list[Any], added: list[Any], where: str) -> list[Any]:
    result = {item["name"]: dict(item) for item in base}
    for index, item in enumerate(added):
        place = f"{where}[{index}]"
        name = item.get("name") if isinstance(item, dict) else None
        if not name:
            raise invalid(place, "has no name; set the name of the container")
        if not isinstance(name, str):
            raise invalid(f"{place}.name", "must be a string")
        take(item, "command", list, place)
        result[name] = container(result[name], item, place) if name in result else item
    return list(result.values())


def _affinity(base: Mapping[str, Any], wish: Mapping[str, Any], where: str) -> dict[str, Any]:
    merged: dict[str, Any] = _merge({"affinity": base}, {"affinity": wish}, "PodSpec", where)["affinity"]
    for kind, terms in _TERMS:
        ours = base.get(kind, {}).get(terms, [])
        theirs = take(take(wish, kind, dict, f"{where}.affinity"), terms, list, f"{where}.affinity.{kind}")
        if ours and theirs:
            merged[kind][terms] = _together(theirs, ours)
    return merged


def take(wish: Mapping[str, Any], name: str, shape: type[T], where: str) -> T:
    """Return an optional part of what a user wrote, or say that it has the wrong shape."""
    value = wish.get(name)
    if value is None:
        return shape()
    if not isinstance(value, shape):
        raise invalid(f"{where}.{name}", f"must be a {_SHAPES[shape]}")
    return value


def _together(first: list[Any], second: list[Any]) -> list[Any]:
    return [*first, *(item for item in second if item not in first)]


def _merge(base: Mapping[str, Any], wish: Mapping[str, Any], schema: str, where: str) -> dict[str, Any]:
    try:
        return strategic_merge(base, wish, schema)
    except MergeError as error:
        raise invalid(where, str(error)) from None


def _given(value: Any) -> Any:
    """Return what a user really set: to Kubernetes, a null or an empty list is the same as nothing."""
    if isinstance(value, dict):
        return {key: _given(item) for key, item in value.items() if item is not None and item != []}
    if isinstance(value, list):
        return [_given(item) for item in value]
    return value


# -------------------------------------------------------------------------------------------------- metadata


def template_metadata(
    owner: Kind, app: App, name: str, template: PodTemplate, annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return the metadata of a pod template: labels of the owner, but none of its annotations."""
    return {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": merge_maps(
            owner.metadata.labels, template.metadata.labels, app_labels(app, owner.metadata.name)
        ),
        "annotations": merge_maps(
            template.metadata.annotations,
            dict(annotations),
            {wellknown.ANNOTATION_DEFAULT_CONTAINER: app.name},
        ),
    }


# ----------------------------------------------------------------------------------------------------- parts


def share_files(pod: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether what one container of a pod makes for its user and group is open to another one."""
    contexts = [part.get("securityContext") for part in (pod, one, other)]
    of_pod, *of_containers = (context if isinstance(context, dict) else {} for context in contexts)
    users = {context.get("runAsUser", of_pod.get("runAsUser")) for context in of_containers}
    return of_pod.get("fsGroup") is not None or len(users) == 1


def logfile(path: str, *, private: bool = True) -> dict[str, Any]:
    """Return the sidecar that prints a daemon's log, which the daemon writes into a pipe at this path.

    A private pipe needs a daemon of the sidecar's user, or of the group of the pod's volumes.
    """
    return {
        "name": wellknown.CONTAINER_LOGFILE,
        "restartPolicy": "Always",
        "command": ["sh", "-c", scripts.LOGFILE if private else scripts.LOGFILE_OPEN],
        "env": [{"name": "SOCKET", "value": path}],
        "volumeMounts": [{"name": wellknown.VOLUME_LOGFILE, "mountPath": wellknown.DIR_SLURM_LOG}],
    }


def run_as(uid: int, gid: int, *, fs_group: int | None = None) -> dict[str, Any]:
    """Return a security context for a daemon that needs no privileges."""
    return {
        "runAsNonRoot": True,
        "runAsUser": uid,
        "runAsGroup": gid,
        **({"fsGroup": fs_group} if fs_group is not None else {}),
    }


def http_probe(path: str, port: str) -> dict[str, Any]:
    """Return a probe that asks a daemon over HTTP."""
    return {"httpGet": {"path": path, "port": port}}


def tcp_probe(port: int) -> dict[str, Any]:
    """Return a probe that only connects."""
    return {"tcpSocket": {"port": port}}


def patient(probe: dict[str, Any]) -> dict[str, Any]:
    """Return a probe that forgives a minute of silence."""
    return {**probe, "failureThreshold": 6, "periodSeconds": 10}


def memory_volume(name: str) -> dict[str, Any]:
    """Return a volume that lives in memory, as long as the pod."""
    return {"name": name, "emptyDir": {"medium": "Memory"}}


def projected_volume(name: str, mode: int, *sources: dict[str, Any] | None) -> dict[str, Any]:
    """Return a volume that shows files of several Secrets and ConfigMaps in one folder."""
    return {
        "name": name,
        "projected": {"defaultMode": mode, "sources": [source for source in sources if source is not None]},
    }


def secret_file(ref: SecretKeySelector | None, path: str, mode: int | None = None) -> dict[str, Any] | None:
    """Return the source of one file from a Secret; none if no Secret is named."""
    return {"secret": _one_file(ref, path, mode)} if ref is not None and ref.name else None


def slurm_key_file(ref: SecretKeySelector | None) -> dict[str, Any] | None:
    """Return the source of the daemons' key, or of their set of keys: Slurm tells them by the file's name."""
    several = ref is not None and is_key_set(ref.key)
    return secret_file(ref, wellknown.FILE_SLURM_JWKS if several else wellknown.FILE_SLURM_KEY)


def is_key_set(name: str) -> bool:
    """Return whether a key of a Secret, by its name, holds a set of the daemons' keys, not a single one."""
    return name.endswith(_KEY_SET_SUFFIX)


def config_map_file(
    ref: ConfigMapKeySelector | None, path: str, mode: int | None = None
) -> dict[str, Any] | None:
    """Return the source of one file from a ConfigMap; none if no ConfigMap is named."""
    return {"configMap": _one_file(ref, path, mode)} if ref is not None and ref.name else None


def _one_file(ref: SecretKeySelector | ConfigMapKeySelector, path: str, mode: int | None) -> dict[str, Any]:
    return {
        "name": ref.name,
        "items": [file_item(ref.key, path, mode)],
        **({} if ref.optional is None else {"optional": ref.optional}),
    }


def file_item(key: str, path: str = "", mode: int | None = None) -> dict[str, Any]:
    """Return which key becomes which file."""
    return {"key": key, "path": path or key, **({} if mode is None else {"mode": mode})}
