"""Images imported once, for all nodes of all boxes.

A template is the folder of a containerd that has imported some files of images and was stopped. A node starts
from copies of its two small databases; the layers it sees in place, read-only. So a node has its images at
once, and a hundred nodes keep one copy of them.

A template for several files is the one for all but the last, linked file by file, with the last one added:
the file that changes most often comes last, and costs only itself. Those that nobody uses any more go.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import kubebox
from kubebox import linux
from kubebox.cache import cache_root, content_key, obtain, prune
from kubebox.errors import ToolError
from kubebox.procs import die_with_parent, python_module, tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kubebox.slurm.packages import Progress

_NAME = "images"
_METADATA = "io.containerd.metadata.v1.bolt"
_CONTENT = "io.containerd.content.v1.content"
_SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs"
_NAMESPACE = "k8s.io"
# By this label the part of containerd that kubelet talks to knows an image as its own.
_OURS = "io.cri-containerd.image=managed"
_NOT_NEEDED = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
_BUNDLE = "mnt/images.tar"
_IMPORT_SECONDS = 600.0
_READY_SECONDS = 60.0


def provide_template(bundles: Sequence[Path], rootfs: Path, progress: Progress) -> Path:
    """Return a containerd folder with the images of some files, imported first when there is none yet."""
    digests = [(bundle, _digest(bundle)) for bundle in bundles]
    template = _provide(digests, rootfs, progress)
    # The next one will be made from the one below, which is as young as what stands on it.
    for count in range(1, len(digests)):
        with contextlib.suppress(OSError):
            os.utime(cache_root() / f"{_NAME}-{_key(digests[:count], rootfs)}")
    prune(cache_root(), _NAME)
    return template


def _key(bundles: Sequence[tuple[Path, str]], rootfs: Path) -> str:
    return content_key([rootfs.parent.name.encode(), *(digest.encode() for _, digest in bundles)])


def _provide(bundles: Sequence[tuple[Path, str]], rootfs: Path, progress: Progress) -> Path:
    def make(scratch: Path) -> None:
        store = scratch / "containerd"
        if below := bundles[:-1]:
            _link(_provide(below, rootfs, progress), store)
        else:
            store.mkdir()
        bundle = bundles[-1][0]
        progress(f"importing the images in {bundle}: once")
        _import(scratch, bundle, rootfs)

    return obtain(cache_root(), _NAME, _key(bundles, rootfs), make) / "containerd"


def _link(template: Path, target: Path) -> None:
    """Copy a template without its content: files are links, but for the databases, which will change."""
    copying = ["cp", "--archive", "--link", str(template), str(target)]
    result = subprocess.run(copying, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ToolError(f"cannot copy the template {template}: {result.stderr.strip()}")
    for name in databases(template):
        (target / name).unlink()
    copy_databases(template, target)


def databases(template: Path) -> Iterator[str]:
    """Yield the files of a template that each node needs a copy of, relative to the template."""
    for name in (_METADATA, _SNAPSHOTS):
        yield from (str(path.relative_to(template)) for path in sorted((template / name).glob("*.db")))


def shared(template: Path, *, pulls: bool = False) -> Iterator[str]:
    """Yield what nodes see of a template in place, relative to it; `pulls` leaves room for other images."""
    if pulls:
        blobs = f"{_CONTENT}/blobs/sha256"
        yield from (f"{blobs}/{path.name}" for path in sorted((template / blobs).iterdir()))
    else:
        yield _CONTENT
    yield from (
        f"{_SNAPSHOTS}/snapshots/{path.name}"
        for path in sorted((template / _SNAPSHOTS / "snapshots").iterdir())
    )


def copy_databases(template: Path, target: Path) -> None:
    """Give a new node its own copy of what it will change."""
    for name in databases(template):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(template / name, target / name)
        (target / name).chmod(0o600)


def _digest(bundle: Path) -> str:
    try:
        with bundle.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ToolError(f"cannot read the images in {bundle}: {error.strerror}") from error


def _import(scratch: Path, bundle: Path, rootfs: Path) -> None:
    """Import in a process of its own, which may leave this machine's namespaces."""
    log = scratch / "import.log"
    search_path = str(Path(kubebox.__file__).resolve().parents[1])
    with log.open("wb") as output:
        result = subprocess.run(
            [*python_module("kubebox.images.template"), str(scratch), str(rootfs), str(bundle)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": search_path},
            timeout=_IMPORT_SECONDS,
            check=False,
            preexec_fn=die_with_parent(),
        )
    if result.returncode != 0:
        raise ToolError(f"importing images failed:\n{tail(log)}")
    log.unlink()
    shutil.rmtree(scratch / "root")


def main() -> None:
    """Import a file of images into the folder `containerd` of a scratch folder: SCRATCH ROOTFS FILE."""
    scratch, rootfs, bundle = (Path(name) for name in sys.argv[1:])
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWPID)
    if (child := os.fork()) == 0:
        linux.die_with_parent()
        _go_inside(scratch, rootfs, bundle)
        _import_here()
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


def _go_inside(scratch: Path, rootfs: Path, bundle: Path) -> None:
    root, store = scratch / "root", scratch / "containerd"
    root.mkdir()
    linux.mount("none", Path("/"), None, linux.MS_REC | linux.MS_PRIVATE)
    linux.bind(rootfs, root, read_only=True)
    linux.mount("proc", root / "proc", "proc")
    for name in ("run", "tmp", "mnt"):
        linux.mount(name, root / name, "tmpfs")
    linux.bind(store, root / "var" / "lib" / "containerd")
    linux.bind(Path("/dev"), root / "dev")
    (root / _BUNDLE).touch()
    linux.bind(bundle, root / _BUNDLE, read_only=True)
    linux.change_root(root)


def _import_here() -> None:
    options = Path("/tmp/containerd.toml")  # noqa: S108 - in a file system of this process alone
    # Only the store is needed, not the part that runs pods.
    options.write_text(f"version = 3\ndisabled_plugins = {json.dumps(_NOT_NEEDED)}\n", encoding="utf-8")
    with subprocess.Popen(["/usr/bin/containerd", "--config", str(options)]) as daemon:
        try:
            _await_daemon()
            arguments = ["images", "import", "--snapshotter=overlayfs", f"--label={_OURS}", f"/{_BUNDLE}"]
            subprocess.run(["/usr/bin/ctr", f"--namespace={_NAMESPACE}", *arguments], check=True)
        finally:
            daemon.send_signal(signal.SIGTERM)


def _await_daemon() -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while subprocess.run(["/usr/bin/ctr", "version"], capture_output=True, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise ToolError(f"containerd does not answer after {_READY_SECONDS:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
