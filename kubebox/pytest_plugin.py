"""Pytest fixtures that hand out real control planes.

    kube_box           etcd and kube-apiserver, shared by the whole session: the default for tests
    kube_cluster       the same with controller manager, scheduler and ten fake nodes
    kube_box_factory   makes a box of a test's own, for tests that break it
    kube_namespace     a fresh namespace in `kube_box`, removed with all it holds after the test
    kube_programs      no box, only the programs, for tests that start boxes by themselves

Programs that are missing are built before the first test, where no test's time limit counts and progress can
be shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import Box, BoxSpec, KubeboxError
from kubebox.binaries import ALL_TOOLS, provide
from kubebox.box import tools_for

if TYPE_CHECKING:
    from pathlib import Path

_CLUSTER = BoxSpec(controller_manager=True, scheduler=True, fake_nodes=10)
# What each fixture may need; what a test will ask of the factory is not known before it runs.
_NEEDS = {
    "kube_box": tools_for(BoxSpec()),
    "kube_cluster": tools_for(_CLUSTER),
    "kube_box_factory": tools_for(BoxSpec(fake_nodes=1)),
    "kube_programs": list(ALL_TOOLS),
}

BoxFactory = Callable[..., Box]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the collected tests will need, unless they are only listed."""
    if session.config.option.collectonly:
        return
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    tell = _teller(session.config)
    try:
        provide({tool for fixture in used & _NEEDS.keys() for tool in _NEEDS[fixture]}, tell)
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
    """Hand out the paths of all programs, for tests that start boxes by themselves."""
    try:
        return provide(ALL_TOOLS, _teller(request.config))
    except KubeboxError as error:
        pytest.fail(f"kube_programs: {error}", pytrace=False)


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
