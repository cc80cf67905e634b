"""Components of a running box are stopped, killed, frozen and made to forget."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from kubebox import Box, BoxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Eventually = Callable[[Callable[[], bool], str], None]


@pytest.fixture(scope="module")
def box(kube_programs: dict[str, Path]) -> Iterator[Box]:
    assert "kube-apiserver" in kube_programs
    with Box.up() as box:
        yield box


def config_map(box: Box, name: str) -> str:
    return box.kubectl("get", "configmap", name, "--ignore-not-found", "-o", "name").strip()


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_component_comes_back_with_its_data(
    box: Box, eventually: Eventually, component: str, *, kill: bool
) -> None:
    """A component that was ended comes back on the same port and finds everything that was stored."""
    name = f"{component}-{kill}".lower()
    box.kubectl("create", "configmap", name)
    before = box.pids[component]
    box.stop(component, kill=kill)
    assert component not in box.pids
    box.start(component)
    assert box.pids[component] != before
    eventually(lambda: box.status()["kube-apiserver"]["health"] == "healthy", "the API server is ready")
    assert config_map(box, name) == f"configmap/{name}"


def test_death_of_a_component_is_noticed(box: Box, eventually: Eventually) -> None:
    """A component that dies by itself is reported with its signal and stays down until it is started."""
    os.kill(box.pids["kube-apiserver"], signal.SIGKILL)
    eventually(lambda: "kube-apiserver" not in box.pids, "the death is recorded")
    assert box.status()["kube-apiserver"]["health"] == "ended with signal SIGKILL"
    with pytest.raises(BoxError, match="refused"):
        config_map(box, "any")
    box.start("kube-apiserver")
    assert box.status()["kube-apiserver"]["health"] == "healthy"


def test_frozen_api_server_accepts_and_says_nothing(box: Box) -> None:
    """A paused API server keeps its port open but answers only after it is resumed."""
    box.pause("kube-apiserver")
    try:
        with box.api(timeout=1.0) as api, pytest.raises(TimeoutError):
            api.request("GET", "/readyz")
    finally:
        box.resume("kube-apiserver")
    with box.api() as api:
        assert api.request("GET", "/readyz").ok


def test_kubectl_that_gets_no_answer_is_an_error(box: Box) -> None:
    """A kubectl that its time runs out for raises what was asked and how long it waited."""
    box.pause("kube-apiserver")
    try:
        with pytest.raises(BoxError, match=r"kubectl get nodes: no answer within 0\.5 s"):
            box.kubectl("get", "nodes", timeout=0.5)
    finally:
        box.resume("kube-apiserver")


def test_frozen_component_can_be_stopped(box: Box) -> None:
    """A paused component ends when asked to, instead of keeping the request pending."""
    box.pause("kube-apiserver")
    box.restart("kube-apiserver")
    assert box.kubectl("get", "--raw", "/readyz") == "ok"


def test_wrong_requests_are_refused(box: Box) -> None:
    """Starting what runs and stopping what is not there are errors that say so."""
    with pytest.raises(BoxError, match="runs already"):
        box.start("etcd")
    with pytest.raises(BoxError, match="has no 'kubelet': it has etcd, kube-apiserver"):
        box.stop("kubelet")


def test_compaction_makes_an_old_version_gone(box: Box) -> None:
    """Once etcd is compacted and the API server restarted, a watch from an old version gets 410 Gone."""
    with box.api() as api:
        old = api.request("GET", "/api/v1/configmaps?limit=1").json()["metadata"]["resourceVersion"]
    for number in range(3):
        box.kubectl("create", "configmap", f"later-{number}")
    revision = box.compact_etcd()
    assert box.compact_etcd() >= revision
    box.restart("kube-apiserver", kill=True)
    with box.api() as api:
        reply = api.request("GET", f"/api/v1/configmaps?watch=1&timeoutSeconds=5&resourceVersion={old}")
    assert reply.json()["object"]["code"] == 410
    with box.api() as api:
        assert api.request("GET", "/api/v1/configmaps").ok
