"""When two pieces of a manifest mean the same although they are written differently.

The Go types behind Kubernetes' own objects cannot tell some spellings apart: null and absent, an empty list
and absent, an empty map of labels and absent, `1000m` and `1`, and a zero value in a field that Go writes
even when nothing was set. `canonical` brings a manifest into a form in which these are equal.

It is careful in the one direction that matters: what a user can have meant is never dropped. `{}` stays in
all other places, since `emptyDir: {}` and `namespaceSelector: {}` mean something. The keys of labels,
selectors and the like belong to the user, so no rule about a field's name applies to them: a node selector
`name: "0"` is a selector.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection

# Fields of the Go types behind pods and claims that are written even when this, their zero value, is in them.
_ALWAYS_WRITTEN: Final[dict[str, Any]] = {
    # Not written by Go, but by the Slinky charts, in every pod template; an affinity without terms is none.
    "affinity": {},
    "divisor": "0",
    "metadata": {},
    "name": "",
    "resources": {},
    "spec": {},
    "status": {},
}

# Maps with free-form keys instead of field names; Go omits all of them when empty.
_QUANTITY_MAPS = frozenset({"allocatedResources", "capacity", "limits", "overhead", "requests"})
_STRING_MAPS = frozenset(
    {
        "annotations",
        "binaryData",
        "data",
        "labels",
        "matchLabels",
        "nodeSelector",
        "options",
        "stringData",
        "volumeAttributes",
    }
)
_QUANTITIES = frozenset({"divisor", "sizeLimit"})

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?")
_SCALES = {
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
# A result that had to be rounded could equal that of another amount, so it is an error.
_EXACT = Context(prec=64, traps=[Inexact, InvalidOperation, Overflow])


def canonical(value: Any, *, zero_fields: Collection[str] = ()) -> Any:
    """Return decoded JSON in the form in which equal meanings are equal.

    In `zero_fields` an empty or zero value is taken for an absent one, as in what Go always writes.
    """
    if isinstance(value, list | tuple):
        return [canonical(item, zero_fields=zero_fields) for item in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, item in value.items():
        meaning = _canonical_field(key, item, zero_fields)
        if not _says_nothing(key, meaning, zero_fields):
            result[key] = meaning
    return result


def canonical_quantity(value: Any) -> Any:
    """Return a resource quantity in the one spelling of its amount; what is no quantity stays as it is."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        return value
    digits, suffix, exponent = match.groups()
    try:
        amount = _EXACT.multiply(_EXACT.create_decimal(digits), _SCALES.get(suffix or "", Decimal(1)))
        return str(_EXACT.normalize(_EXACT.scaleb(amount, int(exponent or 0))))
    except (ArithmeticError, ValueError):
        # ValueError: Python refuses to read an exponent of thousands of digits.
        return value


def _canonical_field(key: str, value: Any, zero_fields: Collection[str]) -> Any:
    if key in _QUANTITIES:
        return canonical_quantity(value)
    if isinstance(value, dict) and key in _QUANTITY_MAPS:
        return {name: canonical_quantity(amount) for name, amount in value.items() if amount is not None}
    if isinstance(value, dict) and key in _STRING_MAPS:
        return {name: text for name, text in value.items() if text is not None}
    return canonical(value, zero_fields=zero_fields)


def _says_nothing(key: str, meaning: Any, zero_fields: Collection[str]) -> bool:
    if meaning is None or meaning == []:
        return True
    if key in _QUANTITY_MAPS or key in _STRING_MAPS:
        return bool(meaning == {})
    if key in _ALWAYS_WRITTEN and meaning == _ALWAYS_WRITTEN[key]:
        return True
    return key in zero_fields and meaning in ({}, "", 0)
