"""A headless Chromium from Debian, for tests of web pages.

Like the root file systems of Slurm it is made of Debian packages by the machine's own apt, once, and kept in
the cache. It runs in mount and process namespaces of its own, on the machine's network, and is driven over
its debugging protocol: `devtools` is the URL of the WebSocket.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kubebox.cache import cache_root, content_key, obtain
from kubebox.errors import ToolError
from kubebox.procs import die_with_parent
from kubebox.slurm import packages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubebox.slurm.packages import Progress

_LAYOUT = 1
_SUITE = "trixie"
_PACKAGES = ("base-files", "base-passwd", "coreutils", "dash", "chromium", "fonts-dejavu-core", "libc-bin")
_UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/lintian", "var/cache")
_START_SECONDS = 120.0
_LISTENING = re.compile(r"DevTools listening on (ws://\S+)")
_SCRIPT = """
set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/tmp"
mount -t tmpfs tmpfs "$1/root"
exec chroot "$@"
"""
_FLAGS = (
    "--headless=new",
    # Chromium's own sandbox cannot be set up by root; the pages are ours, on loopback.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--user-data-dir=/tmp/profile",
    "about:blank",
)


def provide_browser(progress: Progress) -> Path:
    """Return a root file system with Chromium, made first when it is not there yet."""
    if os.geteuid() != 0:
        raise ToolError("the browser needs root: it runs in mount and process namespaces of its own")
    parts = [_LAYOUT, _SUITE, packages.architecture(), _PACKAGES, _UNUSED]

    def make(scratch: Path) -> None:
        progress("making the root file system of the browser: once, about a minute")
        found = packages.download(packages.mirror(), _SUITE, _PACKAGES, scratch / "apt", progress)
        root = scratch / "rootfs"
        root.mkdir(mode=0o755)
        packages.unpack(found, root)
        for name in _UNUSED:
            shutil.rmtree(root / name, ignore_errors=True)
        for name in ("proc", "dev", "tmp", "root"):
            (root / name).mkdir(exist_ok=True)
        shutil.rmtree(scratch / "apt")

    key = content_key([json.dumps(parts).encode()])
    return obtain(cache_root(), "browser", key, make) / "rootfs"


@contextmanager
def running_browser(log: Path) -> Iterator[str]:
    """Run a browser until the block ends; hand out the URL of its debugging protocol."""
    root = provide_browser(lambda _: None)
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _SCRIPT, "sh", str(root)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*command, "/usr/lib/chromium/chromium", *_FLAGS],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"},
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - nothing of ours may outlive us
        ) as process,
    ):
        try:
            yield _listening(process, log)
        finally:
            process.kill()


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return where it listens, and go on copying what it says into the log."""
    found: list[str] = []
    known = threading.Event()

    def read() -> None:
        with log.open("ab") as output:
            for line in process.stderr or ():
                output.write(line)
                output.flush()
                if match := _LISTENING.search(line.decode(errors="replace")):
                    found.append(match[1])
                    known.set()
        known.set()

    threading.Thread(target=read, daemon=True).start()
    known.wait(_START_SECONDS)
    if not found:
        raise ToolError(f"the browser did not start:\n{log.read_text(errors='replace')[-2000:]}")
    return found[0]
