"""The parts of a Slurm box that need no Slurm: wishes, configuration, tokens, packages."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jwt as pyjwt
import pytest

from kubebox import SlurmSpec, SpecError, ToolError
from kubebox.slurm import daemons, jwt, packages
from kubebox.slurm.ports import SlurmPort, listening
from kubebox.slurm.rootfs import RELEASES, Release, provide_root
from kubebox.slurm.spec import check_node_name

ROOT = Path(__file__).resolve().parents[3]
PORTS = {"slurmctld": 1001, "slurmrestd": 1002, "slurmdbd": 1003}


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"release": "1.0"}, "release: '1.0' is not one of 26.05, 24.11"),
        ({"nodes": -1}, "nodes: -1 is not between"),
        ({"nodes": 10_000}, "nodes: 10000 is not between"),
        ({"cloud_nodes": -1}, "cloud_nodes: -1 is not between"),
        ({"name": "Bad Name"}, "name: 'Bad Name' is no box name"),
        ({"node_conf": "CPUs=1\nGres=x"}, "node_conf: holds a line break"),
        ({"return_to_service": 3}, "return_to_service: 3 is not 0, 1 or 2"),
        ({"ready_timeout": 0}, "ready_timeout: 0 is not a positive"),
        ({"controllers": ()}, "controllers: .* are not one or more"),
        ({"controllers": ("a", "a")}, "controllers: .* different host names"),
    ],
)
def test_wish_that_cannot_work_names_its_field(wish: dict[str, Any], complaint: str) -> None:
    """A spec is checked when it is made, and the error names the field."""
    with pytest.raises(SpecError, match=complaint):
        SlurmSpec(**wish)


def test_spec_survives_the_way_to_the_supervisor() -> None:
    """What `to_json` writes, `from_json` reads back as an equal spec."""
    spec = SlurmSpec(nodes=2, accounting=True, extra_conf="A=b", name="x", return_to_service=0)
    assert SlurmSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.node_names == ["n0", "n1"]


@pytest.mark.parametrize("name", ["", "-x", "X", "a b", "a/b", "a" * 64, "n[0-3]"])
def test_node_name_is_checked(name: str) -> None:
    """A name that is no host name, or that Slurm would read as a list, is refused."""
    with pytest.raises(SpecError, match="cannot be used"):
        check_node_name(name)


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_configuration_follows_the_spec() -> None:
    """slurm.conf holds the box's ports and wishes, and the caller's own lines come last."""
    spec = SlurmSpec(return_to_service=1, cloud_nodes=20, node_conf="CPUs=8", accounting=True)
    text = daemons.slurm_conf(spec, PORTS, "KillWait=9")
    found = settings(text)
    assert found["SlurmctldPort"] == "1001"
    assert found["ReturnToService"] == "1"
    assert found["NodeName"] == "c[0000-0019] CPUs=8 State=CLOUD"
    assert found["AccountingStoragePort"] == "1003"
    assert found["KillWait"] == "9"
    assert text.endswith("KillWait=9\n")
    assert "NodeName" not in daemons.slurm_conf(SlurmSpec(), PORTS, "")
    assert "AccountingStorage" not in daemons.slurm_conf(SlurmSpec(), PORTS, "")


def test_standbys_share_all_but_their_address() -> None:
    """Every slurmctld is in slurm.conf and /etc/hosts under a name and an address of its own."""
    spec = SlurmSpec(controllers=("one", "two"))
    text = daemons.slurm_conf(spec, PORTS, "")
    assert "SlurmctldHost=one(127.0.0.1)\nSlurmctldHost=two(127.0.0.2)\nSlurmctldPort=1001\n" in text
    assert "127.0.0.2 two\n" in daemons.hosts(spec, ())
    assert [daemon.name for daemon in daemons.slurmctlds(spec, PORTS)] == ["slurmctld", "slurmctld-1"]


def test_daemons_listen_where_the_box_says() -> None:
    """Every daemon is told its own address and the address of slurmctld, on loopback."""
    slurmd = daemons.slurmd("n7", "CPUs=2", 1010, PORTS)
    assert (slurmd.name, slurmd.user, slurmd.port, slurmd.node) == ("slurmd-n7", "root", 1010, "n7")
    assert slurmd.argv[-1] == "NodeAddr=127.0.0.1 Port=1010 CPUs=2"
    assert "127.0.0.1:1001" in slurmd.argv
    restd = daemons.slurmrestd(SlurmSpec(), PORTS)
    assert restd.argv[-1] == "127.0.0.1:1002"
    assert restd.user == "nobody"
    assert "DbdPort=1003\n" in daemons.slurmdbd_conf(PORTS)
    assert "127.0.0.1 n0\n" in daemons.hosts(SlurmSpec(), ["n0"])


def test_token_is_what_others_understand() -> None:
    """A token is a JWT for its user, signed by the key and by no other, until its time is over."""
    now = time.time()
    token = jwt.mint(b"k" * 32, "alice", 60.0, now)
    claims = pyjwt.decode(token, b"k" * 32, algorithms=["HS256"])
    assert claims == {"sun": "alice", "iat": int(now), "exp": int(now + 60)}
    with pytest.raises(pyjwt.InvalidSignatureError):
        pyjwt.decode(token, b"x" * 32, algorithms=["HS256"])
    with pytest.raises(pyjwt.ExpiredSignatureError):
        pyjwt.decode(jwt.mint(b"k" * 32, "alice", -5.0, now), b"k" * 32, algorithms=["HS256"])


def test_port_is_held_for_servers_that_reuse_addresses() -> None:
    """A held port is let to a server with SO_REUSEADDR, again and again, and to nobody else."""
    held = SlurmPort()
    try:
        for _ in range(2):
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("127.0.0.1", held.port))
                assert not listening(held.port)
                server.listen()
                assert listening(held.port)
            with socket.socket() as stranger, pytest.raises(OSError, match="Address already in use"):
                stranger.bind(("127.0.0.1", held.port))
    finally:
        held.close()


def test_root_file_systems_have_keys_of_their_own() -> None:
    """The cache key tells releases and architectures apart, and is the same for the same content."""
    keys = {release.key(machine) for release in RELEASES.values() for machine in ("amd64", "arm64")}
    assert len(keys) == 4
    assert Release("26.05", "forky").key("amd64") in keys


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """Make a Debian repository of one package and return its line for sources.list."""
    source, arch = tmp_path / "hello", packages.architecture()
    (source / "DEBIAN").mkdir(parents=True)
    (source / "DEBIAN" / "control").write_text(
        f"Package: hello\nVersion: 1.2-3\nArchitecture: {arch}\nMaintainer: x <x@example.com>\n"
        "Description: a file\n"
    )
    (source / "usr" / "bin").mkdir(parents=True)
    (source / "usr" / "bin" / "hello").write_text("#!/bin/sh\n")
    index = tmp_path / "repo" / "dists" / "stable" / "main" / f"binary-{arch}"
    index.mkdir(parents=True)
    deb = tmp_path / "repo" / "hello.deb"
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", source, deb], check=True, capture_output=True
    )
    digest = subprocess.run(["sha256sum", deb], check=True, capture_output=True, text=True).stdout.split()[0]
    control = (source / "DEBIAN" / "control").read_text()
    entry = f"{control}Filename: hello.deb\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"
    (index / "Packages").write_text(entry)
    # The archive's own account of itself is past its date, as a testing suite's may be.
    (index.parents[1] / "Release").write_text(
        f"Suite: stable\nCodename: stable\nComponents: main\nArchitectures: {arch}\n"
        "Date: Sat, 01 Jan 2022 00:00:00 UTC\nValid-Until: Sat, 08 Jan 2022 00:00:00 UTC\n"
    )
    return f"[trusted=yes] copy:{tmp_path / 'repo'}"


def test_packages_are_fetched_and_unpacked(repository: str, tmp_path: Path) -> None:
    """apt fetches from the given source, whatever its date, and the files of a package come out."""
    said: list[str] = []
    found = packages.download(repository, "stable", ["hello"], tmp_path / "apt", said.append)
    assert [packages.version_of(package) for package in found] == ["1.2-3"]
    (tmp_path / "root").mkdir()
    packages.unpack(found, tmp_path / "root")
    assert (tmp_path / "root" / "usr" / "bin" / "hello").read_text() == "#!/bin/sh\n"
    assert said == ["reading the package lists of Debian stable", "downloading packages of Debian stable"]


def test_suite_or_package_that_is_not_there_is_named(repository: str, tmp_path: Path) -> None:
    """A missing suite and a missing package are errors that say which, with apt's own words."""
    with pytest.raises(ToolError, match=r"(?s)Debian nowhere cannot be had.*nowhere"):
        packages.download(repository, "nowhere", ["hello"], tmp_path / "a", print)
    with pytest.raises(ToolError, match=r"(?s)packages of Debian stable cannot be had.*other"):
        packages.download(repository, "stable", ["other"], tmp_path / "b", print)


