"""Valuer: the base of all valuers; fit(X, y) checks the input and computes a valuation."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from cellworth.data.arguments import Floats, Labels
from cellworth.data.io import describe
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.findings.fit_checks import DataAdvice, warn_of_data, warn_of_target
from cellworth.findings.levels import read_levels
from cellworth.knn.distances import Distances
from cellworth.knn.knn_game import KNNGame
from cellworth.valuation.column_info import (
    ColumnInfo,
    ColumnTable,
    find_notes,
    name_kind,
)
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.settings import Settings

# What a fitted valuer shows of its valuation.
_READERS: dict[str, Callable[[Valuation], Any]] = {
    "values_": lambda valuation: valuation.values,
    "standard_errors_": lambda valuation: valuation.sampling_se,
    "row_values_": lambda valuation: valuation.rows().values,
    "column_values_": lambda valuation: valuation.columns().values,
}
_RESULTS = ("valuation_", *_READERS)
_NAMES = ("n_features_in_", "feature_names_in_", "columns_")
_SETTINGS = ("n_jobs", "runtime")


class Valuer(BaseEstimator, ABC):  # type: ignore[misc]
    """Base of all valuers: scikit-learn estimators whose ``fit`` values the blocks of X."""

    valuation_: Valuation
    values_: Floats
    standard_errors_: Floats
    row_values_: Floats
    column_values_: Floats
    columns_: ColumnTable | None
    n_features_in_: int
    feature_names_in_: Labels
    # The game of the arguments of ``fit`` that describe the data.
    _make_game: Callable[..., Any]

    def describe(self) -> dict[str, str]:
        """Return the name and the parameters of the valuer as text, as an agreement states them.

        The seed is left out, because the agreement states it as a number; so are ``n_jobs`` and
        ``runtime``, which do not change values.
        """
        given = self.get_params(deep=False)
        names = sorted(set(given) - {*_SETTINGS, "random_state"})
        return {"name": type(self).__name__} | {name: _spell_out(given[name]) for name in names}

    def _advice(self, game: Any) -> DataAdvice:
        """Return how a user of this valuer fixes the data that it warns of."""
        return DataAdvice()

    def _forget(self) -> None:
        """Drop the results of an earlier fit, so that a failed fit leaves none."""
        for name in (*_RESULTS, *_NAMES):
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        """Read values from files; say what to do if there are none."""
        if name in _READERS and "valuation_" in self.__dict__:
            return _READERS[name](self.valuation_)
        if name in _RESULTS:
            raise AttributeError(f"{type(self).__name__} has no {name} yet; call fit first.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def problem_spec(self, X: TableLike, y: VectorLike, **data: Any) -> dict[str, Any]:
        """Describe the problem that ``fit`` with these arguments solves, without solving it.

        The description holds model, scoring, semivalues, empty policy and hashes of the data, as
        ``valuation_.provenance.problem_spec`` does. An agreement fixes it beforehand. ``data`` are
        the other arguments of ``fit`` that describe the data.
        """
        return self._problem_spec(self._make_game(X, y, **data))

    def _settings(self, semivalue: Any = None) -> Settings:
        n_jobs, runtime = (getattr(self, name, None) for name in _SETTINGS)
        return Settings.of(semivalue, n_jobs=n_jobs, runtime=runtime, valuer=self.describe())

    def _inspect_columns(self, game: Any) -> ColumnTable:
        """Return the inferred column types; warn of likely mistakes in the data."""
        problem, advice = game.problem, self._advice(game)
        columns = read_levels(problem.table, parse=False)
        if advice.to_classes is not None:
            labels = np.unique(problem.target, return_counts=True)
            warn_of_target(*labels, advice, are_classes=problem.classes is not None)
        warn_of_data(problem, columns, advice)
        distances = game.distances if isinstance(game, KNNGame) else None
        infos = (
            _describe_column(problem.table, position, distances)
            for position in range(problem.table.shape[1])
        )
        # Before the run: a dry run ends at its first task.
        self.columns_ = ColumnTable(tuple(infos))
        return self.columns_

    def _keep(self, game: Any, valuation: Valuation) -> Self:
        """Keep the results of a fit."""
        self._keep_names(game)
        self.valuation_ = valuation
        return self

    def _keep_names(self, game: Any) -> None:
        names = game.problem.table.names
        self.n_features_in_ = len(names)
        if game.problem.table.backend is not None and all(isinstance(n, str) for n in names):
            self.feature_names_in_ = names

    def _problem_spec(self, game: Any) -> dict[str, Any]:
        return self._settings(getattr(self, "semivalue", None)).problem_spec(game)

    def __sklearn_tags__(self) -> Any:
        """Declare that labels are required and that missing values and strings are allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags


def _spell_out(parameter: Any) -> str:
    # NumPy numbers are written as Python numbers.
    return describe(parameter.item() if isinstance(parameter, np.generic) else parameter)


def _describe_column(table: Table, position: int, distances: Distances | None) -> ColumnInfo:
    """Describe the cells of a column in the training rows, with notes on unusual ones.

    Without distances, a model decides what it does with the column.
    """
    if distances is None:
        column = table.read(position)
        read_as, distance = name_kind(column), ""
    else:
        is_number = distances.scales.where(position)[0] == "numbers"
        column = table.read(position, "numeric" if is_number else "categorical")
        read_as, distance = distances.scales.describe(position, column)
    known = ~column.missing
    missing = len(known) - int(known.sum())
    if column.is_quantity:
        numbers = column.numbers[known]
        distinct = len(np.unique(numbers))
        # Integers with missing values may be stored as floats.
        integral = numbers.dtype.kind in "iu" or (missing > 0 and (numbers % 1 == 0).all())
        integral = bool(integral) and not column.is_time
    else:
        # A dictionary may have values that no cell has.
        distinct, integral = len(np.unique(column.distinct[1][known])), True
    notes = find_notes(distinct, int(known.sum()), missing, integral=integral)
    return ColumnInfo(str(column.name), read_as, missing, distinct, False, distance, notes)
