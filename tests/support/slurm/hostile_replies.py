"""What the hostile slurmrestd says: objects in the shape of real ones, good and spoiled replies, refusals."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

Json = dict[str, Any]

_TEN_MEGABYTES = 10 * 2**20


class Fault(StrEnum):
    """What the server does instead of answering well."""

    ERRORS = "200 with errors"
    EMPTY = "empty list"
    HALF = "half of the list"
    ABSENT_LIST = "no list in the reply"
    NULL_LIST = "null instead of the list"
    NO_TIME = "a list without the time it was true"
    MALFORMED_ENTRY = "one entry of the list is no object of its kind"
    NAMELESS_ENTRY = "one entry of the list has no name"
    UNKNOWN_WORDS = "states and fields that nobody knows"
    TRUNCATED = "truncated JSON"
    GARBAGE = "not JSON"
    WRONG_TYPE = "HTML with status 200"
    NOT_HTTP = "not HTTP"
    HUGE = "10 MB of text in one entry"
    HUGE_HEADERS = "huge headers"
    REDIRECT = "redirect"
    UNAUTHORIZED = "401"
    TOKEN_REFUSED = "511"  # noqa: S105 - a status, no password
    NOT_FOUND = "404"
    INTERNAL_ERROR = "500"
    BAD_GATEWAY = "502"
    CONTROLLER_HANGS = "504"
    PROXY_PAGE = "503 with a page of some proxy"
    HANG = "hang"
    DRIP = "slow drip"
    CLOSE = "close without an answer"
    RESET = "reset mid-body"
    SHORT_BODY = "Content-Length is longer than the body"
    LONG_BODY = "Content-Length is shorter than the body"
    CUT_CHUNKED = "chunked, cut off"
    POISON = "another, false answer behind each good one"


SPOILS_CONTENT = frozenset(
    {
        *(Fault.EMPTY, Fault.HALF, Fault.ABSENT_LIST, Fault.NULL_LIST, Fault.NO_TIME, Fault.MALFORMED_ENTRY),
        *(Fault.NAMELESS_ENTRY, Fault.UNKNOWN_WORDS, Fault.HUGE),
    }
)


class Reply(NamedTuple):
    """What is about to be sent."""

    status: str
    body: bytes
    content_type: str = "application/json"


def number(value: float | None, *, infinite: bool = False) -> Json:
    """Return a number in the way Slurm writes one."""
    return {"set": value is not None and not infinite, "infinite": infinite, "number": value or 0}


def node(name: str, *state: str, **fields: Any) -> Json:
    """Return a node; without a state an idle one."""
    return {
        "name": name,
        "hostname": name,
        "address": name,
        "state": list(state or ("IDLE", "DYNAMIC_NORM")),
        "reason": "",
        "reason_set_by_user": "root",
        "reason_changed_at": number(0),
        "comment": "",
        "features": ["k8s"],
        "active_features": ["k8s"],
        "partitions": ["all"],
        "topology": "",
        "reservation": "",
        "cpus": 2,
        "alloc_cpus": 0,
        "alloc_idle_cpus": 2,
        "boot_time": number(1_700_000_000),
        "slurmd_start_time": number(1_700_000_100),
        "energy": {"average_watts": 0, "current_watts": number(0)},
        "operating_system": "Linux",
        "tres": "cpu=2,mem=1000M,billing=2",
        "version": "26.05.5",
    } | fields


def job(job_id: int, nodes: str, *state: str, **fields: Any) -> Json:
    """Return a job on these nodes; without a state a running one."""
    return {
        "job_id": job_id,
        "job_state": list(state or ("RUNNING",)),
        "partition": "all",
        "nodes": nodes,
        "name": f"job-{job_id}",
        "user_name": "alice",
        "start_time": number(1_700_000_200),
        "end_time": number(1_700_003_800),
        "time_limit": number(60),
    } | fields


def reservation(name: str, nodes: str, **fields: Any) -> Json:
    """Return a reservation of these nodes."""
    return {
        "name": name,
        "node_list": nodes,
        "start_time": number(1_700_000_000),
        "end_time": number(1_700_003_600),
        "flags": ["SPEC_NODES"],
        "users": "root",
        "partition": "",
    } | fields


def ping(hostname: str, *, responding: bool = True, primary: bool = True) -> Json:
    """Return how one slurmctld answered."""
    return {"hostname": hostname, "responding": responding, "latency": 900, "primary": primary, "status": ""}


def good(content: str, release: str, error: str = "", *, warning: str = "", cluster: str = "") -> Reply:
    """Return a 200 in the usual envelope."""
    envelope = {
        "meta": {"plugin": {"type": "openapi/slurmctld"}, "slurm": {"release": release, "cluster": cluster}},
        "errors": [{"description": error, "error_number": 0, "error": "No error"}] if error else [],
        "warnings": [{"description": warning, "source": "hostile"}] if warning else [],
    }
    separator = "" if content == "{}" else ", "
    return Reply("200 OK", f"{content[:-1]}{separator}{json.dumps(envelope)[1:]}".encode())


def refusal(status: str, error_number: int, error: str = "Invalid node name specified") -> Reply:
    """Return a refusal in the shape of Slurm's."""
    faults = [{"description": "Failure", "error_number": error_number, "error": error, "source": "hostile"}]
    return Reply(status, json.dumps({"errors": faults, "warnings": [], "meta": {}}).encode())


