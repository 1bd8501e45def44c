"""Count code lines: not blank, no comment, no docstring, no import."""

from __future__ import annotations

import ast
from pathlib import Path

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count(path: Path) -> int:
    """Return the number of code lines of a file."""
    text = path.read_text(encoding="utf-8")
    written = {
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.strip().startswith("#")
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            written -= _lines(node.body[0])
        elif isinstance(node, ast.Import | ast.ImportFrom):
            written -= _lines(node)
    return len(written)


def _lines(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
