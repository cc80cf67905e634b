"""Which unit tests `make check` runs after a change."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from scripts.check import ALL, changed_files, concerned, read

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "src/app/__init__.py": "",
    "src/app/rules.py": "",
    "src/app/engine.py": "from app import rules",
    "src/app/lonely.py": "",
    "tests/helping.py": "from app.rules import rule",
    "tests/unit/test_rules.py": "import app.rules",
    "tests/unit/test_through.py": "from tests import helping",
    "tests/unit/test_docs_links.py": "",
    "tests/unit/test_docs_words.py": "",
    "tests/unit/test_engine.py": "from app.engine import run",
    "tests/integration/test_rules.py": "import app.rules",
}
USER = ("-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false")


def tree(folder: Path) -> Path:
    """Write a small project."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    return folder


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/app/rules.py", ["test_rules.py", "test_through.py"]),
        ("src/app/engine.py", ["test_engine.py"]),
        ("src/app/lonely.py", []),
        ("tests/helping.py", ["test_through.py"]),
        ("tests/unit/test_engine.py", ["test_engine.py"]),
        ("tests/integration/test_rules.py", []),
    ],
)
def test_tests_that_import_a_module_concern_it(tmp_path: Path, changed: str, tests: list[str]) -> None:
    """The nearest unit tests are chosen: by themselves or through a helper they import what has changed."""
    assert concerned([changed], *read(tree(tmp_path))) == [f"tests/unit/{name}" for name in tests]


def test_module_without_tests_has_those_of_what_imports_it(tmp_path: Path) -> None:
    """A module that no test names is tested through others."""
    (tree(tmp_path) / "src/app/deep.py").touch()
    (tmp_path / "src/app/engine.py").write_text("from app import deep\n")
    assert concerned(["src/app/deep.py"], *read(tmp_path)) == ["tests/unit/test_engine.py"]


def test_pages_and_settings_have_tests_as_well(tmp_path: Path) -> None:
    """A page is compared with the tree, and what concerns all tests runs all of them."""
    known = read(tree(tmp_path))
    pages = ["tests/unit/test_docs_links.py", "tests/unit/test_docs_words.py"]
    assert concerned(["docs/README.md"], *known) == pages
    assert concerned(["src/app/rules.py", "pyproject.toml"], *known) == [ALL]
    assert concerned([], *known) == []


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *USER, *arguments], check=True, capture_output=True)


def test_changes_are_those_since_the_branch_left_main(tmp_path: Path) -> None:
    """Commits of the branch, changes of the work tree and new files count; what main did since does not."""
    assert changed_files(tmp_path) is None
    tree(tmp_path)
    git(tmp_path, "init", "--initial-branch=main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message=all")
    assert changed_files(tmp_path) == []
    git(tmp_path, "switch", "--create", "work")
    (tmp_path / "src/app/rules.py").write_text("changed = 1\n")
    (tmp_path / "src/app/lonely.py").unlink()
    git(tmp_path, "commit", "--all", "--message=work")
    git(tmp_path, "switch", "main")
    (tmp_path / "tests/helping.py").write_text("changed = 1\n")
    git(tmp_path, "commit", "--all", "--message=other")
    git(tmp_path, "switch", "work")
    (tmp_path / "src/app/engine.py").write_text("changed = 1\n")
    (tmp_path / "new.md").touch()
    assert changed_files(tmp_path) == ["new.md", "src/app/engine.py", "src/app/rules.py"]
