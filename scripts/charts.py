"""Checks of the Helm charts: `charts.py lint`, `charts.py test`, `charts.py values`.

`lint` runs `helm lint --strict` on every chart. `test` runs their suites with helm-unittest. `values` looks
whether the table of values in each README is what values.yaml says, and `values --write` makes it so. The
programs come from kubebox, so that nothing needs to be installed.

In values.yaml a comment that begins with `# --` describes the value under it, with all that is inside of it.
Every value must be described, by itself or with the one around it: what is not in the table does not exist
for a reader.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kubebox.binaries import provide
from kubebox.errors import KubeboxError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHARTS = Path(__file__).resolve().parents[1] / "charts"
NAMES = ("slurm-operator-crds", "slurm-operator", "slurm")
_BEGIN, _END = "<!-- values: made by `make charts` -->\n", "<!-- end of values -->"
_KEY = re.compile(r"( *)([^\s#:][^:]*):")
_LONGEST_DEFAULT = 70
# What helm says of every chart that is a link or takes an image in two forms.
_NOISE = (
    "found symbolic link in path",
    "cannot overwrite table with non table",
    "is a table. Ignoring non-table",
)


def main() -> int:
    """Run one check over all charts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("lint", help="helm lint --strict")
    commands.add_parser("test", help="helm unittest")
    values = commands.add_parser("values", help="compare the tables in the READMEs with values.yaml")
    values.add_argument("--write", action="store_true", help="rewrite the tables")
    options = parser.parse_args()
    try:
        if options.command == "lint":
            return _lint()
        if options.command == "test":
            return _run("helm-unittest", "--color=false")
        return _values(write=options.write)
    except KubeboxError as error:
        sys.stderr.write(f"charts.py: {error}\n")
        return 1


def _lint() -> int:
    # The operator's chart renders nothing without an image.
    needed = {"slurm-operator": ("--set", "image.registry=registry.example.com")}
    return max(_run("helm", "lint", "--strict", *needed.get(name, ()), charts=(name,)) for name in NAMES)


def _run(tool: str, *arguments: str, charts: Sequence[str] = NAMES) -> int:
    program = provide([tool], lambda line: print(line, flush=True))[tool]
    folders = [str(CHARTS / name) for name in charts]
    done = subprocess.run([program, *arguments, *folders], capture_output=True, text=True, check=False)
    for line in (done.stdout + done.stderr).splitlines():
        if not any(noise in line for noise in _NOISE):
            print(line)
    return done.returncode


def _values(*, write: bool) -> int:
    stale = []
    for name in NAMES:
        readme = CHARTS / name / "README.md"
        old = readme.read_text(encoding="utf-8")
        head, _, rest = old.partition(_BEGIN)
        _, end, tail = rest.partition(_END)
        if not end:
            raise KubeboxError(f"{readme} has no place for the table: {_BEGIN.strip()} … {_END}")
        new = (
            head
            + _BEGIN
            + values_table((CHARTS / name / "values.yaml").read_text(encoding="utf-8"))
            + _END
            + tail
        )
        if new != old and write:
            readme.write_text(new, encoding="utf-8")
        elif new != old:
            stale.append(readme)
    for readme in stale:
        sys.stderr.write(f"{readme} is stale: run `make charts`\n")
    return 1 if stale else 0


def values_table(text: str) -> str:
    """Return the table of values of a values.yaml."""
    values = yaml.safe_load(text) or {}
    described = dict(_descriptions(text))
    for path in _leaves(values, ()):
        if not any(path[:length] in described for length in range(1, len(path) + 1)):
            raise KubeboxError(f"the value {'.'.join(path)} has no comment that begins with `# --`")
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, words in described.items():
        rows.append(
            f"| `{'.'.join(path)}` | {_default(_at(values, path))} | {words.replace('|', '&#124;')} |"
        )
    return "\n".join([*rows, ""])


def _descriptions(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and the description of each value that has one, in the order of the file."""
    stack: list[tuple[int, str]] = []
    words: list[str] = []
    for line in text.splitlines():
        comment = line.strip()
        if comment.startswith("# -- "):
            words = [comment.removeprefix("# -- ")]
        elif comment.startswith("#") and words:
            words.append(comment.removeprefix("#").strip())
        elif match := _KEY.match(line):
            depth = len(match[1])
            stack = [entry for entry in stack if entry[0] < depth] + [(depth, match[2].strip("'\""))]
            if words:
                yield tuple(name for _, name in stack), " ".join(words)
            words = []
        else:
            words = []


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif path:
        yield path


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _default(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if len(text) <= _LONGEST_DEFAULT else "see values.yaml"


if __name__ == "__main__":
    raise SystemExit(main())
