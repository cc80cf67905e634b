"""Count what makes the source hard to take over, and fail when a count grows: `counts.py [--write]`.

    scale-in modules     modules in which a scale-in with a running job runs something of its own, as listed
                         in `scripts/scale_in_modules.txt`. A test that traces a NodeSet on a real Kubernetes
                         compares the list with what it finds (`test_scale_in_modules.py`): the functions that
                         the NodeSet controller calls, directly or not, between the change of `replicas` and
                         the deletion of the pod, less those that it also calls while workers are created,
                         start jobs and are kept. With these, every module that it runs through at all, there
                         are about 95. Imports do not count, nor does what other tasks do meanwhile:
                         informers, polls of Slurm, other controllers.
    vague persons        nobody, somebody, everybody, whoever and people, anywhere in the source
    repeated classes     names that more than one class at the top level of a module has
    repeated modules     names that more than one module has, `__init__` aside
    NodeSet modules      modules of the NodeSet controller, `__init__` aside

`scripts/counts.toml` records a limit for each: what was counted when it was written. `--write` lowers the
limits to what is counted now and raises none. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import ast
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "scripts" / "counts.toml"
SCALE_IN = ROOT / "scripts" / "scale_in_modules.txt"
WORDS = re.compile(r"\b(?:nobody|somebody|everybody|whoever|people)\b", re.IGNORECASE)
NODESET = "slurm_operator.controllers.nodeset"


@dataclass(frozen=True)
class Module:
    """A module of the source: its name, its classes, its text."""

    name: str
    classes: tuple[str, ...]
    text: str

    @property
    def last(self) -> str:
        """Return the last part of the name."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Limit:
    """What a count may be, and what it should become."""

    limit: int
    goal: int


def read(source: Path) -> dict[str, Module]:
    """Return the modules below a folder by name; packages have the name of their folder."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
        found[name] = Module(name, classes, text)
    return found


def scale_in(text: str, modules: dict[str, Module]) -> list[str]:
    """Return the modules that are listed; each must exist, so that a list that is out of date shows."""
    listed = text.split()
    if gone := [name for name in listed if name not in modules]:
        raise SystemExit(f"counts: {', '.join(gone)}: not in the source; correct {SCALE_IN.name}")
    return listed


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def counted(modules: dict[str, Module], listed: Collection[str]) -> dict[str, int]:
    """Return every count."""
    plain = [one for one in modules.values() if not _is_package(one.name, modules)]
    below = f"{NODESET}."
    return {
        "scale-in modules": len(listed),
        "vague persons": sum(len(WORDS.findall(one.text)) for one in modules.values()),
        "repeated classes": len(repeated(name for one in modules.values() for name in one.classes)),
        "repeated modules": len(repeated(one.last for one in plain)),
        "NodeSet modules": sum(one.name.startswith(below) for one in plain),
    }


def _is_package(name: str, modules: dict[str, Module]) -> bool:
    return any(other.startswith(f"{name}.") for other in modules)


def grown(counts: dict[str, int], limits: dict[str, Limit]) -> list[str]:
    """Return a sentence for each count that is above its limit."""
    return [
        f"{name}: {count}, and the limit is {limits[name].limit}"
        for name, count in counts.items()
        if count > limits[name].limit
    ]


def lowered(text: str, counts: dict[str, int], limits: dict[str, Limit]) -> str:
    """Return the text of the limits with each that is above its count lowered to it."""
    for name, count in counts.items():
        if count < limits[name].limit:
            line = re.compile(rf'^("{re.escape(name)}" = \{{ limit = )\d+', re.MULTILINE)
            text = line.sub(rf"\g<1>{count}", text)
    return text


def main() -> int:
    """Print the counts; return 1 if one of them has grown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="lower the limits to what is counted now")
    options = parser.parse_args()
    text = LIMITS.read_text(encoding="utf-8")
    limits = {name: Limit(**entry) for name, entry in tomllib.loads(text)["counts"].items()}
    modules = read(ROOT / "src")
    counts = counted(modules, scale_in(SCALE_IN.read_text(encoding="utf-8"), modules))
    print(f"{'':20}{'count':>8}{'limit':>8}{'goal':>8}")
    for name, count in counts.items():
        print(f"{name:20}{count:8}{limits[name].limit:8}{limits[name].goal:8}")
    if options.write:
        LIMITS.write_text(lowered(text, counts, limits), encoding="utf-8")
    elif any(count < limits[name].limit for name, count in counts.items()):
        print("a count is below its limit: `python3 scripts/counts.py --write` records it")
    found = grown(counts, limits)
    for sentence in found:
        print(f"GREW: {sentence}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
