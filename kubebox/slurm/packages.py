"""Debian packages as files, by the machine's own apt and nothing else.

apt runs with a state of its own in a scratch folder: an empty list of installed packages, one suite, and the
mirror, proxy, credentials and keyrings of the machine's configuration. So it checks signatures as always,
works out what a minimal system needs, and only downloads. `dpkg-deb -x` then unpacks; no package script ever
runs, which is why two dozen lines (see rootfs.py) have to make the users and links that scripts would have
made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubebox.errors import ToolError
from kubebox.procs import die_with_parent

if TYPE_CHECKING:
    from pathlib import Path

Progress = Callable[[str], None]
_APT_SECONDS = 900.0
_UNPACK_SECONDS = 300.0
_HEARTBEAT = 15.0
_ERROR_LINES = 8
# Debian proper among the machine's sources: other repositories do not hold the suites we need.
_TARGETS = ("indextargets", "--format", "$(REPO_URI) $(SIGNED_BY)", "Created-By: Packages")
_NEEDED = "Slurm boxes are made from Debian packages"


@dataclass(frozen=True)
class Package:
    """A Debian package: what its control file says, and the digest of the file it came in."""

    name: str
    version: str
    architecture: str
    source: str
    suite: str
    sha256: str
    control: str


def architecture() -> str:
    """Return the machine's name for its own kind of processor, as packages spell it."""
    _find("dpkg-deb")
    return _run([_find("dpkg"), "--print-architecture"], "dpkg", 30.0).strip()


def mirror() -> str:
    """Return where the machine gets Debian from, as a line of sources.list names it."""
    if (found := _source("Debian")) is not None:
        return found
    raise ToolError(
        f"{_NEEDED}, and apt knows no mirror of Debian: add one under /etc/apt and run `apt-get update`"
    )


def security_mirror() -> str | None:
    """Return where the machine gets security updates of stable suites from, if it does."""
    return _source("Debian-Security")


def _source(label: str) -> str | None:
    command = [_find("apt-get"), *_TARGETS, f"Label: {label}"]
    for line in _run(command, "apt-get indextargets", 60.0).splitlines():
        uri, _, keyring = line.partition(" ")
        # apt leaves the words as they are when a source names no keyring of its own.
        return f"[signed-by={keyring}] {uri}" if keyring.startswith("/") else uri
    return None


def download(
    source: str,
    suite: str,
    names: Iterable[str],
    folder: Path,
    progress: Progress,
    *,
    security: str | None = None,
) -> list[Path]:
    """Fetch packages with all they depend on into `folder` and return the files."""
    apt_get = _find("apt-get")
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    sources = [f"deb {source} {suite} main", *([f"deb {security} {suite}-security main"] if security else [])]
    (folder / "sources.list").write_text("\n".join(sources) + "\n", encoding="utf-8")
    command = [apt_get, *_options(folder)]
    progress(f"reading the package lists of Debian {suite}")
    _run([*command, "update"], f"Debian {suite} cannot be had: apt-get update", _APT_SECONDS)
    progress(f"downloading packages of Debian {suite}")
    archives = folder / "cache" / "archives"
    _run(
        [*command, "install", "--download-only", "--yes", *names],
        f"packages of Debian {suite} cannot be had: apt-get install",
        _APT_SECONDS,
        lambda: progress(f"{len(list(archives.glob('*.deb')))} packages downloaded"),
    )
    return sorted(archives.glob("*.deb"))


def version_of(package: Path) -> str:
    """Return the version that a package file names."""
    return _run([_find("dpkg-deb"), "--field", str(package), "Version"], "dpkg-deb", 30.0).strip()


def describe(package: Path, suite: str) -> Package:
    """Return what a package file says about itself."""
    control = _run([_find("dpkg-deb"), "--field", str(package)], "dpkg-deb", 30.0)
    fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line and line[0] != " ")
    with package.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Package(
        fields["Package"],
        fields["Version"],
        fields["Architecture"],
        # "name" or "name (version)", where the source has another one than the package.
        fields.get("Source", fields["Package"]).partition(" ")[0],
        suite,
        digest,
        control,
    )


def unpack(packages: Sequence[Path], target: Path) -> None:
    """Unpack packages into `target`, those that lay the ground first."""
    # base-files makes /bin and /lib the links that all others expect to find.
    first = [package for package in packages if package.name.startswith("base-files_")]
    rest = [package for package in packages if package not in first]
    dpkg_deb = _find("dpkg-deb")

    for package in (*first, *rest):
        _run([dpkg_deb, "-x", str(package), str(target)], f"unpacking {package.name}", _UNPACK_SECONDS)


def keep_copyrights(root: Path, target: Path) -> None:
    """Copy the copyright file of every unpacked package: a package is passed on with its copyright file."""
    for folder in sorted((root / "usr" / "share" / "doc").iterdir()):
        # A package may share the folder of another one, by a link.
        file = folder / "copyright"
        if file.is_file() and file.resolve().is_relative_to(root.resolve()):
            place = target / "usr" / "share" / "doc" / folder.name
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place / "copyright")


def _options(folder: Path) -> list[str]:
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        # A testing suite that is not refreshed for a while is past its date; its signature still holds.
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "APT::Install-Recommends": "false",
        # The scratch folder is private, and apt's own user could not write into it.
        "APT::Sandbox::User": "root",
    }
    return ["-qq", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]


def _find(program: str) -> str:
    if (path := shutil.which(program)) is None:
        raise ToolError(f"{_NEEDED}, and there is no {program} on PATH: use a Debian machine or container")
    return path


def _run(command: Sequence[str], what: str, seconds: float, beat: Callable[[], None] = lambda: None) -> str:
    """Run a program and return what it prints; call `beat` every few seconds while it works."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        # Nothing of ours may outlive us, and the forking thread waits here until the child has ended.
        preexec_fn=die_with_parent(),  # noqa: PLW1509
    ) as process:
        try:
            output, complaint = _listen(process, time.monotonic() + seconds, beat)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise ToolError(f"{what}: no end within {seconds:g} s") from None
            raise
    if process.returncode != 0:
        lines = "\n".join((complaint or output).strip().splitlines()[-_ERROR_LINES:])
        raise ToolError(f"{what} failed:\n{lines}")
    return output


def _listen(process: subprocess.Popen[str], deadline: float, beat: Callable[[], None]) -> tuple[str, str]:
    """Return what a program said on both channels until its end; TimeoutExpired at the deadline."""
    while True:
        try:
            return process.communicate(timeout=_HEARTBEAT)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise
            beat()
