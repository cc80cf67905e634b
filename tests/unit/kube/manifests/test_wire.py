from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_operator.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    DecodeError,
    Forbidden,
    Gone,
    Invalid,
    ServerError,
    TooManyRequests,
)
from slurm_operator.kube.manifests.wire import (
    BadObject,
    WatchEvent,
    cut_at,
    decode_event,
    decode_object,
    decode_page,
    status_error,
)
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import Key


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": f"7{len(name)}"}, "spec": spec}


def line(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode()


def page(*items: Any, **metadata: str) -> bytes:
    return json.dumps({"metadata": metadata, "items": list(items)}).encode()


# ------------------------------------------------------------------------------------------------------ lists


def test_list_is_typed_and_keeps_its_place() -> None:
    """A list gives typed items, its version and the token of the next page."""
    found = decode_page(
        Pod, page(pod("a", nodeName="w1"), resourceVersion="9", **{"continue": "tok"}), "list pods"
    )
    assert [item.spec.node_name for item in found.items] == ["w1"]
    assert (found.resource_version, found.continue_token, found.bad) == ("9", "tok", [])


@pytest.mark.parametrize("items", ["null", "[]"])
def test_empty_lists(items: str) -> None:
    """A list without items may say null."""
    found = decode_page(
        Pod, f'{{"metadata": {{"resourceVersion": "9"}}, "items": {items}}}'.encode(), "list pods"
    )
    assert (found.items, found.resource_version) == ([], "9")


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_one_bad_item_costs_only_itself(broken: int) -> None:
    """A malformed item is set apart with its key and the field at fault; its neighbours are delivered."""
    items = [pod(name) for name in "abc"]
    items[broken]["spec"] = {"nodeName": 7}
    found = decode_page(Pod, page(*items, resourceVersion="9"), "list pods")
    assert [item.metadata.name for item in found.items] == [
        name for i, name in enumerate("abc") if i != broken
    ]
    assert [bad.key for bad in found.bad] == [Key("n", "abc"[broken])]
    assert "$.spec.nodeName" in found.bad[0].error


def test_item_without_readable_metadata_is_still_isolated() -> None:
    """An item that is no object at all is reported without a key."""
    found = decode_page(Pod, page(pod("a"), 17, {"metadata": {"name": 3}}, resourceVersion="9"), "list pods")
    assert len(found.items) == 1
    assert [bad.key for bad in found.bad] == [Key("", ""), Key("", "")]


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"items": []}', b'{"metadata": {}, "items": 3}', b"\xff"]
)
def test_answers_that_are_no_list(body: bytes) -> None:
    """An answer that is no list at all is one error that says what was asked."""
    with pytest.raises(DecodeError, match=r"^list pods in n: the answer is not a list of Pod"):
        decode_page(Pod, body, "list pods in n")


def test_object_error_names_the_field() -> None:
    """An object that does not decode is reported by field, not by value."""
    with pytest.raises(DecodeError, match=r"get Pod n/a: .*not a Pod.*\$\.spec\.hostNetwork") as caught:
        decode_object(Pod, json.dumps(pod("a", hostNetwork="hush")).encode(), "get Pod n/a")
    assert "hush" not in str(caught.value)


# ---------------------------------------------------------------------------------------------------- watches


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_typed_events(kind: str) -> None:
    """An event carries its typed object and the version to resume from."""
    event = decode_event(Pod, line(kind, pod("a", hostname="h")), "watch pods")
    assert isinstance(event.object, Pod)
    assert (event.type, event.object.spec.hostname, event.resource_version) == (kind, "h", "71")


@pytest.mark.parametrize("rest", [{}, {"spec": {"containers": None}, "status": {}}, {"spec": None}])
def test_bookmarks_need_only_a_version(rest: dict[str, Any]) -> None:
    """A bookmark is a version and nothing else, whatever empty fields come with it."""
    event = decode_event(Pod, line("BOOKMARK", {"metadata": {"resourceVersion": "12"}} | rest), "watch pods")
    assert event == WatchEvent("BOOKMARK", None, "12")


