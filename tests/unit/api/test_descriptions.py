from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_operator.api.controller import ServiceMonitor
from slurm_operator.api.descriptions import field_descriptions, reflow, struct_description
from slurm_operator.api.nodeset import NodeSetSpec
from slurm_operator.api.reference import main, render_reference
from slurm_operator.api.schema import all_crds
from slurm_operator.api.updates import UpdateStrategy

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[3] / "docs"


def test_paragraphs_are_wrapped() -> None:
    """Lines of a paragraph are joined and wrapped to the width of kubectl explain."""
    text = reflow("one two\nthree " + "word " * 30 + "\n\nnext\nparagraph")
    first, second = text.split("\n\n")
    assert first.startswith("one two three word")
    assert all(len(line) <= 76 for line in first.split("\n"))
    assert second == "next paragraph"


def test_list_items_keep_their_lines() -> None:
    """Each list item stays an item, and its continuation is indented below it."""
    text = reflow("- first " + "word " * 20 + "\n  and more\n- second")
    lines = text.split("\n")
    assert [line for line in lines if line.startswith("- ")] == [lines[0], "- second"]
    assert all(line.startswith(("- ", "  ")) for line in lines)
    assert "and more" in text.replace("\n  ", " ")


def test_examples_are_left_alone() -> None:
    """An indented example keeps its lines and its indentation."""
    assert reflow("such as:\n\n  a:\n    b: c\n") == "such as:\n\n  a:\n    b: c"


def test_field_docstrings_are_found() -> None:
    """The string below a field is its description, without the indentation of the code."""
    described = field_descriptions(NodeSetSpec)
    assert described["replicas"].startswith("How many workers to run.")
    assert "\n\n  - metadata:\n      name: scratch\n" in described["volume_claim_templates"]


def test_inherited_fields_keep_their_docstrings() -> None:
    """A field that comes from a base struct is described by what is written there."""
    assert field_descriptions(ServiceMonitor)["labels"] == "Labels to add to the object, by their keys."


def test_struct_docstrings_are_found() -> None:
    """A struct is described by its docstring, examples included."""
    text = struct_description(UpdateStrategy)
    assert text.startswith("When and how workers are replaced")
    assert "\n  updateStrategy:\n    type: RollingUpdate\n" in text


def test_reference_page_is_fresh() -> None:
    """The page in docs is the one that the structs give now."""
    assert main(["--check", str(DOCS / "reference" / "api.md")]) == 0


def test_stale_reference_page_is_named(tmp_path: Path) -> None:
    """A missing or changed page fails the check, and writing it makes the check pass."""
    page = tmp_path / "api.md"
    assert main(["--check", str(page)]) == 1
    assert main(["--write", str(page)]) == 0
    assert main(["--check", str(page)]) == 0
    page.write_text(page.read_text("utf-8") + "more\n", "utf-8")
    assert main(["--check", str(page)]) == 1


def test_maps_name_what_they_hold() -> None:
    """A map of amounts is not called a map of strings, and a map of labels is."""
    page = render_reference()
    section = page.split("### VolumeResources\n")[1].split("\n### ")[0]
    assert "**`limits`** (map of quantities)" in section
    assert "**`requests`** (map of quantities)" in section
    assert "**`matchLabels`** (map of strings)" in page
    assert "**`labels`** (map of strings)" in page


def test_every_paragraph_fits_the_terminal() -> None:
    """Descriptions, the notes that markers add included, are wrapped to the width of kubectl explain."""
    schemas = [document["spec"]["versions"][0]["schema"] for document in all_crds()]
    texts = [text for schema in schemas for text in _descriptions(schema)]
    assert any("jwtHs256KeyRef to jwtKeyRef" in " ".join(text.split()) for text in texts)
    assert [line for text in texts for line in text.split("\n") if len(line) > 76] == []


def _descriptions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("description"), str):
            yield value["description"]
        for below in value.values():
            yield from _descriptions(below)
    elif isinstance(value, list):
        for below in value:
            yield from _descriptions(below)


def test_links_of_the_reference_page_lead_somewhere() -> None:
    """Every link inside the page has exactly one heading that it leads to."""
    lines = render_reference().splitlines()
    headings = [line.lstrip("# ").lower() for line in lines if line.startswith(("## ", "### "))]
    links = {part.split(")")[0] for line in lines for part in line.split("](#")[1:]}
    assert links
    assert {link: headings.count(link) for link in links} == dict.fromkeys(links, 1)
