"""Merge a patch into an object the way Kubernetes does, without Kubernetes.

`strategic_merge` follows the API server: maps are merged key by key, `null` deletes, and a list is merged
element by element where `merge_keys` names a key for it, replaced otherwise. What the patch says wins, also
when it says `false`, `0` or `""`. Directives are understood: `$patch` (`delete`, `replace`), `$retainKeys`,
`$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`.

The order of a merged list is Kubernetes' order. Elements that the patch names stand in the patch's order,
the others in the base's order, and an untouched element goes in front of the next patched one only where it
stood in front of it before. So a patch appends what is new after what it names, and never reorders what it
does not mention.

One thing differs from the Go code on purpose: whatever enters the result as new (an appended element, a
replaced list) loses its `null`s and directives, as it does anyway once the API server has decoded it. This
makes merging idempotent.

`json_merge_patch` and `diff_merge_patch` are RFC 7386, for status writers that send only what changed.

Nothing here changes its arguments, and no result shares a list or map with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.kube.manifests.merge_keys import PLAIN, TYPES, MergeField

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_UNLISTED = MergeField()


class MergeError(ValueError):
    """A patch that cannot be merged; the message names the path inside the object."""


def strategic_merge(
    base: Mapping[str, Any], patch: Mapping[str, Any], schema: str = "PodTemplateSpec"
) -> dict[str, Any]:
    """Return `base` changed by `patch`, for the Kubernetes type that `schema` names."""
    if schema not in TYPES:
        raise MergeError(f"no merge keys are known for type {schema!r}; known are {', '.join(sorted(TYPES))}")
    return _merge_map(base, patch, TYPES[schema], "")


def json_merge_patch(base: Any, patch: Any) -> Any:
    """Return `base` changed by a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return _copy(patch)
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = json_merge_patch(merged.get(key), value)
    return {key: _copy(value) if key not in patch else value for key, value in merged.items()}


def diff_merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the smallest JSON merge patch that turns `old` into `new`, or None when nothing changed.

    A `null` in either counts as an absent key: a merge patch has no way to write one.
    """
    patch: dict[str, Any] = {}
    for key, before in old.items():
        if before is not None and new.get(key) is None:
            patch[key] = None
    for key, after in new.items():
        before = old.get(key)
        if after is None or _same(before, after):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            inner = diff_merge_patch(before, after)
            if inner is not None:
                patch[key] = inner
        else:
            patch[key] = _copy(after)
    return patch or None


# ------------------------------------------------------------------------------------------------------- maps


def _merge_map(
    base: Mapping[str, Any], patch: Mapping[str, Any], fields: Mapping[str, MergeField], path: str
) -> dict[str, Any]:
    if _DIRECTIVE in patch:
        return _replaced_map(patch, path)
    merged = _retained(base, patch, path)
    orders = {key.removeprefix(_ORDER): value for key, value in patch.items() if key.startswith(_ORDER)}
    for key, value in patch.items():
        if key == _RETAIN_KEYS or key.startswith((_ORDER, _DELETE)) or key in orders:
            continue
        if value is None:
            merged.pop(key, None)
        else:
            _merge_field(merged, key, value, fields.get(key, _UNLISTED), _at(path, key))
    for key, order in orders.items():
        if key in patch and patch[key] is None:
            merged.pop(key, None)
        else:
            _merge_ordered(merged, key, patch.get(key), order, fields.get(key, _UNLISTED), _at(path, key))
    # Last, so that a list and its deletions in one patch give the same result whatever the order of the keys.
    for directive, value in patch.items():
        if directive.startswith(_DELETE):
            key = directive.removeprefix(_DELETE)
            unwanted = _scalars(value, _at(path, directive))
            if isinstance(merged.get(key), list):
                merged[key] = [item for item in merged[key] if _identity(item) not in unwanted]
    return {key: value if key in patch else _copy(value) for key, value in merged.items()}


def _merge_field(merged: dict[str, Any], key: str, value: Any, field: MergeField, path: str) -> None:
    current = merged.get(key)
    if isinstance(current, dict) and isinstance(value, dict):
        fields = TYPES.get(field.type, PLAIN)
        merged[key] = _merge_map({} if field.replaced else current, value, fields, path)
    elif isinstance(current, list) and isinstance(value, list):
        merged[key] = _merge_list(current, value, field, path) if field.merged else _as_new(value)
    elif _is_directive(value):
        # There is nothing to delete or replace; Kubernetes drops the field together with the directive.
        merged.pop(key, None)
    else:
        merged[key] = _as_new(value)


def _replaced_map(patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    match patch[_DIRECTIVE]:
        case "delete":
            return {}
        case "replace":
            return {
                key: _as_new(value) for key, value in patch.items() if key != _DIRECTIVE and value is not None
            }
        case other:
            raise MergeError(f"{path or 'patch'}: $patch is {other!r}; a map takes 'delete' or 'replace'")


def _retained(base: Mapping[str, Any], patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the part of the base that `$retainKeys`, if given, lets live."""
    if _RETAIN_KEYS not in patch:
        return dict(base)
    retain = _scalars(patch[_RETAIN_KEYS], _at(path, _RETAIN_KEYS))
    for key, value in patch.items():
        if value is None or key == _RETAIN_KEYS or key.startswith((_ORDER, _DELETE)):
            continue
        if _identity(key) not in retain:
            raise MergeError(
                f"{_at(path, key)}: set by the patch but missing in its $retainKeys; add it there"
            )
    return {key: value for key, value in base.items() if _identity(key) in retain}


