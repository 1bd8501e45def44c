"""StoredList: a ValueList whose figures lie in files until they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Labels
from cellworth.listing import ValueList, refuse_no_number
from cellworth.stored_moments import StoredMoments

Floats = NDArray[np.float64]


class StoredList(ValueList):
    """Values of all cells, or of all rows, of a table in shards.

    The lowest and highest are found, and a part is taken, without reading the rest; ``values`` and
    the other arrays are read when they are asked for, up to a limit.

    Parameters
    ----------
    moments : StoredMoments
    column_labels : array or None
        What the columns are called, for a list of cells; None for a list of rows.
    errors : function
        From spreads to standard errors.
    backend : str or None
        Data-frame library for ``to_frame``.
    """

    def __init__(
        self,
        moments: StoredMoments,
        column_labels: Labels | None,
        errors: Callable[[Floats], Floats],
        backend: str | None,
    ) -> None:
        """Know where the figures are."""
        own = {"_moments": moments, "_columns_called": column_labels, "_errors": errors}
        for name, thing in {**own, "backend": backend, "validation_errors": None}.items():
            object.__setattr__(self, name, thing)

    _moments: StoredMoments
    _columns_called: Labels | None
    _errors: Callable[[Floats], Floats]

    def __len__(self) -> int:
        """Count the entries."""
        return self._moments.shape[0] * self._width

    @property
    def labels(self) -> Mapping[str, Labels]:
        """What each entry is called."""
        self._moments.refuse_too_many("labels", len(self))
        return self._called(np.arange(len(self)))

    @property
    def values(self) -> Floats:
        """All values."""
        return self._moments.all_of(self._part("mean")).ravel()

    @property
    def standard_errors(self) -> Floats:
        """All standard errors."""
        return self._errors(self._moments.all_of(self._part("spread"))).ravel()

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many observations stand behind each value."""
        return np.broadcast_to(np.int64(self._moments.n_observations), len(self))

    def lowest_places(self, k: int) -> NDArray[np.intp]:
        """Positions of the k lowest values, in the order of ``lowest``."""
        refuse_no_number(k)
        return self._moments.best(self._part("mean"), k, lowest=True)

    def highest_places(self, k: int) -> NDArray[np.intp]:
        """Positions of the k highest values, in the order of ``highest``."""
        refuse_no_number(k)
        return self._moments.best(self._part("mean"), k, lowest=False)

    def part(self, places: NDArray[np.intp]) -> ValueList:
        """Return the entries at these positions, in this order."""
        places = np.asarray(places)
        places = np.flatnonzero(places) if places.dtype.kind == "b" else places
        figures = self._moments.entries(places, self._part("mean"), self._part("spread"))
        counts = np.full(len(places), self._moments.n_observations)
        return ValueList(
            self._called(places), figures[0], self._errors(figures[1]), counts, self.backend
        )

    @property
    def _width(self) -> int:
        return 1 if self._columns_called is None else len(self._columns_called)

    def _part(self, figure: str) -> str:
        return f"row_{figure}" if self._columns_called is None else figure

    def _called(self, places: NDArray[np.intp]) -> dict[str, Labels]:
        if self._columns_called is None:
            return {"row": places}
        rows, columns = np.divmod(places, self._width)
        return {"row": rows, "column": self._columns_called[columns]}

    def _largest(self) -> float:
        return self._moments.largest(self._part("mean"))

    def _has_errors(self) -> bool:
        of_rows, of_cells = self._moments.largest_row_spread, self._moments.largest_spread
        largest = of_rows if self._columns_called is None else of_cells
        return bool(np.any(self._errors(np.array([largest]))))
