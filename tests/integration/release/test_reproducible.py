"""A release that is built twice, the second time from nothing, and what its images hold."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

ROOT = Path(__file__).resolve().parents[3]


def sums(folder: Path, cache: Path | None, umask: str) -> dict[str, str]:
    """Build a release into a folder and return its checksums."""
    environment = {**os.environ, "PYTHONPATH": "src:."}
    if cache is not None:
        environment["XDG_CACHE_HOME"] = str(cache)
    build = f"umask {umask}; exec {sys.executable} -m scripts.release.build --output {folder}"
    done = subprocess.run(
        ["sh", "-c", build], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, check=False
    )
    assert check.returncode == 0
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


@dataclass(frozen=True)
class Release:
    """A release, with the checksums of its files."""

    folder: Path
    sums: dict[str, str]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Build a release as usual."""
    folder = tmp_path_factory.mktemp("release") / "first"
    return Release(folder, sums(folder, None, "022"))


def test_two_builds_have_equal_checksums(release: Release, tmp_path: Path) -> None:
    """Packages, libraries and trees that are fetched and made again give the same bytes in every file."""
    assert sums(tmp_path / "second", tmp_path / "cache", "077") == release.sums
    assert len(release.sums) == len(list(release.folder.iterdir())) - 1


def files(archive: Path) -> dict[str, str]:
    """Return the files of all images of an archive, each with the users among its lines."""
    found = {}
    with tarfile.open(archive) as outer:
        for member in outer:
            content = outer.extractfile(member)
            if content is None or content.read(2) != b"\x1f\x8b":
                continue
            content.seek(0)
            with tarfile.open(fileobj=content, mode="r:gz") as layer:
                for inner in layer:
                    text = layer.extractfile(inner) if inner.name == "etc/passwd" else None
                    found[inner.name] = text.read().decode() if text is not None else ""
    return found


def test_operator_image_has_nothing_to_change_it_with(release: Release) -> None:
    """There is no shell and no package manager in it, and what scanners read is there."""
    (archive,) = release.folder.glob("slurm-operator-*.oci.tar")
    found = files(archive)
    programs = {name.rpartition("/")[2] for name in found if name.startswith(("usr/bin/", "usr/sbin/"))}
    assert not programs & {"sh", "bash", "dash", "busybox", "dpkg", "apt", "pip", "perl", "tar"}
    assert "usr/bin/python3.13" in found
    assert "var/lib/dpkg/status.d/libc6" in found
    assert "usr/share/doc/libc6/copyright" in found


def test_slurm_images_have_no_users_of_tests(release: Release) -> None:
    """The users in a released image are those of Debian and of the daemons."""
    (archive,) = release.folder.glob("slurm-26.05-*.oci.tar")
    found = files(archive)
    users = {line.partition(":")[0] for line in found["etc/passwd"].splitlines()}
    assert {"slurm", "mysql", "sshd"} <= users
    assert not {"alice", "bob"} & users
    assert not [name for name in found if name.startswith("home/")]
