"""cell_suspicion: how unlikely every cell is, given its label and the other cells of its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cellworth.applications.densities import log_densities
from cellworth.applications.features import Column, Features, Levels, label_column, read_columns
from cellworth.applications.isolation import APART, isolation, isolation_terms
from cellworth.applications.leave_one_out import level_scores, residuals
from cellworth.neighbours.columns import Distance, Floats, Kind
from cellworth.problem import read_target, target_groups
from cellworth.tables import Table

Counts = NDArray[np.int32]

# Beyond these, sums that were made in another order differ.
DIGITS = 9
_LEAST_SCORE = 1e-6


def cell_suspicion(X: Any, y: Any, *, kinds: Mapping[Any, Kind | Distance] | None = None) -> Floats:
    """How unlikely every cell is, given its row's label and the other cells of its row.

    Two questions are asked of each cell, and no cell is among its own witnesses. How common is its
    content in rows with the same label? How well does it fit what a regression on the label and on
    all other columns expects? Suspicion is log(n / a) + log(n / b), where of the n cells of the
    column a are at least as rare and b fit as badly. Ranks do not tell far from very far: a number
    that is more than four spreads away from all others of its column gets 3 log(d / 4) on top,
    where d is its distance from the nearest in spreads.

    Parameters
    ----------
    X : data frame or array of shape (n_rows, n_columns)
        Numbers, text, categories, booleans, dates and durations. A gap is a content like any other.
    y : array of shape (n_rows,)
        Class labels, or a numeric target (numbers with a fraction, or more than 50 different ones).
    kinds : mapping, default=None
        ``{"postcode": "categorical"}`` where the guess from the type is wrong.

    Returns
    -------
    array of shape (n_rows, n_columns)
        High means suspicious; 0 where every cell of the column is as likely. Depends neither on
        the order of rows nor of columns.

    See Also
    --------
    suspect_cells : The most suspicious cells, with reasons.

    References
    ----------
    Rousseeuw and Van den Bossche (2018), Detecting Deviating Data Cells, Technometrics.

    Examples
    --------
    >>> X = [[size, 7 * size] for size in range(20)]
    >>> X[4][1] = 105
    >>> suspicion = cell_suspicion(X, ["small"] * 10 + ["large"] * 10)
    >>> divmod(int(suspicion.argmax()), 2)
    (4, 1)
    """
    return Evidence.of(Table.of(X, called="X"), y, kinds).suspicion


@dataclass(frozen=True, eq=False)
class Evidence:
    """What speaks against each cell: how many are as rare or fit as badly, how far all others are.

    Parameters
    ----------
    columns : list of Column
    target : array of shape (n_rows,)
    groups : array of shape (n_rows,)
        Class of each row, or the group of rows with like targets.
    is_class : bool
    features : Features
        Those of all columns, then of the label.
    as_rare, as_misfit : arrays of shape (n_rows, n_columns)
        Cells of the same column, itself among them, that are at least as rare among the rows with
        their label, and that fit the other cells of their row at least as badly.
    isolation : array of shape (n_rows, n_columns)
        Spreads to the nearest other number of the column.
    """

    columns: list[Column]
    target: NDArray[Any]
    groups: Levels
    is_class: bool
    features: Features
    as_rare: Counts
    as_misfit: Counts
    isolation: Floats

    @classmethod
    def of(cls, table: Table, y: Any, kinds: Mapping[Any, Kind | Distance] | None) -> Evidence:
        """Look at all cells of a table."""
        target, classes = read_target(y, table)
        columns = read_columns(table, kinds)
        label = label_column(target, classes)
        groups = target_groups(target) if classes is None else label.levels
        features = Features.of([*columns, label])
        rare = _counted([log_densities(column, groups) for column in columns])
        misfit = _counted(_fits(features, columns))
        apart: Floats = np.stack([isolation(column) for column in columns], axis=1)
        return cls(columns, target, groups, classes is not None, features, rare, misfit, apart)

    @property
    def suspicion(self) -> Floats:
        """High where a cell is rare, a misfit, or far from all others."""
        n_rows = len(self.groups)
        suspicion: Floats = np.log(n_rows / self.as_rare) + np.log(n_rows / self.as_misfit)
        return suspicion + isolation_terms(self.isolation)

    def nearest(self, row: int, column: int) -> int | None:
        """Row whose number is nearest to that of a cell which stands apart; None for others."""
        numbers = self.columns[column].numbers
        if numbers is None or self.isolation[row, column] <= APART:
            return None
        # Halves, because the difference of the largest numbers is endless.
        away = np.abs(numbers / 2 - numbers[row] / 2)
        away[row] = np.nan
        return int(np.nanargmin(away))


def _fits(features: Features, columns: list[Column]) -> list[Floats]:
    """How well each cell fits the other cells of its row; comparable within a column."""
    far, scores = residuals(features, columns), level_scores(features, columns)
    fits = []
    for place, column in enumerate(columns):
        fit = scores.get(place, np.ones(features.n_rows))
        if place in far:
            # The share of numbers that are as far off, times the score of there being a number.
            known = column.known
            tail = _at_least_as_low(-far[place][known]) / known.sum()
            fit[known] = np.maximum(fit[known], _LEAST_SCORE) * tail
        fits.append(fit)
    return fits


def _counted(scores: list[Floats]) -> Counts:
    return np.stack([_at_least_as_low(score) for score in scores], axis=1)


def _at_least_as_low(scores: Floats) -> Counts:
    counts: Counts = rankdata(np.round(scores, DIGITS), method="max").astype(np.int32)
    return counts
