"""Links and names of files: what a page names exists, and each page is in the index."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import LINK, PAGES, ROOT, SPAN, prose, spans, text_of

if TYPE_CHECKING:
    from pathlib import Path


EVERY = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """Return the names by which headings of a page can be linked to, as GitHub makes them."""
    found: dict[str, int] = {}
    names = []
    for heading in _HEADING.findall(prose(path)):
        plain = LINK.sub(lambda match: match[0][1 : match[0].index("]")], heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = found[name] = found.get(name, -1) + 1
        names.append(f"{name}-{number}" if number else name)
    return frozenset(names)


@EVERY
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file or a heading of the tree has a target."""
    broken = []
    for link in LINK.findall(SPAN.sub("", prose(page)) + " ".join(_links_in_tables(page))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def _links_in_tables(page: Path) -> list[str]:
    # A link around a word in backticks is none once these are taken away.
    return [found[0] for found in re.finditer(r"\[`[^`]+`\]\([^()\s]+\)", prose(page))]


def test_every_page_is_in_the_index() -> None:
    """Each page is linked from the index, and the index from the front page."""
    docs = ROOT / "docs"
    listed = {link.partition("#")[0] for link in LINK.findall(text_of(docs / "README.md"))}
    pages = {str(page.relative_to(docs)) for page in docs.glob("**/*.md")} - {"README.md"}
    assert pages - listed == set()
    assert "docs/README.md" in LINK.findall(text_of(ROOT / "README.md"))


def test_code_that_pages_for_contributors_name_exists() -> None:
    """A module or a folder that the architecture page or a decision names is in the tree."""
    pages = [ROOT / "docs" / "architecture.md", *ROOT.glob("docs/decisions/*.md")]
    tops = {path.name for path in (ROOT / "src" / "slurm_operator").iterdir() if path.is_dir()}
    named = re.compile(rf"(?:{'|'.join(tops)}|charts|images|kubebox|tests)/[\w./-]*")
    told = {(page.name, span) for page in pages for span in spans(page) if named.fullmatch(span)}
    assert ("architecture.md", "controllers/nodeset/decide/scale.py") in told
    roots = (ROOT, ROOT / "src" / "slurm_operator")
    assert {(page, path) for page, path in told if not any((root / path).exists() for root in roots)} == set()


def test_pages_that_the_tree_names_exist() -> None:
    """A page that a message, a chart or a script names is there."""
    folders = ("src", "charts", "scripts", "examples", "bench", "kubebox", "images")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in _TEXTS]
    told = {
        (str(path.relative_to(ROOT)), name)
        for path in [*files, ROOT / "Makefile"]
        if "__pycache__" not in path.parts
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", text_of(path))
    }
    assert told
    assert {(path, name) for path, name in told if not (ROOT / name).is_file()} == set()


_TEXTS = {".py", ".yaml", ".tpl", ".txt", ".json", ".md"}