# ------------------------------------------------------------------------------------------------------ lists


def _merge_list(base: list[Any], patch: list[Any], field: MergeField, path: str) -> list[Any]:
    if not base and not patch:
        return []
    if not _holds_maps(base, patch, path):
        both = _unique([*base, *patch])
        return _in_order(
            both, [_identity(item) for item in patch], [_identity(item) for item in base], _identity
        )
    if not field.key:
        raise MergeError(f"{path}: a list of maps without a merge key cannot be merged element by element")
    base, patch = _apply_element_directives(base, patch, field.key, path)

    merged = list(base)
    places: dict[Any, int] = {}
    for index, element in enumerate(base):
        places.setdefault(_key(element, field.key, f"{path}[{index}] of the base"), index)
    known = len(base)
    touched = set()
    for index, element in enumerate(patch):
        at = f"{path}[{index}]"
        place = places.setdefault(_key(element, field.key, at), len(merged))
        touched.add(place)
        if place == len(merged):
            merged.append(_as_new(element))
        else:
            merged[place] = _merge_map(merged[place], element, TYPES.get(field.type, PLAIN), at)
    merged[:known] = [item if index in touched else _copy(item) for index, item in enumerate(merged[:known])]

    def key_of(element: Any) -> Any:
        return _identity(element[field.key])

    return _in_order(merged, [key_of(item) for item in patch], [key_of(item) for item in base], key_of)


def _apply_element_directives(
    base: list[Any], patch: list[Any], merge_key: str, path: str
) -> tuple[list[Any], list[Any]]:
    """Carry out the `$patch` elements of a list; return what is left of the base and of the patch."""
    directives = [(index, element) for index, element in enumerate(patch) if _is_directive(element)]
    plain = [element for element in patch if not _is_directive(element)]
    for index, element in directives:
        match element[_DIRECTIVE]:
            case "delete":
                unwanted = _key(element, merge_key, f"{path}[{index}]")
                base = [item for item in base if _identity(item.get(merge_key)) != unwanted]
            case "replace":
                pass
            case other:
                raise MergeError(
                    f"{path}[{index}]: $patch is {other!r}; a list element takes 'delete' or 'replace'"
                )
    if any(element[_DIRECTIVE] == "replace" for _, element in directives):
        return _as_new(plain), []
    return base, plain