def test_bad_event_is_isolated() -> None:
    """A malformed object in an event keeps its key and version, so that the watch can go on."""
    event = decode_event(Pod, line("MODIFIED", pod("abc", nodeName=7)), "watch pods")
    assert (event.type, event.resource_version) == ("MODIFIED", "73")
    assert isinstance(event.object, BadObject)
    assert event.object.key == Key("n", "abc")
    assert "$.object.spec.nodeName" in event.object.error


def test_error_event_410_is_gone() -> None:
    """An ERROR event with code 410 means that the watch must start from a new list."""
    status = {
        "kind": "Status",
        "code": 410,
        "reason": "Expired",
        "message": "too old resource version: 1 (9)",
    }
    with pytest.raises(Gone, match=r"^watch pods: too old resource version: 1 \(9\) \(HTTP 410 Expired\)"):
        decode_event(Pod, line("ERROR", status), "watch pods")


def test_error_event_of_any_shape_is_raised() -> None:
    """An ERROR event is never delivered as an object, even when it would decode as one."""
    with pytest.raises(ServerError):
        decode_event(Pod, line("ERROR", {"kind": "Status", "metadata": {}, "code": 500}), "watch pods")
    with pytest.raises(ApiError):
        decode_event(Pod, line("ERROR", {"metadata": {}}), "watch pods")


@pytest.mark.parametrize("text", [b"{", b"<html>", b"{}", b"[]", b"\xff\xfe"])
def test_lines_that_are_no_event(text: bytes) -> None:
    """A line that is no event at all ends the watch with an error that says so."""
    with pytest.raises(DecodeError, match="watch pods: a line of the watch is not an event"):
        decode_event(Pod, text, "watch pods")


# --------------------------------------------------------------------------------------------------- refusals


def refused(
    code: int, reason: str, message: str = "said", *, secret: bool = False, **details: Any
) -> ApiError:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return status_error("do it", code, json.dumps(body | {"details": details}).encode(), secret=secret)


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (403, "Forbidden", Forbidden),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (410, "Gone", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (504, "Timeout", ServerError),
        (418, "Teapot", ApiError),
    ],
)
def test_refusals_have_the_class_that_fits(code: int, reason: str, expected: type[ApiError]) -> None:
    """Status code and reason decide the class; wish and answer are in the message."""
    error = refused(code, reason)
    assert type(error) is expected
    assert str(error) == f"do it: said (HTTP {code} {reason})"
    assert (error.status, error.reason) == (code, reason)


def test_details_and_retry_after_survive() -> None:
    """What a program can act on is kept: name, causes, and when to come back."""
    causes = [{"reason": "FieldValueInvalid", "message": "no", "field": "spec.x"}]
    error = refused(429, "TooManyRequests", name="a", causes=causes, retryAfterSeconds=3)
    assert error.details == {"name": "a", "causes": causes, "retryAfterSeconds": 3}
    assert error.retry_after == 3.0


def test_foreign_bodies_are_never_quoted() -> None:
    """A body that is no Status, such as a proxy's page, is described but not repeated."""
    error = status_error("get Pod n/a", 502, b"<html>hush</html>", content_type="text/html")
    assert isinstance(error, ServerError)
    assert str(error) == "get Pod n/a: HTTP 502 with text/html instead of a Kubernetes Status"


def test_json_that_is_no_status_is_never_quoted() -> None:
    """Even a JSON body is repeated only if it is a Status."""
    error = status_error("do it", 500, b'{"message": "hush"}')
    assert "hush" not in str(error)


@pytest.mark.parametrize(("code", "reason"), [(422, "Invalid"), (400, "BadRequest"), (500, "InternalError")])
def test_refused_secrets_name_fields_not_values(code: int, reason: str) -> None:
    """For a Secret, the fields at fault are named and the values never repeated."""
    causes = [{"reason": "FieldValueInvalid", "message": 'Invalid value: "hush"', "field": "data[key]"}]
    error = refused(code, reason, 'data[key]: Invalid value: "hush"', secret=True, causes=causes)
    assert str(error) == f"do it: refused because of data[key] (FieldValueInvalid) (HTTP {code} {reason})"
    assert "hush" not in repr(error.details)


