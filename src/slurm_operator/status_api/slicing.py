"""JSON of long lists, encoded without holding up the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.json import encode

from slurm_operator.kube.process.loop_turns import Breather

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AT_ONCE: Final = 100


async def written(head: Mapping[str, Any], **lists: Iterable[Any]) -> bytes:
    """Return JSON of some fields and some long lists, encoded in slices."""
    breathe, parts = Breather(), [encode(head)[:-1]]
    for name, rows in lists.items():
        parts.append(b',"%s":[' % name.encode())
        some = list(rows)
        for start in range(0, len(some), _AT_ONCE):
            parts.append((b"," if start else b"") + encode(some[start : start + _AT_ONCE])[1:-1])
            await breathe()
        parts.append(b"]")
    return b"".join((*parts, b"}"))
