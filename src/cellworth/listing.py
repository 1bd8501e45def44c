"""ValueList: labelled values with standard errors, to read, rank and turn into a data frame."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats, Labels, is_whole
from cellworth.notebook import bars as bars_of
from cellworth.notebook import paragraph, table, view

_ROWS_PRINTED = 20
_DIGITS_PRINTED = 4


@dataclass(frozen=True, eq=False)
class ValueList:
    """Values with their labels and standard errors, one entry per block, row or column.

    Parameters
    ----------
    labels : mapping of str to array
        What each entry is called: ``row``, ``column`` or both; ``rank`` in a ranking.
    values, standard_errors : arrays of shape (n,)
    counts : array of shape (n,)
        How many observations stand behind each value.
    backend : str or None
        Data-frame library for :meth:`to_frame`.
    validation_errors : array of shape (n,) or None
        Errors that come from the choice of validation rows, where known.

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> columns = valuation.columns()
    >>> columns
    column   value  validation error
        x0  0.3750            0.1172
        x1  0.1250            0.1172
    >>> columns.lowest(1)
    rank  column   value  validation error
       1      x1  0.1250            0.1172
    >>> columns.to_frame("pyarrow").column_names
    ['column', 'value', 'standard_error', 'count', 'validation_error']
    """

    labels: Mapping[str, Labels]
    values: Floats
    standard_errors: Floats
    counts: NDArray[np.int64]
    backend: str | None = None
    validation_errors: Floats | None = None

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.values)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """One dictionary per entry."""
        columns = self._columns()
        for entry in zip(*columns.values(), strict=True):
            yield dict(zip(columns, entry, strict=True))

    def lowest(self, k: int = 10) -> ValueList:
        """Return the k lowest values, lowest first; ties in the data's order, no unvisited ones."""
        return self._best(self.lowest_places(k))

    def highest(self, k: int = 10) -> ValueList:
        """Return the k highest values, highest first; ties in the data's order, no unvisited."""
        return self._best(self.highest_places(k))

    def lowest_places(self, k: int) -> NDArray[np.intp]:
        """Positions of the k lowest values, in the order of :meth:`lowest`."""
        return self._places(np.argsort(self.values, kind="stable"), k)

    def highest_places(self, k: int) -> NDArray[np.intp]:
        """Positions of the k highest values, in the order of :meth:`highest`."""
        return self._places(np.argsort(-self.values, kind="stable"), k)

    def part(self, places: NDArray[np.intp]) -> ValueList:
        """Return the entries at these positions, in this order."""
        return ValueList(
            {name: array[places] for name, array in self.labels.items()},
            self.values[places],
            self.standard_errors[places],
            self.counts[places],
            self.backend,
            None if self.validation_errors is None else self.validation_errors[places],
        )

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame in the caller's library: ``"pandas"``, ``"polars"`` or ``"pyarrow"``.

        Parameters
        ----------
        backend : str, default=None
            None means the library that X came in; for arrays the first that is installed.

        Examples
        --------
        >>> from cellworth import TableGame, value_game
        >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
        >>> valuation = value_game(game, (2, 2))
        >>> valuation.rows().to_frame("pandas")[["row", "value"]]
           row  value
        0    0    2.0
        1    1    3.0
        """
        return frame(self._columns(), backend or self.backend)

    def __repr__(self) -> str:
        """A table for the terminal."""
        shown = self._shown()
        return "\n".join([*table_lines(shown), *self._left_out()])

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        return view(self.to_html(bars=True), *map(paragraph, self._left_out()))

    def to_html(self, *, bars: bool = False) -> str:
        """Return the first entries as an HTML table without script or style of its own.

        Parameters
        ----------
        bars : bool, default=False
            Whether values are drawn as well, as bars of block characters.
        """
        shown: dict[str, list[Any]] = self._shown()
        if not bars:
            return table(shown)
        drawn = bars_of(self._first().values.tolist())
        return table(shown | {"": drawn}, bars="")

    def _shown(self) -> dict[str, list[Any]]:
        """Columns that are printed, of the first entries, with numbers rounded alike."""
        columns = self._first()._columns()
        del columns["count"]
        if not self._has_errors():
            del columns["standard_error"]
        decimals = self._decimals()
        for name in {"value", "standard_error", "validation_error"} & set(columns):
            columns[name] = [_rounded(number, decimals) for number in columns[name]]
        return columns

    def _left_out(self) -> list[str]:
        left = len(self) - _ROWS_PRINTED
        return [f"... and {left:,} more"] if left > 0 else []

    def _decimals(self) -> int:
        """Decimals that show four digits of the largest value."""
        largest = self._largest()
        digits = _DIGITS_PRINTED - 1 - math.floor(math.log10(largest)) if largest > 0 else 1
        return max(digits, 0)

    def _first(self) -> ValueList:
        """Entries that are printed."""
        return self.part(np.arange(min(len(self), _ROWS_PRINTED)))

    def _largest(self) -> float:
        """Size of the largest value that is known."""
        sizes = np.abs(self.values[np.isfinite(self.values)])
        return float(sizes.max()) if len(sizes) else 0.0

    def _has_errors(self) -> bool:
        """Whether any standard error is not 0."""
        return bool(np.any(self.standard_errors))

    def _columns(self) -> dict[str, list[Any]]:
        numbers = {
            "value": self.values,
            "standard_error": self.standard_errors,
            "count": self.counts,
        }
        if self.validation_errors is not None:
            numbers["validation_error"] = self.validation_errors
        return {name: array.tolist() for name, array in (*self.labels.items(), *numbers.items())}

    def _places(self, order: NDArray[np.intp], k: int) -> NDArray[np.intp]:
        refuse_no_number(k)
        return order[~np.isnan(self.values[order])][:k]

    def _best(self, places: NDArray[np.intp]) -> ValueList:
        """Entries at these positions, with their ranks."""
        best = self.part(places)
        ranks = {"rank": np.arange(1, len(best) + 1)}
        # In front, and in place of the ranks of the list that this one was taken from.
        return replace(best, labels=ranks | dict(best.labels) | ranks)


def refuse_no_number(k: Any) -> None:
    """Refuse what does not say how many values to list."""
    if not is_whole(k) or k < 1:
        raise ValueError(f"k is {k!r}; say how many values to list, at least 1.")


def default_backend() -> str:
    """Name of the first data-frame library that is installed."""
    known = (lib for lib in ("pandas", "polars") if importlib.util.find_spec(lib))
    return next(known, "pyarrow")


def frame(columns: Mapping[str, Any], backend: str | None) -> Any:
    """Make a native data frame of columns, which are lists or arrays."""
    name = backend or default_backend()
    try:
        return nw.from_dict(dict(columns), backend=name).to_native()  # type: ignore[arg-type]
    except (ValueError, TypeError, ModuleNotFoundError, AssertionError) as error:
        raise ValueError(
            f"no data frame could be made with backend {name!r}; "
            "use 'pandas', 'polars' or 'pyarrow', and install it."
        ) from error


def table_lines(columns: Mapping[str, list[Any]], left: Collection[str] = ()) -> list[str]:
    """Lines of a table for the terminal: names above, columns to the right but for some."""
    texts = {name: [name.replace("_", " "), *map(str, cells)] for name, cells in columns.items()}
    aligned = [
        [(str.ljust if name in left else str.rjust)(cell, max(map(len, cells))) for cell in cells]
        for name, cells in texts.items()
    ]
    return ["  ".join(row).rstrip() for row in zip(*aligned, strict=True)]


def _rounded(number: float, decimals: int) -> str:
    # Adding 0.0 keeps rounded-off values from reading -0.0000.
    return f"{round(number, decimals) + 0.0:.{decimals}f}"