def test_broken_package_is_named(tmp_path: Path) -> None:
    """A package that cannot be unpacked is an error with its name."""
    broken = tmp_path / "broken.deb"
    broken.write_bytes(b"no archive")
    with pytest.raises(ToolError, match=r"unpacking broken\.deb failed"):
        packages.unpack([broken], tmp_path)


def test_unknown_release_is_refused() -> None:
    """Asking for the root file system of a release that kubebox does not have names those it has."""
    with pytest.raises(SpecError, match=r"use one of 26\.05, 24\.11"):
        provide_root("1.0", print)


def kubebox(home: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "KUBEBOX_STATE_HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "kubebox", "slurm", *arguments],
        cwd=ROOT,
        env=environ if path is None else {**environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required: COMMAND"),
        (["up", "--release", "1.0"], "invalid choice: '1.0'"),
        (["up", "--nodes", "-1"], "nodes: -1 is not between"),
        (["up", "Bad Name"], "name: 'Bad Name' is no box name"),
        (["exec"], "required: PROGRAM"),
        (["exec", "--user", "carol", "--", "sinfo"], "invalid choice: 'carol'"),
    ],
)
def test_wrong_arguments_are_explained(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    """A wrong argument gives one sentence on standard error and exit status 2, and starts nothing."""
    result = kubebox(tmp_path, *arguments)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_machine_without_apt_is_told_so(tmp_path: Path) -> None:
    """Without Debian's tools there is one sentence about what is needed, and nothing is left in the cache."""
    result = kubebox(tmp_path, "build", path="/nonexistent")
    assert (result.returncode, result.stdout) == (1, "")
    assert "there is no dpkg-deb on PATH: use a Debian machine or container" in result.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("arguments", [["status"], ["down"], ["down", "--all"]])
def test_nothing_to_do_is_no_error(tmp_path: Path, arguments: list[str]) -> None:
    """Looking at and taking down what is not there succeeds and says so."""
    result = kubebox(tmp_path, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert "is up" in result.stdout
