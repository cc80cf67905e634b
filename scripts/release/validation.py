"""Bills of materials compared with the schema that CycloneDX publishes.

The schema comes with a package of PyPI, the program that applies it with another; both are pinned by hash in
requirements-sbom.txt, and neither is a dependency of the operator or of its tests.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubebox.cache import cache_root, content_key, obtain
from kubebox.errors import ToolError
from kubebox.toolchain import install_wheel
from scripts.release.sbom import SPEC_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kubebox.slurm.packages import Progress

_REQUIREMENTS = Path(__file__).resolve().parent / "requirements-sbom.txt"
_SCHEMAS = Path("cyclonedx") / "schema" / "_res"


def validate(files: Iterable[Path], say: Progress) -> None:
    """Check bills of materials against the published schema; ToolError names the first that is wrong."""
    place = _provide(say)
    check = _compiled(place)
    for file in files:
        try:
            check(json.loads(file.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ToolError(f"{file.name} is no CycloneDX {SPEC_VERSION}: {error}") from error


def _provide(say: Progress) -> Path:
    def make(scratch: Path) -> None:
        say("getting the schema of CycloneDX from PyPI")
        install_wheel(_REQUIREMENTS, scratch)

    return obtain(cache_root(), "cyclonedx", content_key([_REQUIREMENTS.read_bytes()]), make)


def _compiled(place: Path) -> Callable[[Any], Any]:
    schemas = place / _SCHEMAS

    def load(uri: str) -> Any:
        name = uri.rpartition("/")[2].removesuffix(".schema.json").removesuffix(".SNAPSHOT")
        return json.loads((schemas / f"{name}.SNAPSHOT.schema.json").read_text(encoding="utf-8"))

    sys.path.insert(0, str(place))
    try:
        compiler = importlib.import_module("fastjsonschema")
    finally:
        sys.path.remove(str(place))
    made: Callable[[Any], Any] = compiler.compile(
        load(f"bom-{SPEC_VERSION}.schema.json"), handlers={"http": load, "https": load}, use_formats=False
    )
    return made