def test_webhooks_may_quote_secrets() -> None:
    """A webhook's sentence about a Secret is not repeated, whatever its code."""
    error = refused(403, "Forbidden", 'admission webhook "w" denied the request: hush', secret=True)
    assert "hush" not in str(error)


def test_rbac_on_secrets_is_told() -> None:
    """That RBAC forbids reading a Secret is said in full: it names a user and no value."""
    error = refused(403, "Forbidden", 'secrets "s" is forbidden: User "u" cannot get', secret=True)
    assert 'User "u" cannot get' in str(error)


def test_long_messages_are_cut() -> None:
    """A message of any length fits in a log line and an event."""
    assert len(str(refused(422, "Invalid", "x" * 100_000))) < 1_200


# ----------------------------------------------------------------------------------------- deeply nested ones


# More than any Python lets a decoder recurse.
DEEP = 200_000


def deep_pod(name: str) -> bytes:
    """Return a pod nested as deep in its spec as in the record of who manages its fields."""
    nested = b'{"a":' * DEEP + b"[]" + b"}" * DEEP
    owner = '{"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": "u-o", "controller": true}'
    meta = f'"name": "{name}", "namespace": "n", "resourceVersion": "8", "ownerReferences": [{owner}]'
    fields = b', "managedFields": [{"manager": "x}", "fieldsV1": ' + nested + b"}]"
    return b'{"metadata": {' + meta.encode() + fields + b'}, "spec": {"unknown": ' + nested + b"}}"


def test_a_deeply_nested_item_costs_only_itself() -> None:
    """An item nested too deeply for the decoder is set apart with its metadata; the others are delivered."""
    last = json.dumps(pod("b")).encode()
    around = page(pod("a", nodeName="w{1]"), pod("b"), resourceVersion="9", **{"continue": "tok"})
    body = around.replace(last, deep_pod("deep") + b", 17, " + last)
    found = decode_page(Pod, body, "list pods")

    assert [(item.metadata.name, item.spec.node_name) for item in found.items] == [("a", "w{1]"), ("b", "")]
    assert (found.resource_version, found.continue_token) == ("9", "tok")
    deep, number = found.bad
    assert (deep.key, deep.resource_version) == (Key("n", "deep"), "8")
    assert "nested too deeply" in deep.error
    assert [owner.name for owner in deep.metadata.owner_references] == ["o"]
    assert number.key == Key("", "")


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_a_deeply_nested_event_is_isolated(kind: str) -> None:
    """An event whose object is nested too deeply keeps its type, key and version."""
    text = b'{"type": "' + kind.encode() + b'", "object": ' + deep_pod("deep") + b"}"
    event = decode_event(Pod, text, "watch pods")
    assert (event.type, event.resource_version) == (kind, "8")
    assert isinstance(event.object, BadObject)
    assert event.object.key == Key("n", "deep")


@pytest.mark.parametrize("body", [b"{" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP])
def test_deep_answers_that_are_nothing(body: bytes) -> None:
    """An answer that is nested and malformed is an error like any other malformed answer."""
    with pytest.raises(DecodeError, match="not a list of Pod"):
        decode_page(Pod, body, "list pods")
    with pytest.raises(DecodeError, match="the answer is not a Pod"):
        decode_object(Pod, body, "get pod")
    with pytest.raises(DecodeError, match="is not an event"):
        decode_event(Pod, body, "watch pods")
    assert "instead of a Kubernetes Status" in str(status_error("get pod", 500, body))


def test_cutting_looks_into_no_string() -> None:
    """Brackets and quotes inside strings are text, and what is cut out is found again by its number."""
    text = rb'{"a}\\\"]": [1, {"b": "{"}], "c": [], "d": {"e": {"f": "\\\\"}}}'
    assert cut_at(text, 9) == (text, [])
    assert cut_at(text, 1) == (
        rb'{"a}\\\"]": [0], "c": [1], "d": [2]}',
        [rb'[1, {"b": "{"}]', b"[]", rb'{"e": {"f": "\\\\"}}'],
    )
