"""Token: what is wrong with one, before anything is read or written.

There is nothing to render for a Token but the Secret, whose value is a signature of the moment. What can be
told from the spec alone is told here, for the controller and for the admission webhook.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from slurm_operator.api.reasons import Reason
from slurm_operator.objects.desired import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_operator.api import Token

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DATA_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_LONGEST_NAME: Final = 253


def problems(token: Token) -> Iterator[Problem]:
    """Yield what is wrong with the spec, by the field to change."""
    ref = token.jwt_key
    if ref is None or not ref.name or not ref.key:
        yield _invalid(
            "spec.jwtKeyRef", "is not complete; name the Secret and the key in it that sign the token"
        )
    yield from _lifetime(token)
    name, key = token.secret_name, token.secret_key
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        own = token.spec.secret_ref is not None and token.spec.secret_ref.name
        made = "" if own else " (from the name of this Token and spec.username)"
        yield _invalid(
            "spec.secretRef.name", f"{name!r}{made} cannot be the name of a Secret; set another one"
        )
    if len(key) > _LONGEST_NAME or not _DATA_KEY.fullmatch(key):
        yield _invalid(
            "spec.secretRef.key", f"{key!r} cannot be a key in a Secret; use letters, digits, '-', '_', '.'"
        )
    if ref is not None and name == ref.name:
        yield _invalid(
            "spec.secretRef.name", f"{name!r} is the Secret with the JWT key; set another one for the token"
        )


def _lifetime(token: Token) -> Iterator[Problem]:
    try:
        lifetime = token.lifetime()
    except ValueError as error:
        field, _, message = str(error).partition(": ")
        yield _invalid(field, message)
        return
    if lifetime <= timedelta(0):
        yield _invalid(
            "spec.lifetime", f"{token.spec.lifetime!r} is not a lifetime; use a duration above 0, such as 15m"
        )


def _invalid(field: str, message: str) -> Problem:
    return Problem(Reason.INVALID_SPEC, field, message)
