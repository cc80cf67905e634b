"""Packaged charts: the folders in charts/ as archives, with the digests of the images in their values.

`helm package` writes the time of the day into its archives; these have none, so that two builds are equal.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import json
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHARTS = Path(__file__).resolve().parents[2] / "charts"
NAMES = ("slurm-operator-crds", "slurm-operator", "slurm")
_KEY = re.compile(r"( *)([^\s#:]+):(.*)")


def chart_version(name: str) -> str:
    """Return the version of a chart of this tree."""
    return str(yaml.safe_load((CHARTS / name / "Chart.yaml").read_text(encoding="utf-8"))["version"])


def filled(text: str, settings: Mapping[tuple[str, ...], Any]) -> str:
    """Return a values.yaml with other values at some paths; comments stay."""
    lines, left = text.splitlines(), dict(settings)
    stack: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        if (found := _KEY.fullmatch(line)) is None:
            continue
        depth = len(found[1])
        stack = [entry for entry in stack if entry[0] < depth] + [(depth, found[2])]
        path = tuple(name for _, name in stack)
        if path in left:
            lines[number] = f"{found[1]}{found[2]}: {json.dumps(left.pop(path), sort_keys=True)}"
    result = "\n".join(lines) + "\n"
    expected = yaml.safe_load(text)
    for path, value in settings.items():
        _at(expected, path[:-1])[path[-1]] = value
    if left or yaml.safe_load(result) != expected:
        raise ValueError(f"values.yaml has another form than expected: cannot set {sorted(settings)}")
    return result


def _at(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        values = values[name]
    return values


def values_of_release(name: str, registry: str, digests: Mapping[str, str]) -> dict[tuple[str, ...], Any]:
    """Return the values that a packaged chart has in place of those of the tree."""
    slurm = {image: digest for image, digest in digests.items() if image != "slurm-operator"}
    if name == "slurm-operator":
        return {("image", "registry"): registry or None, ("image", "digest"): digests["slurm-operator"]}
    return {("imageRegistry",): registry or None, ("imageDigests",): slurm} if name == "slurm" else {}


def write_chart(name: str, target: Path, settings: Mapping[tuple[str, ...], Any]) -> None:
    """Write a chart as an archive."""
    members: dict[str, bytes] = {}
    for path, place in _files(CHARTS / name, name):
        content = path.read_bytes()
        if place == f"{name}/values.yaml":
            content = filled(content.decode(), settings).encode()
        members[place] = content
    with (
        target.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=9, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        # helm reads the first member to know what it has.
        for place in sorted(members, key=lambda place: (place != f"{name}/Chart.yaml", place)):
            entry = tarfile.TarInfo(place)
            entry.mode, entry.size = 0o644, len(members[place])
            archive.addfile(entry, io.BytesIO(members[place]))


def _files(chart: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a chart, and of charts below it, with their places in the archive."""
    ignored = [
        line.strip()
        for line in (chart / ".helmignore").read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    for path in sorted(chart.rglob("*")):
        place = path.relative_to(chart)
        if path.is_file() and place.parts[0] != "charts" and not _is_ignored(place, ignored):
            yield path, f"{prefix}/{place}"
    below = chart / "charts"
    for inner in sorted(below.iterdir()) if below.is_dir() else ():
        # A chart below may be a link to its folder, which helm follows.
        yield from _files(inner.resolve(), f"{prefix}/charts/{inner.name}")


def _is_ignored(place: Path, patterns: Sequence[str]) -> bool:
    return any(
        place.parts[0] == pattern.strip("/")
        if pattern.startswith("/")
        else any(fnmatch.fnmatch(part, pattern) for part in place.parts)
        for pattern in patterns
    )
