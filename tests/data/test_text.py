"""Text for people: cells in sentences, hidden characters, formulas of spreadsheets."""

from datetime import date, datetime

import pytest

from cellworth.data.text import escape_formula, format_cell, visible_text


@pytest.mark.parametrize(
    ("content", "text"),
    [(1987, "1987"), (12345, "12,345"), (12345.5, "12,345.5"), (1234567.8, "1,234,568"),
     (-2e6, "-2,000,000"), (0.1234567, "0.123457"), (1e20, "1e+20"), (10**16, f"{10**16:,}"),
     (True, "True"), (None, "a missing value"), (datetime(2020, 1, 2), "2020-01-02"),
     (datetime(2020, 1, 2, 10, 30), "2020-01-02 10:30:00"), (date(2020, 1, 2), "2020-01-02"),
     ("red", "'red'"), ("wide " * 1000, f"'{('wide ' * 12)[:59]}…'"),
     ("\u05de\u05d7", "\u2068'\u05de\u05d7'\u2069")],
)  # fmt: skip
def test_contents_are_short_and_keep_their_direction(content, text):
    assert format_cell(content) == text


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("=1+1", "'=1+1"),
        ("  =1", "'  =1"),
        ("+1-555", "'+1-555"),
        ("-1.5e3", "-1.5e3"),
        ("+.5", "+.5"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("a=b", "a=b"),
        ("", ""),
        (None, None),
        (-3, -3),
    ],
)
def test_only_what_looks_like_a_formula_gets_an_apostrophe(text, harmless):
    assert escape_formula(text) == harmless


def test_controls_are_shown_as_pictures():
    assert visible_text("a\x1bb\x7fc\x9bd\u202ee") == "a␛b�c�d�e"
    assert visible_text("a\nb", keep="\n") == "a\nb"
    assert visible_text("a\nb") == "a␊b"
