"""Build a release: `python -m scripts.release.build [--registry REGISTRY] [--output FOLDER]`.

REGISTRY is where the images will be published. It becomes a part of their names and a default of the charts;
without it, the user who installs them names one (`--set image.registry=…`, `--set imageRegistry=…`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import slurm_operator
from kubebox.binaries import provide
from kubebox.console import Stopwatch
from kubebox.errors import KubeboxError, ToolError
from kubebox.images.oci import architecture
from scripts.release import archives, charting, notes, sbom, validation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubebox.slurm.packages import Progress
    from scripts.release.archives import Built

ROOT = Path(__file__).resolve().parents[2]
# In install.yaml, where no registry is named when a release is built.
PLACEHOLDER = "registry.example.com"
_REQUIREMENTS = ROOT / "requirements" / "runtime.txt"
_KUBE_VERSION = "1.30"
SUMS, PUSH = "SHA256SUMS", "push_images.py"


def build(folder: Path, registry: str, say: Progress) -> None:
    """Write a release into a folder, in place of what it holds."""
    version = slurm_operator.__version__
    # Else the user's own would be in the modes of files in the images.
    os.umask(0o022)
    if folder.exists() and any(folder.iterdir()) and not (folder / SUMS).exists():
        raise ToolError(f"{folder} holds something else than a release: name an empty folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="release-", dir=folder.parent) as name:
        scratch = Path(name)
        operator = archives.build_operator(scratch, registry, version, say)
        slurm = archives.build_slurm(scratch, registry, say)
        archives.write_archives(folder, version, operator, slurm)
        say("packaging charts, wheel and documents")
        built = [operator, *slurm]
        digests = {image.name: image.digest for image in built}
        for chart in charting.NAMES:
            target = folder / f"{chart}-{charting.chart_version(chart)}.tgz"
            charting.write_chart(chart, target, charting.values_of_release(chart, registry, digests))
        _distributions(folder)
        _manifests(folder, registry, version, scratch, say)
        _describe_images(folder, registry, built)
        validation.validate(_boms(folder, version, built), say)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (folder / "RELEASE_NOTES.md").write_text(notes.release_notes(changelog, version), encoding="utf-8")
    shutil.copyfile(Path(__file__).resolve().parent / "push.py", folder / PUSH)
    for path in folder.iterdir():
        path.chmod(0o755 if path.name == PUSH else 0o644)
    (folder / SUMS).write_text(checksums(folder), encoding="utf-8")


def checksums(folder: Path) -> str:
    """Return the lines of SHA256SUMS, in the form that `sha256sum --check` reads."""
    lines = []
    for path in sorted(folder.iterdir()):
        if path.name != SUMS:
            with path.open("rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def _distributions(folder: Path) -> None:
    """Write wheel and sdist; hatchling fixes the times in them."""
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    _run(command, environment)
    # hatchling puts this beside what it builds, for git.
    (folder / ".gitignore").unlink(missing_ok=True)


def _manifests(folder: Path, registry: str, version: str, scratch: Path, say: Progress) -> None:
    """Write install.yaml and crds.yaml, rendered from the packaged charts."""
    helm = provide(["helm"], say)["helm"]
    environment = {
        **os.environ,
        **{f"HELM_{kind}_HOME": str(scratch / f"helm-{kind}") for kind in ("CACHE", "CONFIG", "DATA")},
    }

    def render(chart: str, *options: str) -> str:
        archive = folder / f"{chart}-{charting.chart_version(chart)}.tgz"
        named = ("--namespace", "slinky", "--kube-version", _KUBE_VERSION, "--no-hooks")
        return _run([str(helm), "template", chart, str(archive), *named, *options], environment)

    crds = render("slurm-operator-crds")
    (folder / "crds.yaml").write_text(crds, encoding="utf-8")
    operator = render("slurm-operator", "--set", f"image.registry={registry or PLACEHOLDER}")
    head = (
        f"# slurm-operator {version}: CRDs, operator and webhook, in the namespace slinky.\n"
        "# It needs cert-manager, for the certificate of the webhook.\n"
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: slinky\n"
    )
    (folder / "install.yaml").write_text(head + crds + operator, encoding="utf-8")


def _run(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _describe_images(folder: Path, registry: str, built: Sequence[Built]) -> None:
    """Write images.json: names, digests, sizes and numbers of packages."""
    libraries = len(sbom.pinned_libraries(_REQUIREMENTS.read_text(encoding="utf-8")))
    entries = [
        {
            "name": f"{registry}/{image.name}" if registry else image.name,
            "tag": image.tag,
            "digest": image.digest,
            "compressedBytes": image.compressed_size,
            "uncompressedBytes": archives.uncompressed_size(image),
            "debianPackages": len(image.packages),
            "pythonLibraries": libraries if image.python else 0,
            "user": image.image.user or "0:0",
        }
        for image in built
    ]
    (folder / "images.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def _boms(folder: Path, version: str, built: Sequence[Built]) -> list[Path]:
    """Write the bills of materials, and return their files."""
    pinned = sbom.pinned_libraries(_REQUIREMENTS.read_text(encoding="utf-8"))
    libraries = [sbom.library_component(library) for library in pinned]
    (wheel,) = folder.glob("*.whl")
    subject = sbom.wheel_component(version, hashlib.sha256(wheel.read_bytes()).hexdigest())
    texts = {f"{wheel.name}.cdx.json": sbom.document(subject, libraries)}
    for image in built:
        parts = [sbom.package_component(package) for package in image.packages]
        if image.python:
            parts += [sbom.wheel_component(version), *libraries]
        subject = sbom.image_component(image.name, image.tag, image.digest, architecture())
        texts[f"{image.name}-{image.tag}.image.cdx.json"] = sbom.document(subject, parts)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--registry", default="", help="where the images will be published")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "release", metavar="FOLDER")
    options = parser.parse_args()
    say = Stopwatch(sys.stderr)
    try:
        build(options.output.absolute(), options.registry.rstrip("/"), say)
    except KubeboxError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(options.output.iterdir()):
        print(f"{path.stat().st_size:12,}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
