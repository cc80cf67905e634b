from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kubebox import ToolError, build
from kubebox.binaries import ALL_TOOLS, existing_folders, provide
from kubebox.box import available_tools

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("environ", "folders"),
    [
        ({"PATH": "/p"}, []),
        ({"PATH": "/p", "KUBEBUILDER_ASSETS": "/a"}, ["/a"]),
        ({"PATH": "/p:/q", "KUBEBOX_USE_EXISTING": "1"}, ["/p", "/q"]),
        ({"PATH": "/p", "KUBEBUILDER_ASSETS": "/a", "KUBEBOX_USE_EXISTING": "1"}, ["/a", "/p"]),
        ({"PATH": "/p", "KUBEBUILDER_ASSETS": "/a", "KUBEBOX_USE_EXISTING": "0"}, []),
    ],
)
def test_existing_programs_are_used_when_asked_for(environ: dict[str, str], folders: list[str]) -> None:
    """KUBEBUILDER_ASSETS is searched by itself, PATH only on demand, and 0 builds in any case."""
    assert existing_folders(environ) == folders


def test_odd_choice_is_refused() -> None:
    """A value that is neither 0 nor 1 is an error that says what to write."""
    with pytest.raises(ToolError, match="use 1"):
        existing_folders({"KUBEBOX_USE_EXISTING": "yes"})


def executable(path: Path) -> Path:
    path.touch(mode=0o755)
    return path


def test_existing_program_is_taken_as_it_is(tmp_path: Path) -> None:
    """What KUBEBUILDER_ASSETS holds is used without building, also when other programs are missing there."""
    etcd = executable(tmp_path / "etcd")
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert provide(["etcd"], print, environ) == {"etcd": etcd}
    assert not (tmp_path / "cache").exists()


def test_missing_program_is_named_when_asked_for(tmp_path: Path) -> None:
    """A program that the chosen folder lacks is named, with the ways to get it."""
    executable(tmp_path / "etcd")
    with pytest.raises(ToolError, match=r"kube-scheduler is in none.*KUBEBOX_USE_EXISTING=0"):
        provide(["etcd", "kube-scheduler"], print, {"KUBEBUILDER_ASSETS": str(tmp_path)})


def test_of_existing_programs_those_that_are_there_are_available(tmp_path: Path) -> None:
    """A folder as envtest lays it out lacks most programs, and what is not Kubernetes is ours as ever."""
    for name in ("etcd", "kube-apiserver", "kubectl"):
        executable(tmp_path / name)
    found = available_tools({"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert found == ["etcd", "kube-apiserver", "kubectl", "kwok", "kwok-stages", "helm", "helm-unittest"]
    assert available_tools({"KUBEBUILDER_ASSETS": str(tmp_path), "KUBEBOX_USE_EXISTING": "0"}) == list(
        ALL_TOOLS
    )


def test_unknown_program_is_refused() -> None:
    """A name that kubebox cannot supply is an error."""
    with pytest.raises(ToolError, match="kubeadm"):
        provide(["kubeadm"], print, {})


def test_version_is_linked_into_both_places() -> None:
    """Server and client version are both set, or one of them says v0.0.0."""
    flags = build.kubernetes_ldflags("v1.36.2")
    for package in ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version"):
        assert f"-X {package}.gitVersion=v1.36.2 " in flags
        assert f"-X {package}.gitMinor=36 " in flags


def test_modules_are_the_versions_we_name() -> None:
    """The versions that kubebox prints are the ones in the committed go.mod files."""
    kubernetes = (build.HYPERKUBE.folder / "go.mod").read_text()
    assert f"\tk8s.io/kubernetes {build.KUBERNETES_VERSION}\n" in kubernetes
    assert f"{build.KWOK_MODULE} {build.KWOK_VERSION}\n" in (build.KWOK.folder / "go.mod").read_text()
    unittest = (build.HELM_UNITTEST.folder / "go.mod").read_text()
    assert f"{build.HELM_UNITTEST_MODULE} {build.HELM_UNITTEST_VERSION}\n" in unittest
