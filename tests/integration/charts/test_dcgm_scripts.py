"""The prolog and the epilog for NVIDIA's DCGM, run as slurmd runs them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.charts.helm import SLURM

if TYPE_CHECKING:
    from pathlib import Path


class Node:
    """A node whose jobs are told to DCGM in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, script: str, **environment: str) -> None:
        """Run one of the scripts; it must not fail, because that would take the node out of service."""
        text = (SLURM / "files" / f"dcgm-{script}.sh").read_text(encoding="utf-8")
        command = ["/bin/sh", "-c", text.replace("@DIRECTORY@", str(self.folder))]
        path = {"PATH": "/usr/bin:/bin"}
        subprocess.run(command, env={**path, **environment}, check=True, capture_output=True)

    def jobs(self) -> dict[str, list[str]]:
        """Return the jobs of each GPU."""
        return {path.name: path.read_text().split() for path in self.folder.iterdir()}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Hand out a node without jobs."""
    return Node(tmp_path / "job-mapping")


def test_each_gpu_has_its_jobs(node: Node) -> None:
    """A job is named for each of its GPUs, once, until it ends."""
    node.run("prolog", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1")
    node.run("prolog", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1")
    node.run("prolog", SLURM_JOB_ID="77", SLURM_JOB_GPUS="1")
    assert node.jobs() == {"0": ["7"], "1": ["7", "77"]}
    node.run("epilog", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1")
    assert node.jobs() == {"1": ["77"]}
    node.run("epilog", SLURM_JOB_ID="77")
    assert node.jobs() == {}


def test_a_job_without_gpus_leaves_no_trace(node: Node) -> None:
    """Jobs without GPUs write nothing, and an epilog without a folder is content."""
    node.run("prolog", SLURM_JOB_ID="7")
    node.run("epilog", SLURM_JOB_ID="7")
    assert not node.folder.exists()


def test_a_folder_that_cannot_be_written_is_no_failure(node: Node) -> None:
    """A node stays in service although its figures cannot be told."""
    node.folder.write_text("a file where the folder should be")
    node.run("prolog", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0")
    node.run("epilog", SLURM_JOB_ID="7")
