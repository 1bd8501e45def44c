"""What fit warns of: quick checks of the audit, in its words, and a target that may be misread."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Integers, Mask
from cellworth.data.equal_rows import find_first_equal
from cellworth.data.problem import Problem
from cellworth.findings.certainty import MAX_DOUBT
from cellworth.findings.finding import Action, Finding
from cellworth.findings.leaks import find_leaks
from cellworth.findings.levels import ColumnLevels, read_levels
from cellworth.findings.table_checks import find_repeated_rows, find_shared_rows
from cellworth.findings.text_checks import find_stored_quantities

_SHARE_OF_COPIES = 0.02
_MIN_COPIES = 5
# Fewer rows than this that are scored by themselves are an example, not a mistake.
_MIN_VALIDATION_ROWS = 20
_SIGMAS = 4.0
# More different integers than this are seldom classes.
_MAX_PLAIN_CLASSES = 10
_ROWS_PER_CLASS = 5
_SHOWN = 3
# Kinds whose columns may be meant as categories.
_ABOUT_TEXT = {"text among numbers", "numbers as text", "dates as text"}
_OF_FOLDS = (
    "drop the copies, or keep them together with groups= and cv=GroupKFold(); copies in other "
    "folds score each other, so their values are too high"
)
_OUT_OF_BAG = (
    "drop the copies; trees that were not trained on a row were trained on its copy, so its "
    "values are too high"
)


class DataWarning(UserWarning):
    """Data that can be valued but is probably not as intended; each message says what to do.

    See Also
    --------
    audit

    Examples
    --------
    >>> import warnings
    >>> from cellworth import DataWarning
    >>> warnings.simplefilter("error", DataWarning)  # Reject such data.
    >>> warnings.simplefilter("ignore", DataWarning)  # Or accept it silently.
    """


@dataclass(frozen=True)
class DataAdvice:
    """What a user of a valuer can do about doubtful data."""

    # Whether the valuer has a parameter ``column_types``, and the columns that it names.
    column_types: bool = False
    named: frozenset[str] = frozenset()
    # The argument that makes y classes or numbers; None if the model decides.
    to_classes: str | None = None
    to_numbers: str | None = None


def warn_of_data(
    problem: Problem, columns: Sequence[ColumnLevels], advice: DataAdvice, *, sampled: bool = False
) -> None:
    """Warn of each kind of finding; in a sample of rows, copies are not counted."""
    groups: dict[str, list[Finding]] = defaultdict(list)
    name, of_classes = problem.target_name, problem.classes is not None
    for finding in (
        *_find_text(problem, columns, advice),
        *find_leaks(columns, problem.target, of_classes=of_classes, target_name=name),
        *([] if sampled else _find_copies(problem, columns)),
    ):
        groups[finding.action.text].append(finding)
    start = f"in {columns[0].n_rows:,} sampled rows, " if sampled else ""
    for text, found in groups.items():
        sentences = " ".join(finding.sentence for finding in found[:_SHOWN])
        more = f" So do {len(found) - _SHOWN:,} more columns." if len(found) > _SHOWN else ""
        advised = text[:1].upper() + text[1:]
        is_text = found[0].kind in _ABOUT_TEXT
        if advice.column_types and is_text:
            name = found[0].columns[0]
            advised += f", or pass column_types={{{name!r}: 'categorical'}} (--categorical)"
        warn(f"{start}{sentences}{more} {advised}.")


def warn(message: str) -> None:
    """Issue a warning."""
    warnings.warn(message, DataWarning, stacklevel=2)


def _find_text(
    problem: Problem, columns: Sequence[ColumnLevels], advice: DataAdvice
) -> Iterator[Finding]:
    """Yield numbers and dates that are stored as strings, unless the user calls them categories."""
    for position, column in enumerate(columns):
        is_meant = column.name in advice.named or problem.table.read(position).kind == "category"
        if column.kind == "text" and not is_meant:
            yield from find_stored_quantities(column)


def _find_copies(problem: Problem, columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    """Yield rows whose copies score them, if there are more than chance explains."""
    held_out, hashes = problem.held_out, problem.table.hash_rows()
    first = find_first_equal(hashes)
    is_repeated = np.bincount(first)[first] > 1
    if held_out is not None:
        scored = held_out.hash_rows()
        copied: Mask = np.isin(scored, hashes)
    else:
        scored, copied = hashes, is_repeated.copy()
        for fold in problem.folds:
            copied[fold.rows] = np.isin(hashes[fold.rows], hashes[fold.may_train])
    n_copied = int(copied.sum())
    few = max(_SHARE_OF_COPIES * len(copied), _MIN_COPIES)
    if min(len(copied), len(hashes)) < _MIN_VALIDATION_ROWS or n_copied < few:
        return
    if held_out is None:
        action = Action("drop rows", text=_OF_FOLDS if problem.folds else _OUT_OF_BAG)
        found = find_repeated_rows(columns)
        yield from (replace(f, action=action) for f in found if f.doubt <= MAX_DOUBT)
        return
    # More than the table repeats of its own rows is no chance, even where few rows differ.
    expected = is_repeated.mean() * len(copied)
    margin = _SIGMAS * np.sqrt(expected * (1 - is_repeated.mean()) + 1)
    are_more = n_copied - expected > max(_SHARE_OF_COPIES * len(copied), margin)
    labels = problem.target, problem.folds[0].target
    shared = find_shared_rows(columns, read_levels(held_out, parse=False), labels)
    yield from (f for f in shared if are_more or f.doubt <= MAX_DOUBT)


def warn_of_target(
    labels: NDArray[Any], counts: Integers, advice: DataAdvice, *, are_classes: bool
) -> None:
    """Warn of integers that may be classes and are treated as numbers, or the other way round."""
    if labels.dtype.kind not in "iuf" or not np.all(labels == np.floor(labels)):
        return
    n_values, n_rows = len(labels), int(counts.sum())
    ends = f"{labels[0]:g} to {labels[-1]:g}"
    if are_classes:
        few_each = n_values > _MAX_PLAIN_CLASSES // 2 and n_rows < _ROWS_PER_CLASS * n_values
        many = n_values > _MAX_PLAIN_CLASSES and not _are_numbered(labels, counts)
        if few_each or many:
            warn(
                f"y has {n_values} different integers ({ends}), which are treated as classes; if "
                f"y is a numeric target, pass {advice.to_numbers}, else confirm it with "
                f"{advice.to_classes}."
            )
    elif _are_numbered(labels, counts):
        warn(
            f"y has the {n_values} integers {ends}, each of them often, which are treated as a "
            f"numeric target; if they are classes, pass {advice.to_classes}, else confirm it with "
            f"{advice.to_numbers}."
        )


def _are_numbered(labels: NDArray[Any], counts: Integers) -> bool:
    """Return whether labels look like class numbers: consecutive from 0 or 1, none rare."""
    consecutive = np.array_equal(labels, np.arange(len(labels)) + labels[0]) and labels[0] in (0, 1)
    enough = counts.min() >= max(_ROWS_PER_CLASS, 0.2 * counts.mean())
    return bool(consecutive and enough)
