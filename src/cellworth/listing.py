"""ValueList: labelled values with standard errors, to read, rank and turn into a data frame."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Labels

Floats = NDArray[np.float64]

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
    """

    labels: Mapping[str, Labels]
    values: Floats
    standard_errors: Floats
    counts: NDArray[np.int64]
    backend: str | None = None

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
        return self._ranked(np.argsort(self.values, kind="stable"), k)

    def highest(self, k: int = 10) -> ValueList:
        """Return the k highest values, highest first; ties in the data's order, no unvisited."""
        return self._ranked(np.argsort(-self.values, kind="stable"), k)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame in the caller's library: ``"pandas"``, ``"polars"`` or ``"pyarrow"``.

        Parameters
        ----------
        backend : str, default=None
            None means the library that X came in; for arrays the first that is installed.
        """
        return frame(self._columns(), backend or self.backend)

    def __repr__(self) -> str:
        """A table for the terminal."""
        shown = list(self)[:_ROWS_PRINTED]
        columns = [name for name in self._columns() if name != "count" and not self._idle(name)]
        cells = [[_text(self, name, entry[name]) for name in columns] for entry in shown]
        lines = _table([name.replace("_", " ") for name in columns], cells)
        left = len(self) - len(shown)
        return "\n".join(lines + ([f"... and {left:,} more"] if left else []))

    def decimals(self) -> int:
        """Decimals that show four digits of the largest value."""
        sizes = np.abs(self.values[np.isfinite(self.values)])
        largest = float(sizes.max()) if len(sizes) else 0.0
        return _DIGITS_PRINTED - 1 - math.floor(math.log10(largest)) if largest > 0 else 1

    def _columns(self) -> dict[str, list[Any]]:
        numbers = {
            "value": self.values,
            "standard_error": self.standard_errors,
            "count": self.counts,
        }
        return {name: array.tolist() for name, array in (*self.labels.items(), *numbers.items())}

    def _idle(self, name: str) -> bool:
        return name == "standard_error" and not np.any(self.standard_errors)

    def _ranked(self, order: NDArray[np.intp], k: int) -> ValueList:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(f"k is {k!r}; say how many values to list, at least 1.")
        best = order[~np.isnan(self.values[order])][:k]
        labels = {"rank": np.arange(1, len(best) + 1)}
        labels |= {name: array[best] for name, array in self.labels.items() if name != "rank"}
        return ValueList(
            labels, self.values[best], self.standard_errors[best], self.counts[best], self.backend
        )


def frame(columns: Mapping[str, list[Any]], backend: str | None) -> Any:
    """Make a native data frame of columns."""
    name = backend or next(
        (lib for lib in ("pandas", "polars") if importlib.util.find_spec(lib)), "pyarrow"
    )
    try:
        return nw.from_dict(dict(columns), backend=name).to_native()  # type: ignore[arg-type]
    except (ValueError, TypeError, ModuleNotFoundError, AssertionError) as error:
        raise ValueError(
            f"no data frame could be made with backend {name!r}; "
            "use 'pandas', 'polars' or 'pyarrow', and install it."
        ) from error


def _text(listing: ValueList, name: str, cell: Any) -> str:
    if name in ("value", "standard_error"):
        decimals = max(listing.decimals(), 0)
        # Adding 0.0 keeps rounded-off values from reading -0.0000.
        return f"{round(cell, decimals) + 0.0:.{decimals}f}"
    return str(cell)


def _table(header: list[str], cells: list[list[str]]) -> list[str]:
    rows = [header, *cells]
    widths = [max(len(row[j]) for row in rows) for j in range(len(header))]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
