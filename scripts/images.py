"""Make container images without a container engine, and print the files that hold them.

    python scripts/images.py               the images of Slurm, and the operator's own
    python scripts/images.py operator      only the operator's
    python scripts/images.py --output DIR  copies of the files, for `ctr images import` or `docker load`

Everything is kept in the cache, by content: a second run prints the paths at once. What was not used for a
day goes, but for the newest few.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox import linux
from kubebox.cache import cache_root, content_key, obtain, prune
from kubebox.console import Stopwatch
from kubebox.errors import KubeboxError, ToolError
from kubebox.images.oci import Image, folder_layer, write_bundle
from kubebox.images.slurm import provide_slurm_images
from kubebox.slurm import packages

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
# What of the source folder is part of the program; the rest is left behind by tools.
PACKAGED = frozenset({".css", ".html", ".js", ".json", ".py", ".svg", ".typed"})
OPERATOR_IMAGE = "kubebox.local/slurm-operator:dev"
# The same user as in images/operator/Dockerfile. Without a line in passwd its group would be root's.
USER = "65532:65532"
_OWN = {"passwd": "slurm-operator:x:65532:65532::/:/usr/sbin/nologin\n", "group": "slurm-operator:x:65532:\n"}
SUITE = "trixie"
PYTHON = "3.13"
PACKAGES = ("base-files", "base-passwd", "netbase", "python3", "tzdata")
_UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian",
           "usr/share/zoneinfo", "var/cache", "var/lib/dpkg")  # fmt: skip
_SITE, PROGRAM = "usr/local/lib/slurm-operator", "usr/local/bin/slurm-operator"
_ENTRY = f"""\
#!/usr/bin/python3 -I
import sys
sys.path.insert(0, "/{_SITE}")
from slurm_operator.cli import main
sys.exit(main())
"""
# Raise it when this script makes something else of the same inputs.
_LAYOUT = 1


def provide_operator_image(say: packages.Progress) -> Path:
    """Return the file with the operator's image, made first when it is not there yet."""
    base = _provide_base(say)
    requirements = ROOT / "requirements" / "runtime.txt"
    sources = operator_sources()
    contents = [hashlib.sha256(path.read_bytes()).digest() for path in (requirements, *sources)]

    def make(scratch: Path) -> None:
        say("making the operator's image")
        ground = folder_layer(base, scratch / "base.tar")
        libraries = folder_layer(_provide_libraries(base, requirements, say), scratch / "libraries.tar")
        product = folder_layer(product_tree(scratch, base, sources), scratch / "product.tar")
        image = Image(
            OPERATOR_IMAGE,
            [ground, libraries, product],
            entrypoint=[f"/{PROGRAM}"],
            user=USER,
            env=["PYTHONDONTWRITEBYTECODE=1"],
        )
        write_bundle(scratch / "images.tar", [image])
        shutil.rmtree(scratch / "product")
        for layer in image.layers:
            layer.path.unlink()

    names = json.dumps([_LAYOUT, base.parent.name, [str(path.relative_to(ROOT)) for path in sources], _ENTRY])
    key = content_key([names.encode(), *contents])
    place = obtain(cache_root(), "operator-image", key, make)
    for name in ("operator-image", "operator-libraries", "operator-base"):
        prune(cache_root(), name)
    return place / "images.tar"


def _provide_base(say: packages.Progress) -> Path:
    """Return a small Debian with Python, and nothing to change it with."""

    def make(scratch: Path) -> None:
        say("making the base of the operator's image: once, about half a minute")
        apt, root = scratch / "apt", scratch / "rootfs"
        found = packages.download(packages.mirror(), SUITE, PACKAGES, apt, say)
        root.mkdir(mode=0o755)
        packages.unpack(found, root)
        for name in _UNUSED:
            shutil.rmtree(root / name, ignore_errors=True)
        furnish_base(root)
        shutil.rmtree(apt)

    key = content_key(
        [json.dumps([_LAYOUT, SUITE, packages.architecture(), PACKAGES, _UNUSED, _OWN]).encode()]
    )
    return obtain(cache_root(), "operator-base", key, make) / "rootfs"


def furnish_base(root: Path) -> None:
    """Add to an unpacked base the operator's user, and the folders that a start needs."""
    masters = root / "usr" / "share" / "base-passwd"
    for name in ("passwd", "group"):
        text = (masters / f"{name}.master").read_text(encoding="utf-8")
        (root / "etc" / name).write_text(text.replace(":*:", ":x:") + _OWN[name], encoding="utf-8")
    for name in ("tmp", "mnt"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _provide_libraries(base: Path, requirements: Path, say: packages.Progress) -> Path:
    """Return a tree with the libraries, which change far less often than what uses them."""

    def make(scratch: Path) -> None:
        say("getting the operator's libraries: once")
        install_libraries(scratch / "libraries", base, requirements)

    parts = json.dumps([_LAYOUT, base.parent.name, PYTHON, _SITE]).encode()
    key = content_key([parts, requirements.read_bytes()])
    return obtain(cache_root(), "operator-libraries", key, make) / "libraries"


def install_libraries(folder: Path, base: Path, requirements: Path) -> None:
    """Install the pinned libraries for the image's Python into a tree of their own."""
    site = folder / _SITE
    site.mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    command += ["--target", str(site), "--python-version", PYTHON, "--only-binary=:all:", "--no-deps"]
    command += ["--implementation", "cp", "--require-hashes", "--requirement", str(requirements)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ToolError(f"the operator's libraries cannot be had:\n{result.stderr.strip()}")
    # Made for a shell that the image does not have.
    shutil.rmtree(site / "bin", ignore_errors=True)
    _compile(folder, base)


def operator_sources() -> list[Path]:
    """Return the files of the operator that its image holds."""
    return sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in PACKAGED)


def product_tree(scratch: Path, base: Path, sources: list[Path]) -> Path:
    """Return a tree with the operator and the command that starts it."""
    folder = scratch / "product"
    for source in sources:
        target = folder / _SITE / source.relative_to(ROOT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    entry = folder / PROGRAM
    entry.parent.mkdir(parents=True)
    entry.write_text(_ENTRY, encoding="utf-8")
    _compile(folder, base)
    return folder


def _compile(folder: Path, base: Path) -> None:
    """Compile with the image's own Python, by content and not by time, and settle modes."""

    def in_image() -> None:
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", Path("/"), None, linux.MS_REC | linux.MS_PRIVATE)
        linux.bind(folder / _SITE, base / "mnt")
        os.chroot(base)
        os.chdir("/")

    by_content = ["--invalidation-mode", "unchecked-hash", "-s", "/mnt", "-p", f"/{_SITE}"]
    result = subprocess.run(
        ["/usr/bin/python3", "-m", "compileall", "-q", *by_content, "/mnt"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=in_image,
    )
    if result.returncode != 0:
        raise ToolError(f"compiling for the image failed:\n{result.stdout}{result.stderr}")
    entry = folder / PROGRAM
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path == entry
            path.chmod(0o755 if executable else 0o644)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "which", nargs="*", choices=["operator", "slurm", []], help="which images; all if none is named"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="copy the files there")
    options = parser.parse_args()
    say = Stopwatch(sys.stderr)
    makers: dict[str, Callable[[packages.Progress], Path]] = {
        "slurm": provide_slurm_images,
        "operator": provide_operator_image,
    }
    try:
        for name in options.which or makers:
            path = makers[name](say)
            if options.output is not None:
                options.output.mkdir(parents=True, exist_ok=True)
                path = Path(shutil.copyfile(path, options.output / f"{name}.tar"))
            print(path)
    except KubeboxError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
