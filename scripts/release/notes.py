"""Release notes from the changelog: what is new since the release before. Pure."""

from __future__ import annotations

import re

_SECTION = re.compile(r"^## (?:\[?)([^\s\]]+)", re.MULTILINE)


def release_notes(changelog: str, version: str) -> str:
    """Return the sections above that of the release before: the version's own, and what is not named yet."""
    starts = [(found.start(), found[1]) for found in _SECTION.finditer(changelog)]
    names = [name for _, name in starts]
    if version not in names:
        raise ValueError(f"CHANGELOG.md has no section {version}: it has {', '.join(names)}")
    own = names.index(version)
    end = starts[own + 1][0] if own + 1 < len(starts) else len(changelog)
    return f"# slurm-operator {version}\n\n{changelog[starts[0][0] : end].strip()}\n"
