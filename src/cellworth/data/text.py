"""Text for people: formatted, shortened, listed, and escaped for HTML, terminals and CSV files."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import IO, Any

import numpy as np

_NAMED_IN_ERRORS = 3
# Characters of the content of a cell in a sentence.
_MAX_CHARACTERS = 60
# Controls, marks of direction, halves of characters.
_HIDDEN = {"Cc", "Cf", "Cs"}
_CONTROL_PICTURES = 0x2400
# Unicode isolates: right-to-left text between them does not reorder the sentence.
_ISOLATE, _END = "\u2068", "\u2069"
_LEFTWARD = {"R", "AL", "RLE", "RLO", "RLI"}
_BEGINS_LIKE_A_FORMULA = re.compile(r"\s*[=+\-@\t\r\n]")
# A number as text files write it.
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


def shorten(text: str, most: int = _MAX_CHARACTERS, words: int | None = None) -> str:
    """Cut off the end of text that is longer than this, or has more words."""
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    end = len(text) if words is None or len(ends) <= words else ends[words - 1]
    if end == len(text) <= most:
        return text
    return f"{text[: min(end, most - 1)]}…"


def format_bytes(count: float) -> str:
    """Return a number of bytes in MB, GB or TB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if count >= size:
            return f"{count / size:,.3g} {unit}"
    return f"{count / 1e6:.3g} MB"


def format_interval(middle: float, half: float) -> str:
    """Return an interval by its ends, with four decimals."""
    return "not known" if math.isnan(half) else f"{middle - half:.4f} to {middle + half:.4f}"


def preview(labels: Iterable[Any]) -> str:
    """Return the first few labels, for a message."""
    items = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    shown = ", ".join(repr(item) for item in items[:_NAMED_IN_ERRORS])
    return shown + (", ..." if len(items) > _NAMED_IN_ERRORS else "")


def list_first(texts: Sequence[str], most: int) -> str:
    """Return the first of some texts, and how many more there are."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number of things: one cell, 3 cells."""
    return f"one {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def format_number(number: float, kind: str = "number") -> str:
    """Format a number, or a date as seconds since 1970.

    There is no separator in four digits: they may be a year.
    """
    if kind == "date":
        return (datetime(1970, 1, 1) + timedelta(seconds=float(number))).date().isoformat()
    if isinstance(number, float) and not 1e5 <= abs(number) < 1e15:
        return format(number, ",.6g" if abs(number) >= 10_000 else ".6g")
    return f"{round(number):,}" if abs(number) >= 10_000 else str(number)


def format_timestamp(moment: datetime) -> str:
    """Format a timestamp, as a date if it is midnight."""
    return moment.date().isoformat() if moment.time() == datetime.min.time() else str(moment)


def format_cell(content: Any, words: int | None = None) -> str:
    """Format the content of a cell for a sentence: long strings cut, dates without 00:00."""
    if content is None:
        return "a missing value"
    if isinstance(content, int | float) and not isinstance(content, bool):
        return format_number(content)
    if isinstance(content, str):
        return isolate_text(repr(shorten(content, words=words)))
    text = format_timestamp(content) if isinstance(content, datetime) else str(content)
    return isolate_text(shorten(text, words=words))


def isolate_text(text: str) -> str:
    """Isolate right-to-left text, which would reorder the sentence around it."""
    turns = any(unicodedata.bidirectional(character) in _LEFTWARD for character in text)
    return f"{_ISOLATE}{text}{_END}" if turns else text


def with_minus(text: str) -> str:
    """Replace hyphens by minus signs, as matplotlib does on axes."""
    return text.replace("-", "\N{MINUS SIGN}")


def visible_text(text: str, keep: str = "") -> str:
    """Replace control and invisible characters by visible ones, except those of ``keep``."""
    if text.isprintable():
        return text
    return "".join(one if one in keep else _picture(one) for one in text)


def _picture(character: str) -> str:
    if ord(character) < 0x20:
        return chr(_CONTROL_PICTURES + ord(character))
    # Surrogates cannot be encoded; direction marks would reorder the surrounding text.
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _HIDDEN else character


def escape_html(text: str) -> str:
    """Return text that HTML shows as it is, with hidden characters as visible ones."""
    return html.escape(visible_text(text))


def escape_formula(text: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would run as a formula."""
    if not isinstance(text, str) or re.fullmatch(NUMBER, text):
        return text
    return f"'{text}" if _BEGINS_LIKE_A_FORMULA.match(text) else text


def write_csv(lines: Any, file: IO[bytes]) -> None:
    """Write an Arrow table as CSV, with text that a spreadsheet would run as a formula escaped."""
    import pyarrow as pa
    from pyarrow import csv

    for position, field in enumerate(lines.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            harmless = [escape_formula(text) for text in lines.column(position).to_pylist()]
            lines = lines.set_column(position, field, pa.array(harmless, field.type))
    csv.write_csv(lines, file)
