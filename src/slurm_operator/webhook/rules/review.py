"""AdmissionReviews: the envelope in which the API server asks and is answered.

Both versions that servers send have the same shape, and an answer comes in the version of its question. A
refusal carries every mistake twice: in one sentence, and as causes by field, which `kubectl` shows line by
line.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.kube.models.meta import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_operator.webhook.rules.admission import Verdict

GROUP: Final = "admission.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_KIND: Final = "AdmissionReview"
_NULL: Final = b"null"
_UNPROCESSABLE: Final = 422


class GroupVersionKind(Part, frozen=True):
    """What an object is."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(Part, frozen=True):
    """Who asks."""

    username: str = ""


class AdmissionRequest(Part, frozen=True):
    """One write that is about to happen; the objects are kept as text until it is known what they are."""

    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = UserInfo()
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()
    options: msgspec.Raw = msgspec.Raw()

    @property
    def new(self) -> bytes | None:
        """Return the object after the write, if there is one."""
        return _given(self.object)

    @property
    def old(self) -> bytes | None:
        """Return the object before the write, if there was one."""
        return _given(self.old_object)

    @property
    def given_options(self) -> bytes | None:
        """Return the options of the operation, if there are any."""
        return _given(self.options)


class Review(Part, frozen=True):
    """The question."""

    api_version: str
    kind: str
    request: AdmissionRequest


class ReviewError(Exception):
    """What arrived is no question that could be answered."""


def parse(body: bytes) -> Review:
    """Read a question; ReviewError says what is wrong with it."""
    try:
        review = msgspec.json.decode(body, type=Review)
    except msgspec.MsgspecError as error:
        raise ReviewError(f"not an {_KIND}: {error}") from None
    except RecursionError:
        raise ReviewError(f"not an {_KIND}: it is nested too deeply") from None
    if review.api_version not in VERSIONS or review.kind != _KIND:
        raise ReviewError(
            f"{review.api_version!r} {review.kind!r} is not supported; send an {_KIND} of "
            f"{' or '.join(VERSIONS)}"
        )
    if not review.request.uid:
        raise ReviewError("request.uid is empty; set it, since the response must repeat it")
    return review


def answer(review: Review, verdict: Verdict) -> bytes:
    """Return the answer to a validating question."""
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = _status(review.request, verdict)
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    return _envelope(review, response)


def patched(review: Review, patch: Sequence[dict[str, Any]]) -> bytes:
    """Return the answer to a mutating question: yes, and these changes."""
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(list(patch))).decode()
    return _envelope(review, response)


def _envelope(review: Review, response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": review.api_version, "kind": _KIND, "response": response})


def _status(request: AdmissionRequest, verdict: Verdict) -> dict[str, Any]:
    return {
        "status": "Failure",
        "message": "; ".join(map(str, verdict.errors)),
        "reason": "Invalid",
        "code": _UNPROCESSABLE,
        "details": {
            "name": request.name,
            "group": request.kind.group,
            "kind": request.kind.kind,
            "causes": [
                {"reason": finding.cause.value, "message": finding.message, "field": finding.path}
                for finding in verdict.errors
            ],
        },
    }


def _given(raw: msgspec.Raw) -> bytes | None:
    text = bytes(raw)
    return None if text in (b"", _NULL) else text
