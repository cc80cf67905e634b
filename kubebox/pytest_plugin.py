"""Pytest fixtures that hand out real control planes and real Slurm clusters.

    kube_box           etcd and kube-apiserver, shared by the whole session: the default for tests
    kube_cluster       the same with controller manager, scheduler and ten fake nodes
    kube_nodes         three real nodes with the images of Slurm, shared by the whole session
    kube_box_factory   makes a box of a test's own, for tests that break it
    kube_namespace     a fresh namespace in `kube_box`, removed with all it holds after the test
    kube_programs      no box, only the programs, for tests that start boxes by themselves
    slurm_box          Slurm 26.05 with three slurmd, shared by the whole session
    slurm_box_24       the same with Slurm 24.11
    slurm_box_factory  makes a Slurm cluster of a test's own, for tests that break it
    prometheus         the command lines of Prometheus and promtool

Programs and root file systems that are missing are built before the first test, where no test's time limit
counts and progress can be shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import Box, BoxSpec, KubeboxError
from kubebox.binaries import provide
from kubebox.box import available_tools, tools_for
from kubebox.images.slurm import provide_slurm_images
from kubebox.nodes.ground import provide_ground
from kubebox.prometheus import provide_prometheus
from kubebox.slurm import SlurmBox, SlurmSpec
from kubebox.slurm.rootfs import RELEASES, provide_root

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox.prometheus import PrometheusPrograms

_CLUSTER = BoxSpec(controller_manager=True, scheduler=True, fake_nodes=10)
# What each fixture may need; what a test will ask of the factory is not known before it runs.
_NEEDS = {
    "kube_box": tools_for(BoxSpec()),
    "kube_cluster": tools_for(_CLUSTER),
    "kube_box_factory": tools_for(BoxSpec(fake_nodes=1)),
}
_NODES = BoxSpec(controller_manager=True, scheduler=True, nodes=3, ready_timeout=300)
_SLURM, _SLURM_24 = SlurmSpec(release="26.05"), SlurmSpec(release="24.11")
_NEEDS_SLURM = {
    "slurm_box": [_SLURM.release],
    "slurm_box_24": [_SLURM_24.release],
    "slurm_box_factory": list(RELEASES),
}

BoxFactory = Callable[..., Box]
SlurmBoxFactory = Callable[..., SlurmBox]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the collected tests will need, unless they are only listed."""
    if session.config.option.collectonly:
        return
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    tell = _teller(session.config)
    try:
        needed = {tool for fixture in used & _NEEDS.keys() for tool in _NEEDS[fixture]}
        if "kube_programs" in used:
            needed.update(available_tools())
        provide(needed, tell)
        for release in sorted(
            {name for fixture in used & _NEEDS_SLURM.keys() for name in _NEEDS_SLURM[fixture]}
        ):
            provide_root(release, tell)
        if "kube_nodes" in used:
            _nodes_spec(tell)
        if "prometheus" in used:
            provide_prometheus(tell)
    except KubeboxError as error:
        # The tests that need no box still run; the others fail with this sentence, each in its own place.
        tell(str(error))


@pytest.fixture(scope="session")
def kube_box(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Hand out etcd and kube-apiserver, shared by the session: use a namespace of your own."""
    with _up(request, BoxSpec()) as box:
        yield box


@pytest.fixture(scope="session")
def kube_cluster(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Hand out a whole control plane with ten fake nodes, shared by the session."""
    with _up(request, _CLUSTER) as box:
        yield box


@pytest.fixture(scope="session")
def kube_nodes(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Hand out a cluster of three real nodes, shared by the session; needs root. Use your own namespace."""
    try:
        spec = _nodes_spec(_teller(request.config))
    except KubeboxError as error:
        pytest.fail(f"kube_nodes: {error}", pytrace=False)
    with _up(request, spec) as box:
        yield box


@pytest.fixture
def kube_box_factory(request: pytest.FixtureRequest) -> Iterator[BoxFactory]:
    """Make boxes that belong to one test: `kube_box_factory(scheduler=True)` takes the fields of BoxSpec."""
    with contextlib.ExitStack() as stack:

        def make(**spec: Any) -> Box:
            return stack.enter_context(_up(request, BoxSpec(**spec)))

        yield make


@pytest.fixture
def kube_namespace(kube_box: Box) -> Iterator[str]:
    """Hand out the name of a fresh namespace in `kube_box`."""
    with kube_box.namespace() as name:
        yield name


@pytest.fixture(scope="session")
def kube_programs(request: pytest.FixtureRequest) -> dict[str, Path]:
    """Hand out the paths of all programs that can be had, for tests that start boxes by themselves."""
    try:
        return provide(available_tools(), _teller(request.config))
    except KubeboxError as error:
        pytest.fail(f"kube_programs: {error}", pytrace=False)


@pytest.fixture(scope="session")
def slurm_box(request: pytest.FixtureRequest) -> Iterator[SlurmBox]:
    """Hand out Slurm 26.05 with the nodes n0 to n2, shared by the session: leave it as you found it."""
    with _slurm_up(request, _SLURM) as box:
        yield box


@pytest.fixture(scope="session")
def slurm_box_24(request: pytest.FixtureRequest) -> Iterator[SlurmBox]:
    """Hand out Slurm 24.11 with the nodes n0 to n2, shared by the session: leave it as you found it."""
    with _slurm_up(request, _SLURM_24) as box:
        yield box


@pytest.fixture
def slurm_box_factory(request: pytest.FixtureRequest) -> Iterator[SlurmBoxFactory]:
    """Make Slurm boxes of one test: `slurm_box_factory(nodes=5)` takes the fields of SlurmSpec."""
    with contextlib.ExitStack() as stack:

        def make(**spec: Any) -> SlurmBox:
            return stack.enter_context(_slurm_up(request, SlurmSpec(**spec)))

        yield make


@pytest.fixture(scope="session")
def prometheus(request: pytest.FixtureRequest) -> PrometheusPrograms:
    """Hand out the command lines of Prometheus and promtool."""
    try:
        return provide_prometheus(_teller(request.config))
    except KubeboxError as error:
        pytest.fail(f"prometheus: {error}", pytrace=False)


def _nodes_spec(tell: Callable[[str], None]) -> BoxSpec:
    """Return the spec of the shared real nodes, with everything made that they need."""
    tools = provide(tools_for(_NODES), tell)
    spec = dataclasses.replace(_NODES, images=(str(provide_slurm_images(tell)),))
    provide_ground(spec, tools, tell)
    return spec


def _slurm_up(request: pytest.FixtureRequest, spec: SlurmSpec) -> SlurmBox:
    try:
        return SlurmBox.up(spec, progress=None)
    except KubeboxError as error:
        pytest.fail(f"{request.fixturename}: {error}", pytrace=False)


def _up(request: pytest.FixtureRequest, spec: BoxSpec) -> Box:
    try:
        provide(tools_for(spec), _teller(request.config))
        return Box.up(spec)
    except KubeboxError as error:
        pytest.fail(f"{request.fixturename}: {error}", pytrace=False)


def _teller(config: pytest.Config) -> Callable[[str], None]:
    """Return a function that shows a line even while pytest captures output."""
    capture = config.pluginmanager.getplugin("capturemanager")

    def tell(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            print(f"kubebox: {line}", flush=True)

    return tell
