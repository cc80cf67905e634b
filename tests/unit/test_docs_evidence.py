"""Tests that pages name as evidence: they exist, are linked, and each guide has some."""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING

from tests.support.pages import PAGES, ROOT, SPAN, prose, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@functools.cache
def defined_tests() -> dict[str, frozenset[Path]]:
    """Return the files of every test, and of every test file, by its name."""
    found: dict[str, set[Path]] = {}
    for path in ROOT.glob("tests/**/test_*.py"):
        for name in (path.name, *re.findall(r"def (test_\w+)", text_of(path))):
            found.setdefault(name, set()).add(path)
    return {name: frozenset(paths) for name, paths in found.items()}


# Pages for contributors speak of tests as they like, as long as these exist.
_FOR_CONTRIBUTORS = (
    "docs/development/",
    "docs/architecture.md",
    "docs/decisions/",
    "CONTRIBUTING.md",
    "tests/",
)
# Lists of what is guaranteed, path by path.
_GUARANTEES = {"guarantees.md", "differences.md"}
_SECTION = re.compile(r"^#{1,6} ", re.MULTILINE)


def named_tests(page: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield the tests that a page names, the heading each is under, and whether it is a link to its file."""
    known = defined_tests()
    for section in _SECTION.split(prose(page)):
        heading = section.partition("\n")[0]
        linked = {
            found[1]
            for found in re.finditer(r"\[`(test_\w+(?:\.py)?)`\]\(([^()\s#]+)\)", section)
            if (page.parent / found[2]).resolve() in known.get(found[1], ())
        }
        text = " ".join(found[2] for found in SPAN.finditer(section))
        for word in re.findall(r"\btest_\w+\b(?!\*)(?:\.py)?", text):
            yield word, heading, word in linked


def test_named_tests_exist() -> None:
    """A test that a page names is there."""
    known = defined_tests()
    told = {(page.name, word) for page in PAGES for word, _, _ in named_tests(page)}
    assert told
    assert {(page, word) for page, word in told if word not in known} == set()


def test_tests_are_links_in_sections_of_guarantees() -> None:
    """For users, a test is evidence: linked, and only where something is guaranteed."""
    known, wrong = defined_tests(), []
    for page in PAGES:
        if str(page.relative_to(ROOT)).startswith(_FOR_CONTRIBUTORS):
            continue
        for word, heading, linked in named_tests(page):
            if not linked:
                path = os.path.relpath(min(known[word]), page.parent)
                wrong.append(f"{page.name}: write [`{word}`]({path})")
            elif heading != "Guarantees" and page.name not in _GUARANTEES:
                wrong.append(f"{page.name}: {word} is under {heading!r}")
    assert wrong == []


def test_guides_have_the_same_sections() -> None:
    """Each guide has its sections in one order, and names tests for what it guarantees."""
    sections = ["Overview", "Steps", "Verify", "Troubleshooting", "Guarantees"]
    for page in PAGES:
        if page.parent.name != "guides":
            continue
        assert re.findall(r"^## (.+)$", prose(page), re.MULTILINE) == sections, page.name
        assert any(heading == "Guarantees" for _, heading, _ in named_tests(page)), page.name
