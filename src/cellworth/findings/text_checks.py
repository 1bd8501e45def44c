"""Checks of strings: missing codes, formats, encodings, spellings and contents of other columns."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import OSA

from cellworth.data.text import format_count, list_first, preview, shorten
from cellworth.findings.certainty import MAX_DOUBT
from cellworth.findings.finding import Action, Finding
from cellworth.findings.levels import SHARE_OF_NUMBERS, ColumnLevels, is_missing_mark
from cellworth.valuation.column_info import (
    DATE_PATTERN,
    NUMBER_PATTERN,
    are_codes,
)

# Words that often, but not always, stand for a missing value.
_MISSING_WORDS = {
    "unknown", "unk", "missing", "n.a.", "not available", "no data", "not known", "undefined",
    "unspecified", "tbd", "#ref!", "#value!", "#div/0!",
}  # fmt: skip
_FALSE_MARK, _FALSE_WORD = 0.02, 0.4
_MAX_LEVELS = 5_000
# Shorter words are codes, of which many are a letter apart.
_SHORTEST_WORD, _LONGEST_CODE = 4, 3
_SHARE_OF_NAMES = 0.9
# A letter behind a number that repeats is a pattern of the column.
_NUMBERED = re.compile(r"\d+ ?[a-zA-Z]{1,2}|[a-zA-Z]{1,2} ?\d+")
_EXAMPLES = 3
_MIN_OF_A_FORMAT = 20
# A blank more or less, and a letter: words that differ in number are else other words.
_MAX_JOINED = 2
# Characters of a text that was decoded with another encoding than it was encoded with.
_GARBLED = re.compile("\ufffd|[\u0080-\u009f]|Ã[\u0080-\u00bf©¨¤¶¼±³¡­]|â€|Â[\u00a0-\u00bf]|ï¿½")
# Cyrillic letters that look like Latin ones.
_LOOK_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0410\u0412"
    "\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406",
    "aeopcyxiABEKMHOPCTXI",
)
_LETTERS, _DIGIT_RUN = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")
_AMBIGUOUS_DATE = re.compile(r"\s*(\d{1,2})[-/.](\d{1,2})[-/.](?:\d{4}|\d{2})\b.*")


def find_missing_marks(column: ColumnLevels) -> Iterator[Finding]:
    """Yield strings that stand for a missing value."""
    rows_of = {
        text: column.rows_of([level])
        for level, text in enumerate(column.strings)
        if _mark(text) and not _is_like_others(text, column)
    }
    rows_of |= {text: rows for text, rows in column.strays.items() if _mark(text)}
    for text, rows in rows_of.items():
        shown = repr(text) if text.strip() else "an empty string"
        yield Finding(
            "missing mark",
            (column.name,),
            rows,
            f"{shown} stands for a missing value in {format_count(len(rows), 'cell')} of "
            f"{column.name}.",
            Action("set missing", {text: None}, "make them missing values"),
            _FALSE_MARK if is_missing_mark(text) else _FALSE_WORD,
        )


def _is_like_others(text: str, column: ColumnLevels) -> bool:
    """Return whether a mark is a content of its column: NA of countries, - beside +."""
    others = [each for each in column.strings if each != text]
    if text.isalpha():
        n_codes = sum(each.isalpha() and len(each) <= len(text) for each in others)
        all_differ = len(column.strings) >= _SHARE_OF_NAMES * column.n_known
        return (len(text) <= _LONGEST_CODE and 2 * n_codes > len(others)) or all_differ
    return text == "-" and "+" in others


def _mark(text: str) -> bool:
    return is_missing_mark(text) or text.strip().lower() in _MISSING_WORDS


def find_stored_quantities(column: ColumnLevels) -> Iterator[Finding]:
    """Yield numbers and dates that are stored as strings, or the few strings among numbers.

    If nearly all strings are plain numbers, the others are strays: "2O" is a slip in a number, and
    no 2 of a unit O. A number of a unit needs others of it.
    """
    numbers = column.read_numbers() if column.kind == "text" else column
    strange = {} if numbers is None else numbers.strays
    strange = {
        text: rows
        for text, rows in strange.items()
        if not (_mark(text) or (len(rows) > 1 and _NUMBERED.fullmatch(text.strip())))
    }
    if strange:
        rows = np.sort(np.concatenate(list(strange.values())))
        yield Finding(
            "text among numbers", (column.name,), rows,
            f"{_list_texts(list(strange))} in {format_count(len(rows), 'cell')} of {column.name} "
            f"{'is' if len(strange) == 1 else 'are'} no number; the others are numbers stored as "
            "text.",
            Action("check", text="correct them, or make them missing values"), 0.02,
        )  # fmt: skip
    elif column.kind == "text":
        yield from _find_quantities(column)


def _find_quantities(column: ColumnLevels) -> Iterator[Finding]:
    known = [level for level, text in enumerate(column.strings) if not _mark(text)]
    n_known = int(column.counts[known].sum())
    dates = [level for level in known if DATE_PATTERN.fullmatch(column.strings[level])]
    if n_known and column.counts[dates].sum() >= SHARE_OF_NUMBERS * n_known:
        yield from _describe_dates(column, dates)
        return
    matches = {level: NUMBER_PATTERN.fullmatch(column.strings[level]) for level in known}
    numbers = {level: match for level, match in matches.items() if match}
    are_most = column.counts[list(numbers)].sum() >= SHARE_OF_NUMBERS * n_known
    if numbers and are_most and not are_codes(list(numbers.values()), n_known):
        yield from _describe_numbers(column, {n: match["unit"] for n, match in numbers.items()})


def _describe_dates(column: ColumnLevels, levels: Sequence[int]) -> Iterator[Finding]:
    """Yield dates stored as text, and those whose month is where the others have the day."""
    # By whether the first and the second number are no month.
    by_order: dict[tuple[bool, bool], list[int]] = defaultdict(list)
    for level in levels:
        if match := _AMBIGUOUS_DATE.fullmatch(column.strings[level]):
            by_order[int(match[1]) > 12, int(match[2]) > 12].append(level)
    rows = column.rows_of(levels)
    n_doubtful = int(column.counts[by_order[False, False]].sum())
    sentence = f"{column.name} holds dates as text ({len(rows):,} cells)"
    if n_doubtful:
        sentence += f"; in {n_doubtful:,} no rule tells the day from the month"
    yield Finding(
        "dates as text", (column.name,), rows, f"{sentence}.",
        Action("convert", text="parse the dates with a stated format"), 0.3 if n_doubtful else 0.5,
    )  # fmt: skip
    sides = by_order[True, False], by_order[False, True]
    few, most = sorted(sides, key=lambda side: int(column.counts[side].sum()))
    if few:
        rows, n_most = column.rows_of(few), int(column.counts[most].sum())
        first = "month" if few is sides[1] else "day"
        yield Finding(
            "dates as text", (column.name,), rows,
            f"{_list_texts([column.strings[level] for level in few])} in "
            f"{format_count(len(rows), 'cell')} of {column.name} "
            f"{'has' if len(few) == 1 else 'have'} the {first} first; "
            f"{format_count(n_most, 'cell')} the other way round.",
            Action("check", text="write all dates in one order"), 0.05,
        )  # fmt: skip


def _describe_numbers(column: ColumnLevels, unit_of: Mapping[int, str | None]) -> Iterator[Finding]:
    by_unit: dict[str, list[int]] = defaultdict(list)
    for level, unit in unit_of.items():
        by_unit[(unit or "").rstrip(".").lower()].append(level)
    sizes = {unit: int(column.counts[levels].sum()) for unit, levels in by_unit.items()}
    units = preview([unit for unit in sizes if unit])
    if not max(sizes, key=sizes.__getitem__) and len(sizes) > 1:
        # Most numbers are plain, some have a unit.
        rows = column.rows_of([level for level, unit in unit_of.items() if unit])
        yield Finding(
            "numbers as text", (column.name,), rows,
            f"{len(rows):,} of {sum(sizes.values()):,} numbers in {column.name} end in {units}, "
            "the others are plain.",
            Action("convert", text="write all numbers in one unit, without text"), 0.05,
        )  # fmt: skip
        return
    rows = column.rows_of(list(unit_of))
    named = f" with {units}" if any(sizes) else ""
    yield Finding(
        "numbers as text", (column.name,), rows,
        f"{column.name} holds numbers as text{named} ({len(rows):,} cells).",
        Action("convert", text="convert them to numbers in one unit"), 0.1 if named else 0.3,
    )  # fmt: skip


def find_mixed_shapes(column: ColumnLevels) -> Iterator[Finding]:
    """Yield strings whose digits, letters and signs are arranged as in few other cells."""
    levels_of: dict[str, list[int]] = defaultdict(list)
    for level, text in enumerate(column.strings):
        if not _mark(text):
            levels_of[_DIGIT_RUN.sub("9", _LETTERS.sub("a", " ".join(text.split())))].append(level)
    sizes = {shape: int(column.counts[levels].sum()) for shape, levels in levels_of.items()}
    n_known, usual = sum(sizes.values()), max(sizes, key=sizes.__getitem__, default="")
    # Few contents, such as '<=50K' beside '>50K', are categories and no format.
    is_format = "9" in usual and len(usual) <= 30 and len(levels_of[usual]) >= _MIN_OF_A_FORMAT
    if not is_format or sizes[usual] < 0.5 * n_known:
        return
    example = column.strings[levels_of[usual][0]]
    # Shapes that are rare by themselves make one finding.
    groups: dict[str, list[int]] = defaultdict(list)
    for shape, levels in levels_of.items():
        if shape != usual:
            groups[shape if sizes[shape] >= 0.01 * n_known else ""] += levels
    for levels in groups.values():
        rows = column.rows_of(levels)
        share = len(rows) / n_known
        yield Finding(
            "mixed formats", (column.name,), rows,
            f"{_list_texts([column.strings[level] for level in sorted(levels)])} in "
            f"{format_count(len(rows), 'cell')} of {column.name}; {sizes[usual] / n_known:.0%} "
            f"look like {example!r}.",
            Action("check", text="write them as the others are written"),
            share / (share + 0.03),
        )  # fmt: skip


def find_garbled(column: ColumnLevels) -> Iterator[Finding]:
    """Yield strings that were read with a wrong encoding."""
    levels = [level for level, text in enumerate(column.strings) if _is_garbled(text)]
    if levels:
        rows = column.rows_of(levels)
        yield Finding(
            "encoding", (column.name,), rows,
            f"{_list_texts([column.strings[level] for level in levels])} in "
            f"{format_count(len(rows), 'cell')} of {column.name} was read with a wrong encoding.",
            Action("check", text="read the file again with its own encoding"), 0.05,
        )  # fmt: skip


def _is_garbled(text: str) -> bool:
    if text.isascii():
        return False
    if _GARBLED.search(text):
        return True
    # Marks that combine with no letter that they occur with.
    return any(
        unicodedata.combining(character)
        and unicodedata.normalize("NFC", before + character) == before + character
        for before, character in pairwise(text)
    )


def find_spelling_variants(column: ColumnLevels) -> Iterator[Finding]:
    """Yield levels that differ from a more frequent one in case, blanks or look-alike letters."""
    if column.kind != "text":
        return
    groups: dict[str, list[int]] = defaultdict(list)
    for level, text in enumerate(column.strings):
        groups[simplify_text(text)].append(level)
    # The case in which most cells are written.
    cases: Counter[str] = Counter()
    for text, count in zip(column.strings, column.counts.tolist(), strict=True):
        cases[name_case(text)] += count
    usual = max(cases, key=cases.__getitem__, default="mixed")
    pairs: dict[str, str] = {}
    for own in groups.values():
        if len(own) > 1:
            best = _choose_spelling(column, own, usual)
            pairs |= {column.strings[n]: best for n in own if column.strings[n] != best}
    if pairs:
        rows = column.rows_of([n for n, text in enumerate(column.strings) if text in pairs])
        listed = list_first([f"{a!r} for {b!r}" for a, b in pairs.items()], _EXAMPLES)
        yield Finding(
            "spelling variant", (column.name,), rows,
            f"{column.name} spells one content in several ways: {listed} "
            f"({format_count(len(rows), 'cell')}).",
            Action("replace", pairs, "use one spelling"), 0.1,
        )  # fmt: skip


def _choose_spelling(column: ColumnLevels, levels: Sequence[int], usual: str) -> str:
    """Return the most frequent spelling of a content, or the one in the usual case of the column.

    Blanks around a text are no part of it, however many cells have them.
    """
    cases = {level: name_case(column.strings[level]) for level in levels}
    if "mixed" not in cases.values():
        levels = [level for level in levels if cases[level] == usual] or levels
    best = max(levels, key=lambda level: (column.counts[level], -level))
    return " ".join(column.strings[best].split())


def name_case(text: str) -> str:
    """Return how a text uses capitals: a name of the case, or "mixed" for those inside a word."""
    forms = {
        "lower": text.lower(), "upper": text.upper(), "title": text.title(),
        "sentence": text.capitalize(),
    }  # fmt: skip
    return next((name for name, form in forms.items() if form == text), "mixed")


def simplify_text(text: str) -> str:
    """Return a text without what spellings of one content differ in, such as case and blanks."""
    folded = unicodedata.normalize("NFKC", text).translate(_LOOK_ALIKE).casefold()
    return " ".join(folded.split()).rstrip(".")


def find_misspellings(column: ColumnLevels, known: Collection[str] = ()) -> Iterator[Finding]:
    """Yield rare levels that are a few letters away from a frequent one, except known ones."""
    if column.kind != "text":
        return
    words = np.array(
        [_is_word(text) and len(text) >= _SHORTEST_WORD for text in column.strings], dtype=bool
    )
    order = np.argsort(-column.counts, kind="stable")
    order = order[words[order]][:_MAX_LEVELS]
    frequent = order[column.counts[order] >= 5]
    if len(frequent) == 0 or len(order) < 2:
        return
    distances = process.cdist(
        column.levels[order].tolist(), column.levels[frequent].tolist(),
        scorer=OSA.distance, score_cutoff=_longest_slip(max(map(len, column.strings))),
        dtype=np.uint8,
    ).astype(np.int64)  # fmt: skip
    distances[distances > _longest_slip(255)] = 255
    limits = np.array([_longest_slip(len(column.levels[level])) for level in order])
    near = (distances <= limits[:, None]) & (distances > 0)
    near_frequent = near[: len(frequent)]
    n_near = near_frequent.sum(axis=1)
    is_rarer = column.counts[frequent] >= 8 * column.counts[order][:, None]
    found: dict[bool, list[tuple[float, int, int]]] = {True: [], False: []}
    for line, level in enumerate(order.tolist()):
        text = column.strings[level]
        candidates = [
            other
            for other in np.flatnonzero(near[line] & is_rarer[line]).tolist()
            if _differs_by_letters(text, column.strings[frequent[other]])
        ]
        if not candidates or text in known:
            continue
        # The more frequent ones come first.
        best = int(frequent[min(candidates, key=distances[line].__getitem__)])
        others = n_near
        if line < len(frequent):
            others = np.delete(n_near - near_frequent[:, line], line)
        by_chance = _estimate_chance(others, len(text))
        doubt = by_chance / (by_chance + 0.3 * _measure_closed(column) ** 2)
        # Words that are more probably another word are listed apart.
        found[doubt <= MAX_DOUBT].append((doubt, level, best))
    for slips in found.values():
        if slips:
            yield _describe_slips(column, sorted(slips))


def _describe_slips(column: ColumnLevels, slips: Sequence[tuple[float, int, int]]) -> Finding:
    """Describe misspelt words as one finding, the surest first."""
    rows = column.rows_of([level for _, level, _ in slips])
    pairs = {column.strings[level]: column.strings[best] for _, level, best in slips}
    listed = list_first(
        [f"{shorten(a, 40)!r} for {shorten(b, 40)!r}" for a, b in pairs.items()], _EXAMPLES
    )
    return Finding(
        "misspelling", (column.name,), rows,
        f"{column.name} has slips of letters in frequent words: {listed} "
        f"({format_count(len(rows), 'cell')}).",
        Action("replace", pairs, "replace them with the frequent words"), slips[0][0],
    )  # fmt: skip


def _measure_closed(column: ColumnLevels) -> float:
    """Return the share of cells with a frequent level: small for names, near 1 for categories."""
    return float(column.counts[column.counts >= 5].sum()) / max(column.n_known, 1)


def _longest_slip(length: int) -> int:
    """Return how many letters of a misspelt word may differ."""
    return 1 if length < 6 else 2 if length < 10 else max(2, length // 7)


def _estimate_chance(n_near: NDArray[np.int64], length: int) -> float:
    """Return the chance that a correct text of a length is near a frequent one.

    ``n_near`` has the number of frequent texts near each frequent one.
    """
    expected = 0.5 if length < 3 else 0.2 if length < 4 else 0.05 if length < 6 else 0.01
    return float(((n_near > 0).sum() + 2 * expected) / (len(n_near) + 2))


def _is_word(text: str) -> bool:
    """Return whether a string has more letters than digits."""
    n_letters = sum(character.isalpha() for character in text)
    return n_letters > sum(character.isdigit() for character in text)


def _differs_by_letters(one: str, other: str) -> bool:
    """Return whether a slip of letters explains the difference: no other word or number."""
    if _DIGIT_RUN.sub("", one) == _DIGIT_RUN.sub("", other):
        return False
    words, others = one.split(), other.split()
    if len(words) != len(others):
        return abs(len(one) - len(other)) <= _MAX_JOINED
    return all(
        OSA.distance(a, b) <= max(1, (2 * len(a)) // 5) for a, b in zip(words, others, strict=True)
    )


def find_swapped(columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    """Yield contents that belong to another column."""
    texts = [column for column in columns if column.kind == "text"]
    where: dict[str, list[ColumnLevels]] = defaultdict(list)
    for column in texts:
        for level in np.flatnonzero(column.counts >= 20).tolist():
            where[column.strings[level]].append(column)
    for column in texts:
        yield from _find_foreign(column, where)


def _find_foreign(column: ColumnLevels, where: dict[str, list[ColumnLevels]]) -> Iterator[Finding]:
    strings = column.strings
    known = [level for level, text in enumerate(strings) if not _mark(text)]
    usual = [level for level in known if column.counts[level] >= 5]
    if len(usual) < 2:
        return
    is_rare = column.counts <= max(3, 0.001 * column.n_known)
    for level in known:
        text = strings[level]
        for home in where[text] if is_rare[level] and text in where and _is_word(text) else []:
            shared = sum(home in where.get(strings[other], []) for other in usual) / len(usual)
            if home is not column and shared < 0.1:
                rows = column.rows_of([level])
                yield Finding(
                    "wrong column", (column.name,), rows,
                    f"{text!r} in {format_count(len(rows), 'cell')} of {column.name} is a "
                    f"content of {home.name}.",
                    Action("set missing", {text: None}, "correct it"),
                    1.0 - (0.98 - shared) * _measure_closed(column) ** 2,
                )  # fmt: skip
                break


def _list_texts(texts: Sequence[str]) -> str:
    return list_first([repr(shorten(text, 40)) for text in texts], _EXAMPLES)
