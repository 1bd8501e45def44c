"""Characters from a file that a terminal or a spreadsheet would obey, made harmless."""

from __future__ import annotations

import re
from typing import Any

from cellworth.report.figures import picture

_PICTURE_OF_DELETE = "\N{SYMBOL FOR DELETE}"
_BEGINS_LIKE_A_FORMULA = re.compile(r"\s*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def visible(text: str, keep: str = "") -> str:
    """Show characters that a terminal would obey as pictures of them."""
    if text.isprintable():
        return text
    return "".join(one if one in keep else _shown(one) for one in text)


def escaped(document: str) -> str:
    """Write the characters of a JSON document that a terminal would obey as JSON escapes."""
    return "".join(one if one == "\n" or one.isprintable() else _escape(one) for one in document)


def unlike_formula(text: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would compute; numbers stay as they are."""
    if not isinstance(text, str) or _NUMBER.fullmatch(text):
        return text
    return f"'{text}" if _BEGINS_LIKE_A_FORMULA.match(text) else text


def _shown(character: str) -> str:
    return _PICTURE_OF_DELETE if character == "\x7f" else picture(character)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
