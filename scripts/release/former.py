"""Charts and image of an earlier commit, built by the scripts of that commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox.errors import ToolError

if TYPE_CHECKING:
    from kubebox.slurm.packages import Progress

# What upgrades are checked from, until there is a release before this one.
COMMIT = "9c7a78f"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Former:
    """The artifacts of an earlier commit."""

    charts: Path
    archive: Path
    image: str
    tag: str


def artifacts(commit: str, home: Path, say: Progress) -> Former:
    """Check out a commit beside the tree, and build the operator's image as it did."""
    tree, packed = home / "former", home / "former.tar"
    done = subprocess.run(
        [shutil.which("git") or "git", "archive", "--output", str(packed), commit],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ToolError(
            f"commit {commit} is not in this clone ({done.stderr.strip()}): the upgrade is checked from "
            "it. A shallow clone gets it by `git fetch --unshallow`; --only install leaves the upgrade out"
        )
    with tarfile.open(packed) as archive:
        archive.extractall(tree, filter="data")
    say(f"building the image of {commit}")
    command = [sys.executable, "scripts/images.py", "operator", "--output", str(home / "former-image")]
    environment = {**os.environ, "PYTHONPATH": "src:."}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolError(f"the image of {commit} cannot be built:\n{done.stderr.strip()}")
    return Former(tree / "charts", home / "former-image" / "operator.tar", "slurm-operator", "dev")
