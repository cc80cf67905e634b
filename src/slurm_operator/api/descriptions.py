'''Turns the docstrings of structs and fields into the descriptions of an API.

A field is documented where it is declared, by the string literal below it:

    replicas: Int32 = 1
    """How many pods to run."""

Python keeps no such docstring at run time, so they are read from the module's source. What comes out is
wrapped to the width at which `kubectl explain` prints, with lists and indented examples kept as they are
written.
'''

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from functools import cache
from itertools import pairwise

# `kubectl explain` wraps longer lines itself, and loses the indentation of list items when it does.
WIDTH = 76


def struct_description(struct: type) -> str:
    """Return what a struct's docstring says."""
    declaration = _declarations(struct.__module__)[struct.__qualname__]
    return _text(declaration.body[0]) or ""


def field_descriptions(struct: type) -> dict[str, str]:
    """Return what is written below each field of a struct and of its bases, by attribute name."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        declaration = _declarations(base.__module__).get(base.__qualname__)
        for statement, after in pairwise(declaration.body if declaration else ()):
            text = _text(after)
            if text and isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[statement.target.id] = text
    return found


@cache
def _declarations(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes at the top level of a module of ours."""
    if not module.startswith("slurm_operator."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _text(statement: ast.stmt) -> str | None:
    """Return the text of a statement that is nothing but a string, without the indentation of the code."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return reflow(text.replace("\n" + " " * statement.col_offset, "\n"))
    return None


def reflow(text: str) -> str:
    """Wrap the paragraphs and list items of a text; leave indented examples alone."""
    blocks = text.strip().split("\n\n")
    return "\n\n".join(_wrap_block(block) for block in blocks)


def _wrap_block(block: str) -> str:
    if block.startswith(" "):
        return block
    lines: list[str] = []
    for line in block.split("\n"):
        if line.startswith("- ") or not lines:
            lines.append(line.strip())
        else:
            lines[-1] += " " + line.strip()
    return "\n".join(
        textwrap.fill(
            line,
            WIDTH,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )
