"""Lists of values: selection by label, and what leads from values to a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Labels, check_count
from cellworth.data.blocks import Axis, Blocks
from cellworth.data.tables import frame
from cellworth.data.views import draw_bars, html_table, paragraph, table_lines, view

_ROWS_PRINTED = 20
_DIGITS_PRINTED = 4


@dataclass(frozen=True, eq=False)
class ValueList:
    """Values with their labels and standard errors, one entry per block, row or column.

    Parameters
    ----------
    labels : mapping of str to array
        Labels of the entries: ``row``, ``column`` or both; ``rank`` in a ranking.
    values, sampling_se : arrays of shape (n,)
    counts : array of shape (n,)
        Number of observations of each value.
    backend : str or None
        Data-frame library for :meth:`to_frame`.
    validation_se : array of shape (n,) or None
        Errors due to the choice of validation rows, if known.

    See Also
    --------
    cellworth.Valuation, cellworth.plots.bar

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> columns = valuation.columns()
    >>> columns
    column   value  validation_se
        x0  0.3750         0.1172
        x1  0.1250         0.1172
    >>> columns.lowest(1)
    rank  column   value  validation_se
       1      x1  0.1250         0.1172
    >>> columns.to_frame("pyarrow").column_names
    ['column', 'value', 'sampling_se', 'count', 'validation_se']
    """

    labels: Mapping[str, Labels]
    values: Floats
    sampling_se: Floats
    counts: NDArray[np.int64]
    backend: str | None = None
    validation_se: Floats | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary per entry."""
        columns = self._columns()
        for entry in zip(*columns.values(), strict=True):
            yield dict(zip(columns, entry, strict=True))

    def lowest(self, k: int = 10) -> ValueList:
        """Return the k lowest values, lowest first; ties in the order of the data, without NaN."""
        return self._best(self.lowest_positions(k))

    def highest(self, k: int = 10) -> ValueList:
        """Return the k highest values, highest first; ties in the order of the data, no NaN."""
        return self._best(self._rank(check_count(k, "k"), lowest=False))

    def lowest_positions(self, k: int) -> NDArray[np.intp]:
        """Return the positions of the k lowest values, in the order of :meth:`lowest`."""
        return self._rank(check_count(k, "k"), lowest=True)

    def part(self, positions: NDArray[np.intp]) -> ValueList:
        """Return the entries at these positions, in this order."""
        return ValueList(
            {name: array[positions] for name, array in self.labels.items()},
            self.values[positions],
            self.sampling_se[positions],
            self.counts[positions],
            self.backend,
            None if self.validation_se is None else self.validation_se[positions],
        )

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame in the caller's library: ``"pandas"``, ``"polars"`` or ``"pyarrow"``.

        Parameters
        ----------
        backend : str, default=None
            None means the library that X came in; for arrays the first that is installed.

        Examples
        --------
        >>> from cellworth.games import TableGame
        >>> from cellworth import value_game
        >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
        >>> valuation = value_game(game, (2, 2))
        >>> valuation.rows().to_frame("pandas")[["row", "value"]]
           row  value
        0    0    2.0
        1    1    3.0
        """
        return frame(self._columns(), backend or self.backend)

    def __repr__(self) -> str:
        return "\n".join([*table_lines(self._columns_to_print()), *self._left_out()])

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return view(self.to_html(bars=True), *map(paragraph, self._left_out()))

    def to_html(self, *, bars: bool = False) -> str:
        """Return the first entries as an HTML table without script or style of its own.

        Parameters
        ----------
        bars : bool, default=False
            Whether to draw values as bars, too.
        """
        drawn = draw_bars(self._first().values) if bars else ()
        return html_table(self._columns_to_print(), bars=drawn)

    def _columns_to_print(self) -> dict[str, list[Any]]:
        """Return the printed columns of the first entries, rounded to the same decimals."""
        columns = self._first()._columns()
        del columns["count"]
        if not self._has_errors():
            del columns["sampling_se"]
        # Four digits of the largest value.
        largest = self.find_largest()
        digits = _DIGITS_PRINTED - 1 - math.floor(math.log10(largest)) if largest > 0 else 1
        decimals = max(digits, 0)
        for name in {"value", "sampling_se", "validation_se"} & set(columns):
            # Adding 0.0 turns -0.0 into 0.0.
            rounded = (round(number, decimals) + 0.0 for number in columns[name])
            columns[name] = [f"{number:.{decimals}f}" for number in rounded]
        return columns

    def _left_out(self) -> list[str]:
        left = len(self) - _ROWS_PRINTED
        return [f"... and {left:,} more"] if left > 0 else []

    def _first(self) -> ValueList:
        return self.part(np.arange(min(len(self), _ROWS_PRINTED)))

    def find_largest(self) -> float:
        """Return the largest absolute value."""
        sizes = np.abs(self.values[np.isfinite(self.values)])
        return float(sizes.max()) if len(sizes) else 0.0

    def _has_errors(self) -> bool:
        return bool(np.any(self.sampling_se))

    def _columns(self) -> dict[str, list[Any]]:
        numbers = {"value": self.values, "sampling_se": self.sampling_se, "count": self.counts}
        if self.validation_se is not None:
            numbers["validation_se"] = self.validation_se
        return {name: array.tolist() for name, array in (*self.labels.items(), *numbers.items())}

    def _rank(self, k: int, *, lowest: bool) -> NDArray[np.intp]:
        order = np.argsort(self.values if lowest else -self.values, kind="stable")
        return order[~np.isnan(self.values[order])][:k]

    def _best(self, positions: NDArray[np.intp]) -> ValueList:
        best = self.part(positions)
        ranks = {"rank": np.arange(1, len(best) + 1)}
        # Put ranks first, and replace those of a list that was ranked before.
        return replace(best, labels=ranks | dict(best.labels) | ranks)


@dataclass(frozen=True, eq=False)
class LabelIndexer:
    """Index values by the labels of a row and a column: ``valuation.loc[...]``."""

    blocks: Blocks
    # An array, or an object that can be indexed like one.
    values: Any

    def __getitem__(self, key: Any) -> Any:
        """Return one value, or an array for a list or ``:``."""
        if not isinstance(key, tuple) or len(key) != 2:
            raise KeyError(f"{key!r} is not a pair; give a row and a column, ':' for all of them.")
        rows = _find_positions(self.blocks.rows, key[0], "row")
        columns = _find_positions(self.blocks.columns, key[1], "column")
        # All combinations of these rows and columns, not pairs.
        found = self.values[rows[:, np.newaxis] if rows.ndim and columns.ndim else rows, columns]
        return found if found.ndim else float(found)


def _find_positions(axis: Axis, key: Any, what: str) -> NDArray[np.intp]:
    if isinstance(key, slice):
        if key != slice(None):
            raise KeyError(f"loc takes a {what} label, a list of them or ':', not other slices.")
        return np.arange(len(axis))
    if isinstance(key, list | range) or (hasattr(key, "__array__") and np.ndim(key) == 1):
        return np.array([axis.position(label, what=what) for label in key], dtype=np.intp)
    return np.array(axis.position(key, what=what))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view
