"""The unit tests that a change concerns: `check.py PYTEST...` runs them, `check.py --list` names them.

What has changed: files that differ from where this branch left `main`, committed or not, new ones among
them. A test file concerns a module if it imports it, by itself or through a helper below `tests`; a module
that no test imports is followed to the modules that import it. A changed test runs itself, a changed helper
runs what imports it, and a page runs the tests of the documentation. Where nothing is known about changes,
without git or without a common commit, all unit tests are run.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
ALL: Final = "tests/unit"
# The modules that read pages, charts and examples, and import none of them, begin with this.
PAGES: Final = "tests.unit.test_docs_"
BRANCHES: Final = ("main", "origin/main")
# Changes of these concern every test.
GENERAL: Final = ("pyproject.toml", "tests/conftest.py", "requirements/dev.txt")
FOLDERS: Final = ("src", "tests", "scripts", "kubebox", "bench")
_NO_TESTS: Final = 5


def module_name(path: str) -> str:
    """Return the name by which a file is imported; nothing if it is no module."""
    if not path.endswith(".py"):
        return ""
    parts = Path(path.removeprefix("src/")).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(text: str, modules: Mapping[str, str]) -> set[str]:
    """Return the modules of this tree that a text imports, for type checkers or not."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else node.module)
    return found & modules.keys()


def read(root: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the modules of a tree with their files, and which modules each of them imports."""
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    modules = {module_name(name): name for name in (str(path.relative_to(root)) for path in files)}
    texts = {name: (root / path).read_text(encoding="utf-8") for name, path in modules.items()}
    return modules, {name: imports(text, modules) for name, text in texts.items()}


def concerned(changed: Iterable[str], modules: Mapping[str, str], needs: Mapping[str, set[str]]) -> list[str]:
    """Return the unit tests that a change of these files concerns; all of them if it may concern any."""
    found: set[str] = set()
    for path in changed:
        if path in GENERAL:
            return [ALL]
        name = module_name(path)
        if name in modules:
            found |= _tests_of(name, modules, needs)
        elif not path.endswith(".py"):
            found |= {file for one, file in modules.items() if one.startswith(PAGES)}
    return sorted(found)


def _tests_of(name: str, modules: Mapping[str, str], needs: Mapping[str, set[str]]) -> set[str]:
    """Return the unit tests nearest to a module: those that import it, else those of what imports it."""
    seen, edge = {name}, {name}
    found = {name} & {one for one in modules if _is_unit_test(modules[one])}
    while edge and not found:
        edge = {one for one, needed in needs.items() if needed & edge} - seen
        seen |= edge
        helpers = {one for one in edge if modules[one].startswith("tests/")}
        # A helper of tests is as near as the tests that use it.
        while more := {one for one, needed in needs.items() if needed & helpers and one not in seen}:
            seen |= more
            edge |= more
            helpers = {one for one in more if modules[one].startswith("tests/")}
        found = {one for one in edge if _is_unit_test(modules[one])}
    return {modules[one] for one in found}


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")


def _is_unit_test(path: str) -> bool:
    return _is_test(path) and path.startswith(f"{ALL}/")


def changed_files(root: Path) -> list[str] | None:
    """Return the files that exist and differ from where this branch left main; None if that is unknown."""
    base = next(filter(None, (_git(root, "merge-base", branch, "HEAD") for branch in BRANCHES)), None)
    if base is None:
        return None
    lists = (
        _git(root, "diff", "--name-only", "--no-renames", base[0]),
        _git(root, "ls-files", "--others", "--exclude-standard"),
    )
    if None in lists:
        return None
    return sorted({path for paths in lists if paths for path in paths if (root / path).exists()})


def _git(root: Path, *arguments: str) -> list[str] | None:
    """Return the lines that git prints; None if it fails."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def main(arguments: Sequence[str]) -> int:
    """Run the unit tests that the changes concern."""
    changed = changed_files(ROOT)
    tests = [ALL] if changed is None else concerned(changed, *read(ROOT))
    if arguments[:1] == ["--list"]:
        print("\n".join(tests))
        return 0
    if slow := [path for path in changed or () if _is_test(path) and not _is_unit_test(path)]:
        print(f"not run, as they need servers: make test PYTEST_ARGS='{' '.join(slow)}'")
    if not tests:
        print("no unit test concerns what has changed")
        return 0
    print(f"{len(changed or ())} changed files, {len(tests)} files of tests", flush=True)
    code = subprocess.run([*arguments, "-q", *tests], cwd=ROOT, env=os.environ, check=False).returncode
    return 0 if code == _NO_TESTS else code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