REFUSALS: dict[Fault | None, Reply] = {
    Fault.REDIRECT: Reply("302 Found", b"", "text/plain"),
    Fault.ERRORS: refusal("200 OK", 2020, "Job can not be altered now, try again later"),
    Fault.UNAUTHORIZED: Reply("401 UNAUTHORIZED", b"Authentication failure", "text/plain"),
    Fault.TOKEN_REFUSED: refusal(
        "511 Network Authentication Required", 1007, "Protocol authentication error"
    ),
    Fault.NOT_FOUND: Reply(
        "404 NOT FOUND", b"Unable find requested URL. Please view /openapi/v3", "text/plain"
    ),
    Fault.INTERNAL_ERROR: refusal("500 INTERNAL ERROR", 9000, "Unspecified error"),
    Fault.BAD_GATEWAY: refusal(
        "502 BAD GATEWAY", 1800, "Unable to contact slurm controller (connect failure)"
    ),
    Fault.CONTROLLER_HANGS: refusal("504 GATEWAY TIMEOUT", 5004, "Socket timed out on send/recv operation"),
    Fault.PROXY_PAGE: Reply("503 Service Unavailable", b"<html>no healthy upstream</html>", "text/html"),
    Fault.WRONG_TYPE: Reply("200 OK", b"<html>please log in</html>", "text/html"),
    Fault.GARBAGE: Reply("200 OK", b"\x00\xff{]" * 100),
}


def spoiled(fault: Fault, what: str, entries: list[Any]) -> str:
    """Return the list as a fault wants it; empty when it is to be absent."""
    match fault:
        case Fault.EMPTY:
            entries = []
        case Fault.HALF:
            entries = entries[: len(entries) // 2]
        case Fault.ABSENT_LIST:
            return ""
        case Fault.NULL_LIST:
            return "null"
        case Fault.MALFORMED_ENTRY:
            entries[len(entries) // 2] = 17
        case Fault.NAMELESS_ENTRY:
            last = entries[-1]
            entries[-1] = {key: last[key] for key in last if key not in ("name", "job_id")}
        case Fault.UNKNOWN_WORDS:
            word = "job_state" if what == "jobs" else "state"
            entries = [{**entry, word: ["QUANTUM"], "spin": {"up": [1, None]}} for entry in entries]
        case Fault.HUGE:
            first, *others = entries or [node("n1")]
            entries = [{**first, "extra": "x" * _TEN_MEGABYTES}, *others]
    return json.dumps(entries)
