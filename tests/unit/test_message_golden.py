"""The golden file of messages is read, compared and written by sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.message_golden import FILE, compare, sections, written

if TYPE_CHECKING:
    from pathlib import Path


def test_a_section_is_written_and_the_others_stay(tmp_path: Path) -> None:
    """Each part of the operator writes its own section; a line is there once, and is one line."""
    file = tmp_path / "messages.txt"
    compare("B", ["two\nlines", "last", "last"], file, write=True)
    compare("A", ["first"], file, write=True)
    assert file.read_text(encoding="utf-8") == "## A\nfirst\n\n## B\ntwo\\nlines\nlast\n"
    compare("A", ["first"], file, write=False)
    compare("B", ["two\nlines", "last"], file, write=False)


@pytest.mark.parametrize("rendered", [["other"], ["first", "more"], [], ["more", "first"]])
def test_another_wording_is_an_error(tmp_path: Path, rendered: list[str]) -> None:
    """A sentence that is changed, added or lost fails, and so does a section that is missing."""
    file = tmp_path / "messages.txt"
    compare("A", ["first"], file, write=True)
    with pytest.raises(AssertionError, match="MESSAGES_WRITE"):
        compare("A", rendered, file, write=False)
    with pytest.raises(AssertionError, match="MESSAGES_WRITE"):
        compare("B", ["first"], file, write=False)


def test_the_file_is_as_it_would_be_written() -> None:
    """Nothing in the file is lost when a section is written."""
    text = FILE.read_text(encoding="utf-8")
    assert written(sections(text)) == text
