"""From a verb, a kind and a name to the `ApiCall` that goes over the wire.

Names and namespaces are checked here, because a URL with an empty or foreign segment asks the server for
something else than the caller meant: a namespaced object without its namespace is a 404 that looks like an
absent object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from slurm_operator.kube.manifests.wire import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.kube.models.meta import Object, Resource

JSON = "application/json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
# Resources whose bodies are secret: keys and passwords, tokens to check, tokens to issue.
_SECRET_RESOURCES = frozenset({"secrets", "tokenreviews", "token"})
_METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class ApiCall(NamedTuple):
    """What to send, and the words to describe it in an error."""

    method: str
    verb: str
    what: str
    resource: str
    path: str
    query: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    fenced: bool = False
    secret: bool = False
    not_after: float | None = None
    """The loop's time after which it must not be sent, or sent again."""

    @property
    def write(self) -> bool:
        """Return whether the call changes something."""
        return self.method != "GET"


def object_call(
    method: str,
    verb: str,
    kind: type[Object],
    name: str,
    namespace: str,
    *,
    subresource: str | None = None,
    query: Mapping[str, str] | None = None,
    body: object = None,
    content_type: str = JSON,
) -> ApiCall:
    """Return the call on one object or its subresource."""
    resource = kind.RESOURCE
    what = describe(verb, resource, name, namespace, subresource)
    return ApiCall(
        method,
        verb,
        what,
        f"{resource.plural}/{subresource}" if subresource else resource.plural,
        resource.path(_namespace(what, resource, namespace), _segment(what, "name", name), subresource),
        query,
        None if body is None else encode(body),
        content_type,
        _METADATA_ONLY if kind.METADATA_ONLY else JSON,
        fenced=method != "GET",
        secret=_holds_secrets(resource),
    )


def collection_call(verb: str, kind: type[Object], namespace: str, query: Mapping[str, str]) -> ApiCall:
    """Return the call that lists or watches a kind, in one namespace or in all."""
    resource = kind.RESOURCE
    what = f"{verb} {resource.plural}{f' in {namespace}' if namespace else ''}"
    accept = JSON
    if kind.METADATA_ONLY:
        accept = _METADATA_ONLY if verb == "watch" else _METADATA_ONLY_LIST
    return ApiCall(
        "GET",
        verb,
        what,
        resource.plural,
        resource.path(_segment(what, "namespace", namespace) if namespace else None),
        query,
        accept=accept,
        secret=_holds_secrets(resource),
    )


def create_call(
    kind: type[Object], body: Mapping[str, Any], namespace: str, query: Mapping[str, str]
) -> ApiCall:
    """Return the call that creates an object, named or with a generated name."""
    resource = kind.RESOURCE
    metadata = body.get("metadata") or {}
    namespace = namespace or metadata.get("namespace", "")
    what = describe(
        "create", resource, metadata.get("name") or f"{metadata.get('generateName', '')}*", namespace
    )
    return ApiCall(
        "POST",
        "create",
        what,
        resource.plural,
        resource.path(_namespace(what, resource, namespace)),
        query,
        encode(typed(resource, body)),
        accept=_METADATA_ONLY if kind.METADATA_ONLY else JSON,
        fenced=True,
        secret=_holds_secrets(resource),
    )


def raw_call(
    method: str,
    path: str,
    query: Mapping[str, str] | None,
    body: object,
    content_type: str,
    *,
    fenced: bool,
    secret: bool | None,
) -> ApiCall:
    """Return the call to any path; unless told, a path that names a secret resource is taken to be one."""
    method = method.upper()
    return ApiCall(
        method,
        method.lower(),
        f"{method} {path}",
        path,
        path,
        query,
        None if body is None else body if isinstance(body, bytes) else encode(body),
        content_type,
        fenced=fenced and method != "GET",
        secret=not _SECRET_RESOURCES.isdisjoint(path.split("/")) if secret is None else secret,
    )


def describe(verb: str, resource: Resource, name: str, namespace: str, subresource: str | None = None) -> str:
    """Say what is wanted, for error messages."""
    part = f"{subresource} of " if subresource else ""
    where = f"{namespace}/" if namespace and resource.namespaced else ""
    return f"{verb} {part}{resource.kind} {where}{name}"


def typed(resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body with the apiVersion and kind that the server insists on."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def selection(
    labels: str | Mapping[str, str] | None, fields: str | Mapping[str, str] | None
) -> dict[str, str]:
    """Return the query of a selection; a mapping means equality on every key."""
    query = {}
    if labels:
        query["labelSelector"] = _selector(labels)
    if fields:
        query["fieldSelector"] = _selector(fields)
    return query


def write_query(field_manager: str, *, dry_run: bool, **more: str) -> dict[str, str]:
    """Return the query of a write."""
    query = {"fieldManager": field_manager, **more} if field_manager else dict(more)
    if dry_run:
        query["dryRun"] = "All"
    return query


def _selector(given: str | Mapping[str, str]) -> str:
    return given if isinstance(given, str) else ",".join(f"{key}={value}" for key, value in given.items())


def _namespace(what: str, resource: Resource, namespace: str) -> str | None:
    if not resource.namespaced:
        return None
    if not namespace:
        raise ValueError(f"{what}: namespace is empty; a {resource.kind} lives in a namespace")
    return _segment(what, "namespace", namespace)


def _segment(what: str, field: str, value: str) -> str:
    # Kubernetes refuses the same names: they cannot be a segment of a URL path.
    if (
        not value
        or value in (".", "..")
        or any(char in "/%?#" or char <= " " or char > "~" for char in value)
    ):
        raise ValueError(
            f"{what}: {field} {value!r} is not a Kubernetes name; give letters, digits, '-', '.' or ':'"
        )
    return value


def _holds_secrets(resource: Resource) -> bool:
    return resource.plural == "secrets" and not resource.group
