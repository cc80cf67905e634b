"""Prometheus and promtool from Debian's package, for tests of metrics, monitors and rules.

The package is unpacked into the cache, beside the C library that it was linked with: the programs are run by
that library's own loader, so the release of the machine does not matter, and neither root nor a container is
needed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubebox.cache import cache_root, content_key, obtain
from kubebox.errors import ToolError
from kubebox.slurm import packages

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox.slurm.packages import Progress

PROMETHEUS_SERIES = "2.53"
_SUITE = "trixie"
_NAME = "prometheus"
_PACKAGES = (_NAME, "promtool")
_UNPACKED = (*(f"{name}_" for name in _PACKAGES), "libc6_")
# Raise it when this module makes something else of the same packages.
_LAYOUT = 1


@dataclass(frozen=True)
class PrometheusPrograms:
    """The command lines of the two programs, to which arguments are added."""

    prometheus: tuple[str, ...]
    promtool: tuple[str, ...]


def provide_prometheus(progress: Progress) -> PrometheusPrograms:
    """Return Prometheus and promtool, fetched first when they are not in the cache yet."""
    key = content_key([json.dumps([_LAYOUT, _SUITE, packages.architecture(), _UNPACKED]).encode()])

    def make(scratch: Path) -> None:
        progress(f"fetching Prometheus {PROMETHEUS_SERIES}: once, about half a minute")
        _make(scratch, progress)

    root = obtain(
        cache_root(),
        _NAME,
        key,
        make,
        lambda: progress("waiting for another process that fetches Prometheus"),
    )
    programs = root / "rootfs" / "usr" / "bin"
    loader = _loader(root / "rootfs")
    start = (str(loader), "--library-path", str(loader.parent))
    return PrometheusPrograms(
        prometheus=(*start, str(programs / "prometheus")), promtool=(*start, str(programs / "promtool"))
    )


def _make(scratch: Path, progress: Progress) -> None:
    apt, root = scratch / "apt", scratch / "rootfs"
    found = packages.download(packages.mirror(), _SUITE, _PACKAGES, apt, progress)
    wanted = [file for file in found if file.name.startswith(_UNPACKED)]
    version = next(
        (packages.version_of(file) for file in wanted if file.name.startswith(f"{_NAME}_")), "none"
    )
    if not version.startswith(f"{PROMETHEUS_SERIES}."):
        raise ToolError(
            f"Debian {_SUITE} has Prometheus {version} and no longer {PROMETHEUS_SERIES}: "
            "name another suite in kubebox/prometheus.py"
        )
    root.mkdir()
    packages.unpack(wanted, root)
    shutil.rmtree(apt)
    progress(f"Prometheus {version} is ready")


def _loader(root: Path) -> Path:
    """Return the loader of the C library, which is named after the processor."""
    found = sorted((root / "usr" / "lib").glob("*/ld-linux*.so.*"))
    if not found:
        raise ToolError(f"the C library in {root} has no loader: remove the folder and try again")
    return found[0]
