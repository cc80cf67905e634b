from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kubebox.console import Stopwatch
from kubebox.nodes.ground import what_is_lacking
from scripts.demo_cluster import (
    KUBEBOX_VALUES,
    RELEASE,
    ROOT,
    Cluster,
    await_slurm,
    images,
    install_operator,
    install_slurm,
    real_box,
)
from tests.support.e2e.slurm_cluster import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# One node is free, so that a worker can move.
WORKERS = 2
# All workers may be replaced at once: what holds one back is its job.
SETTINGS = f"nodesets.demo.replicas={WORKERS},nodesets.demo.updateStrategy.rollingUpdate.maxUnavailable=100%"
# How soon pods leave a node that is silent; Kubernetes itself waits for 300 s.
TOLERATION = 20
SOONER = [f"--default-{taint}-toleration-seconds={TOLERATION}" for taint in ("not-ready", "unreachable")]
HA_VALUES = ROOT / "examples" / "ha-values.yaml"
FIGURES = pytest.StashKey[list[str]]()
FAILED = pytest.StashKey[int]()

LACKING = what_is_lacking()
collect_ignore_glob = ["test_*.py"] if LACKING else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how long everything took; or why these tests were left out, where there can be no real nodes."""
    if LACKING:
        terminalreporter.section("tests/e2e were NOT run", yellow=True)
        terminalreporter.line(f"real nodes are impossible here: {LACKING}")
        return
    ended = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    calls = [each for each in ended if each.when == "call" and each.nodeid.startswith("tests/e2e/")]
    if calls:
        terminalreporter.section("tests/e2e: how long it took")
        for each in calls:
            terminalreporter.line(f"{each.duration:6.1f} s  {each.nodeid.rpartition('::')[2]}")
        for line in config.stash.get(FIGURES, []):
            terminalreporter.line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that wait for pods and jobs the time they may take on a busy machine."""
    for item in items:
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1500))


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take the nodes down after the last of these tests: fixtures of a session stay until its very end."""
    funcargs: dict[str, object] = getattr(item, "funcargs", {})
    last = nextitem is None or nextitem.path.parent != item.path.parent
    if last and isinstance(found := funcargs.get("site"), Site):
        found.box.down()


@pytest.fixture(scope="session")
def site(
    kube_programs: object, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Install everything from nothing: Kubernetes with real nodes, the operator, a Slurm cluster."""
    del kube_programs
    home: Path = tmp_path_factory.mktemp("e2e")
    say = Stopwatch(sys.stderr)
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    with real_box(None, images(say), say, apiserver_args=SOONER) as box:
        cluster = Cluster(box.kubeconfig, home, say)
        install_operator(cluster)
        install_slurm(
            cluster,
            "--values",
            str(KUBEBOX_VALUES),
            "--set",
            SETTINGS,
            "--set",
            f"loginsetDefaults.rootSshAuthorizedKeys={public.decode()}",
        )
        await_slurm(cluster, say, WORKERS)
        yield Site(box, cluster, private, figures=pytestconfig.stash.setdefault(FIGURES, []))


@pytest.fixture(autouse=True)
def _cleared_after_a_failure(request: pytest.FixtureRequest) -> None:
    """Keep the failure of one test from failing those after it, which use the same cluster."""
    if "site" not in request.fixturenames:
        return
    stash, failed = request.config.stash, request.session.testsfailed
    if failed > stash.get(FAILED, 0):
        stash[FAILED] = failed
        request.getfixturevalue("site").clear(WORKERS)


@pytest.fixture(scope="session")
def pair(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Install a second Slurm cluster beside the first, small, with a slurmctld that stands by."""
    say = Stopwatch(sys.stderr)
    cluster = Cluster(site.box.kubeconfig, tmp_path_factory.mktemp("pair"), say, namespace="pair")
    values = ("--values", str(HA_VALUES), "--values", str(KUBEBOX_VALUES))
    cluster.install(RELEASE, "slurm", cluster.namespace, *values)
    await_slurm(cluster, say, 1)
    return Site(site.box, cluster, "", accounting=False, figures=site.figures)
