"""Where each program comes from: built by us and cached, or already on the machine.

Set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd (the layout that envtest users have), or
KUBEBOX_USE_EXISTING=1 to search PATH as well, and Kubernetes is not built. KUBEBOX_USE_EXISTING=0 builds
whatever the other variable says. kwok is always ours: its version and the stages it plays belong together.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kubebox import build
from kubebox.cache import cache_root
from kubebox.errors import ToolError

Progress = Callable[[str], None]
ALL_TOOLS = tuple(name for names, _ in build.MAKERS for name in names)


def existing_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the folders to search for programs instead of building them; empty means build."""
    assets, choice = environ.get("KUBEBUILDER_ASSETS", ""), environ.get("KUBEBOX_USE_EXISTING", "")
    if choice not in {"", "0", "1"}:
        raise ToolError(f"KUBEBOX_USE_EXISTING={choice!r}: use 1 (search PATH) or 0 (always build)")
    if choice == "0":
        return []
    folders = [assets] if assets else []
    return folders + environ.get("PATH", os.defpath).split(":") if choice == "1" else folders


def provide(
    names: Iterable[str], progress: Progress, environ: Mapping[str, str] | None = None
) -> dict[str, Path]:
    """Return the paths of the named programs, built or fetched when they are missing."""
    environ = os.environ if environ is None else environ
    folders, root = existing_folders(environ), cache_root(environ)
    wanted, found = set(names), dict[str, Path]()
    for makes, make in (*build.MAKERS, *build.NODE_MAKERS, *build.TEST_MAKERS):
        asked = sorted(wanted.intersection(makes))
        wanted -= set(makes)
        if asked and folders and make is build.kubernetes:
            found.update({name: _existing(name, folders) for name in asked})
        elif asked:
            made = make(root, progress)
            found.update({name: made[name] for name in asked})
    if wanted:
        raise ToolError(f"kubebox knows no program {', '.join(sorted(wanted))}")
    return found


def _existing(name: str, folders: list[str]) -> Path:
    path = shutil.which(name, path=":".join(folders))
    if path is None:
        raise ToolError(
            f"{name} is in none of the folders that KUBEBUILDER_ASSETS and KUBEBOX_USE_EXISTING point at: "
            "add it there, or set KUBEBOX_USE_EXISTING=0 and kubebox builds its own"
        )
    return Path(path)
