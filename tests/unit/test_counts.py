"""The counts that `make lint` keeps from growing."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from scripts.counts import LIMITS, NODESET, Limit, Module, counted, grown, lowered, reached, read

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = NODESET.replace(".", "/")
PLAN, RECONCILER = f"{NODESET}.plan", f"{NODESET}.run"
FILES = {
    "slurm_operator/__init__.py": "",
    "slurm_operator/controllers/__init__.py": "",
    f"{FOLDER}/__init__.py": "'''For people.'''",
    f"{FOLDER}/plan.py": f"from {NODESET} import rules\nfrom slurm_operator.model import Model\n",
    f"{FOLDER}/rules.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from slurm_operator import hints\n"
        "class Rule: ...\n"
    ),
    f"{FOLDER}/run.py": f"import {NODESET}.plan\nfrom slurm_operator import client\n",
    f"{FOLDER}/unused.py": "",
    "slurm_operator/model.py": "class Model: ...\nclass Rule: ...\n",
    "slurm_operator/client.py": "# nobody, whoever, but no nobodyelse\nclass Rule: ...\n",
    "slurm_operator/hints.py": "def f():\n    class Model: ...\n",
    "slurm_operator/other/__init__.py": "",
    "slurm_operator/other/model.py": "",
}


def tree(folder: Path) -> Path:
    """Write a small source tree."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_scale_in_crosses_what_plan_imports_and_what_the_controller_runs(tmp_path: Path) -> None:
    """Imports for type checkers do not count, nor do clients that the reconciler uses."""
    modules = read(tree(tmp_path))
    assert reached(modules, PLAN) == {PLAN, f"{NODESET}.rules", "slurm_operator.model"}
    assert reached(modules, RECONCILER, f"{NODESET}.") == {RECONCILER, PLAN, f"{NODESET}.rules"}
    assert counted(modules, PLAN, RECONCILER) == {
        "scale-in modules": 4,
        "vague persons": 3,
        "repeated classes": 1,
        "repeated modules": 1,
        "NodeSet modules": 4,
    }


def test_entry_that_was_moved_is_an_error(tmp_path: Path) -> None:
    """A count of 0 would pass for progress."""
    with pytest.raises(SystemExit, match=r"counts\.toml"):
        reached(read(tree(tmp_path)), f"{NODESET}.gone")


def test_only_growth_fails_and_limits_are_only_lowered() -> None:
    """A count at its limit passes; `--write` lowers a limit and raises none."""
    limits = {"one thing": Limit(5, 1), "another": Limit(2, 1)}
    text = '"one thing" = { limit = 5, goal = 1 }\n"another" = { limit = 2, goal = 1 }\n'
    assert not grown({"one thing": 5, "another": 0}, limits)
    assert grown({"one thing": 4, "another": 3}, limits) == ["another: 3, and the limit is 2"]
    assert lowered(text, {"one thing": 4, "another": 3}, limits) == text.replace("5", "4")


def test_every_count_has_a_limit() -> None:
    """The limits that are recorded are those of the counts."""
    settings = tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    assert settings["counts"].keys() == counted({PLAN: read_one()}, PLAN, PLAN).keys()


def read_one() -> Module:
    """Return an empty module."""
    return Module(PLAN, frozenset(), (), "")
