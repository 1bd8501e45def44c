"""Grid: the cells of a Valuation as they are drawn, tall tables in bins of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Axis
from cellworth.plots.style import Floats, texts_of
from cellworth.valuation import Valuation

NOBODY, SEVERAL = -1, -2

_ROWS_AT_ONCE = 65_536
_LONGEST_END = 14


@dataclass(frozen=True, eq=False)
class Grid:
    """Mean values of bins of rows, with their errors.

    Parameters
    ----------
    values : array of shape (n_bins, n_columns)
        Mean over the rows that were visited; NaN where none was.
    errors : array of the same shape
        Mean of the errors: that of the mean is at most this, however rows depend on each other.
        NaN where no error is known.
    rows_per_bin : int
        The last bin may have fewer.
    row_names, column_names : list of str
    """

    values: Floats
    errors: Floats
    rows_per_bin: int
    row_names: list[str]
    column_names: list[str]

    @classmethod
    def of(cls, valuation: Valuation, most_rows: int) -> Grid:
        """Bin the rows of a valuation, at most so many bins."""
        rows_per_bin = -(-valuation.shape[0] // most_rows)
        values, errors = [], []
        for strip in valuation.strips(_ROWS_AT_ONCE // rows_per_bin * rows_per_bin or rows_per_bin):
            values.append(_bin_means(strip.values, rows_per_bin))
            errors.append(_bin_means(strip.errors, rows_per_bin))
        return cls(
            np.vstack(values),
            np.vstack(errors),
            rows_per_bin,
            _bin_names(valuation.blocks.rows, rows_per_bin),
            texts_of(valuation.column_labels.tolist()),
        )

    def owners(self, codes: NDArray[np.int_]) -> NDArray[np.int_]:
        """Owner of at least two thirds of each bin; SEVERAL where nobody has that much."""
        return np.vstack(
            [
                _majority(codes[start : start + self.rows_per_bin])
                for start in range(0, len(codes), self.rows_per_bin)
            ]
        )


def _bin_means(cells: Floats, rows_per_bin: int) -> Floats:
    if rows_per_bin == 1:
        return cells
    starts = np.arange(0, len(cells), rows_per_bin)
    known = ~np.isnan(cells)
    counts = np.add.reduceat(known.astype(np.int64), starts, axis=0)
    sums = np.add.reduceat(np.where(known, cells, 0.0), starts, axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _bin_names(rows: Axis, rows_per_bin: int) -> list[str]:
    """Name bins by their first and last row."""
    if rows_per_bin == 1:
        return texts_of(rows.labels.tolist())
    starts = range(0, len(rows), rows_per_bin)
    lasts = [min(start + rows_per_bin, len(rows)) - 1 for start in starts]
    named = rows.some_labels(np.array([*starts, *lasts]))
    ends = texts_of(named.tolist(), _LONGEST_END)
    dash = "\N{EN DASH}" if all(text.isdigit() for text in ends) else " \N{EN DASH} "
    return [first + dash + last for first, last in zip(ends, ends[len(starts) :], strict=False)]


def _majority(codes: NDArray[np.int_]) -> NDArray[np.int_]:
    # Whoever has most of them stands in the middle of the sorted codes.
    candidates = np.sort(codes, axis=0)[len(codes) // 2]
    return np.where((codes == candidates).sum(axis=0) * 3 >= 2 * len(codes), candidates, SEVERAL)
