"""The counts that `make lint` keeps from growing."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from scripts.counts import LIMITS, NODESET, Limit, Module, counted, grown, lowered, read, scale_in

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = NODESET.replace(".", "/")
PLAN = f"{NODESET}.plan"
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


def test_what_is_counted(tmp_path: Path) -> None:
    """Words and classes of all modules, the modules of the NodeSet controller, those that a scale-in runs."""
    assert counted(read(tree(tmp_path)), [PLAN]) == {
        "scale-in modules": 1,
        "vague persons": 3,
        "repeated classes": 1,
        "repeated modules": 1,
        "NodeSet modules": 4,
    }


def test_a_listed_module_that_was_moved_is_an_error(tmp_path: Path) -> None:
    """A list that is out of date would pass for progress."""
    modules = read(tree(tmp_path))
    assert scale_in(f"{PLAN}\n", modules) == [PLAN]
    with pytest.raises(SystemExit, match="scale_in_modules"):
        scale_in(f"{PLAN}\n{NODESET}.gone\n", modules)


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
    assert settings["counts"].keys() == counted({PLAN: Module(PLAN, (), "")}, ()).keys()
