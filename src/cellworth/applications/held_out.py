"""Scores on held-out rows: models that are judged by rows which they have not seen."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from cellworth.blocks import is_missing
from cellworth.games.base import one_line
from cellworth.games.model import ModelGame, scoring_name
from cellworth.tables import Table

# Measured by experiments/removal.py; see docs/explanation/removal.md.
REASON = (
    "a table that was changed in the light of its labels looks good to itself: measured, "
    "cross-validation on such a table rose from .795 to .957 while the score on untouched rows "
    "fell from .797 to .769"
)


def held_out_game(
    model: Any, X: Any, y: Any, X_test: Any, y_test: Any, *, scoring: Any, n_repeats: int = 1
) -> ModelGame:
    """State the game in which all rows and columns are trained on and held-out rows judge.

    It is checked as a validation set is, and the sentences name what the caller calls it.
    """
    if X_test is None or y_test is None:
        missing = "X_test" if X_test is None else "y_test"
        raise ValueError(
            f"{missing} is None; give rows that were set aside before anything was valued or "
            "changed, and their labels. There is no cross-validation here."
        )
    try:
        return ModelGame(
            model, X, y, X_test, y_test, scoring=scoring, n_repeats=n_repeats, error="raise"
        )
    except (TypeError, ValueError) as error:
        message = str(error).replace("X_val", "X_test").replace("y_val", "y_test")
        raise type(error)(message) from error


def cause_of(error: RuntimeError) -> str:
    """What the model itself complained of, where it raised, else what was wrong with its score."""
    cause = error.__cause__
    return one_line(cause if isinstance(cause, Exception) else error)


def named_scoring(scoring: Any, game: ModelGame) -> str:
    """Name a scoring for a caption."""
    return scoring_name(scoring, game.problem.classes is not None)


def refuse_own_rows(X_test: Any, tables: dict[str, Any], label: Any, labels: Any) -> None:
    """Refuse held-out rows that are the rows of a training table; warn of some that are.

    Parameters
    ----------
    X_test : table
    tables : dict
        Tables that are trained on, by what the caller calls them.
    label, labels : arrays
        Labels of the held-out rows and of the training rows.
    """
    test = Table.of(X_test, called="X_test")
    shared = {}
    for called, given in tables.items():
        table = Table.of(given, called=called)
        asked = Counter(_rows(test.aligned_to(table, called="X_test"), label))
        trained = Counter(_rows(table, labels))
        if X_test is given or asked == trained:
            raise ValueError(
                f"X_test has the rows of {called}; give rows that were set aside before anything "
                f"was valued or changed, because {REASON}."
            )
        shared[called] = sum(count for row, count in asked.items() if row in trained)
    called = max(shared, key=lambda name: shared[name])
    if shared[called]:
        warnings.warn(
            f"{shared[called]} of {test.shape[0]} rows of X_test are rows of {called}, label and "
            "all; unless the table repeats rows anyway, set other rows aside.",
            stacklevel=3,
        )


def _rows(table: Table, labels: Any) -> Iterator[tuple[Any, ...]]:
    columns = [table.column(place).tolist() for place in range(table.shape[1])]
    for *row, label in zip(*columns, labels.tolist(), strict=True):
        yield (*(None if is_missing(cell) else cell for cell in row), label)