def _merge_ordered(
    merged: dict[str, Any], key: str, patch: Any, order: Any, field: MergeField, path: str
) -> None:
    """Merge a list that comes with `$setElementOrder`, and put it into that order."""
    at = path.removesuffix(key) + _ORDER + key
    if not isinstance(order, list) or not isinstance(patch, list | None):
        raise MergeError(f"{at}: it and the list it orders must both be lists")
    base = merged.get(key)
    if not isinstance(base, list | None):
        raise MergeError(f"{path}: $setElementOrder is given, but the field to order is not a list")
    if base is None and patch is None:
        return
    maps = _holds_maps(order, (base or []) + (patch or []), path)
    if maps and not field.key:
        raise MergeError(f"{path}: a list of maps without a merge key cannot be ordered by $setElementOrder")

    def key_of(element: Any) -> Any:
        return _key(element, field.key, path) if maps else _identity(element)

    wanted = [key_of(element) for element in order]
    patched = [key_of(element) for element in patch or () if not _is_directive(element)]
    _check_order(patched, wanted, at)
    before = [key_of(element) for element in base or ()]
    if patch is not None:
        _merge_field(merged, key, patch, field, path)
    present = [key_of(element) for element in merged[key]]
    kept = [item for item in before if item in present]
    added = [item for item in patched if item not in kept]
    # Kubernetes appends in place: an added element takes the place that a deleted one left, and counts as
    # having stood there.
    merged[key] = _in_order(merged[key], wanted, (kept + added)[: len(before)], key_of)


def _check_order(patched: list[Any], wanted: list[Any], path: str) -> None:
    rest = iter(wanted)
    if wanted and not all(key in rest for key in patched):
        raise MergeError(f"{path}: must name every element that the patch sets, in the patch's order")


def _in_order(items: list[Any], patched: list[Any], before: list[Any], key_of: Any) -> list[Any]:
    """Interleave the patch's elements, in its order, with the others, in the order they had before."""
    rank = {key: index for index, key in reversed(list(enumerate(patched)))}
    place = {key: index for index, key in reversed(list(enumerate(before)))}
    mine = sorted((item for item in items if key_of(item) in rank), key=lambda item: rank[key_of(item)])
    others = sorted(
        (item for item in items if key_of(item) not in rank),
        key=lambda item: place.get(key_of(item), len(place)),
    )
    result: list[Any] = []
    waiting = iter(others)
    other = next(waiting, None)
    for item in mine:
        old_place = place.get(key_of(item), -1)
        while other is not None and place.get(key_of(other), old_place) < old_place:
            result.append(other)
            other = next(waiting, None)
        result.append(item)
    if other is not None:
        result += [other, *waiting]
    return result


# ----------------------------------------------------------------------------------------------------- values


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _identity(value: Any) -> Any:
    """Return what two scalars have in common when JSON calls them equal: unlike Python, `true` is not 1."""
    return (type(value) is bool, value)


def _key(element: Any, merge_key: str, path: str) -> Any:
    value = element.get(merge_key) if isinstance(element, dict) else None
    if value is None or isinstance(value, dict | list):
        raise MergeError(
            f"{path}: has no {merge_key!r}, the key by which elements of this list are merged; add it"
        )
    return _identity(value)


def _holds_maps(first: list[Any], second: list[Any], path: str) -> bool:
    """Return whether these are lists of maps rather than of scalars; a mixture is an error."""
    shapes = {dict if isinstance(item, dict) else type(item) for item in (*first, *second)}
    if list in shapes or (dict in shapes and len(shapes) > 1):
        raise MergeError(f"{path}: the elements of a merged list must be all maps or all scalars")
    return dict in shapes


def _scalars(value: Any, path: str) -> set[Any]:
    if not isinstance(value, list) or any(isinstance(item, dict | list) for item in value):
        raise MergeError(f"{path}: must be a list of scalars")
    return {_identity(item) for item in value}


def _unique(items: list[Any]) -> list[Any]:
    return list({_identity(item): item for item in items}.values())


def _as_new(value: Any) -> Any:
    """Copy a value of the patch that has no counterpart in the base, without nulls and directives."""
    if isinstance(value, dict):
        return {
            key: _as_new(item)
            for key, item in value.items()
            if not (
                item is None
                or key == _RETAIN_KEYS
                or key.startswith((_ORDER, _DELETE))
                or _is_directive(item)
            )
        }
    if isinstance(value, list):
        return [_as_new(item) for item in value if not _is_directive(item)]
    return value


def _is_directive(value: Any) -> bool:
    return isinstance(value, dict) and _DIRECTIVE in value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return (numbers or type(left) is type(right)) and _identity(left) == _identity(right)
