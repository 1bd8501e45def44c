"""StoredList: a ValueList over values in files, read on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats, Labels
from cellworth.listing import ValueList, refuse_no_number
from cellworth.stored_moments import StoredMoments


class StoredList(ValueList):
    """Values of all cells, or of all rows, of a sharded table.

    Ranking and :meth:`part` read a few row groups; ``values`` and the other arrays are read on
    access, up to a limit.

    Parameters
    ----------
    moments : StoredMoments
    column_labels : array or None
        Labels of the columns, for a list of cells; None for a list of rows.
    errors : function
        From spreads to standard errors.
    backend : str or None
        Data-frame library for ``to_frame``.
    """

    _moments: StoredMoments
    _column_labels: Labels | None
    _errors: Callable[[Floats], Floats]

    def __init__(
        self,
        moments: StoredMoments,
        column_labels: Labels | None,
        errors: Callable[[Floats], Floats],
        backend: str | None,
    ) -> None:
        """Keep references; nothing is read."""
        attributes = {"_moments": moments, "_column_labels": column_labels, "_errors": errors}
        for name, value in {**attributes, "backend": backend, "validation_errors": None}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Count the entries."""
        return self._moments.shape[0] * self._width

    @property
    def labels(self) -> Mapping[str, Labels]:
        """Labels of the entries."""
        self._moments.check_fits("labels", len(self))
        return self._label(np.arange(len(self)))

    @property
    def values(self) -> Floats:
        """All values."""
        return self._moments.read_all(f"{self._side}mean").ravel()

    @property
    def standard_errors(self) -> Floats:
        """All standard errors."""
        return self._errors(self._moments.read_all(f"{self._side}spread")).ravel()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of observations behind each value."""
        return np.broadcast_to(np.int64(self._moments.n_observations), len(self))

    def lowest_places(self, k: int) -> NDArray[np.intp]:
        """Return the positions of the k lowest values, in the order of ``lowest``."""
        refuse_no_number(k)
        return self._moments.rank(f"{self._side}mean", k, lowest=True)

    def highest_places(self, k: int) -> NDArray[np.intp]:
        """Return the positions of the k highest values, in the order of ``highest``."""
        refuse_no_number(k)
        return self._moments.rank(f"{self._side}mean", k, lowest=False)

    def part(self, places: NDArray[np.intp]) -> ValueList:
        """Return the entries at these positions, in this order."""
        places = np.asarray(places)
        places = np.flatnonzero(places) if places.dtype.kind == "b" else places
        parts = (f"{self._side}mean", f"{self._side}spread")
        mean, spread = self._moments.read_at(*np.divmod(places, self._width), parts)
        counts = np.full(len(places), self._moments.n_observations)
        return ValueList(self._label(places), mean, self._errors(spread), counts, self.backend)

    @property
    def _width(self) -> int:
        return 1 if self._column_labels is None else len(self._column_labels)

    @property
    def _side(self) -> str:
        return "row_" if self._column_labels is None else ""

    def _label(self, places: NDArray[np.intp]) -> dict[str, Labels]:
        if self._column_labels is None:
            return {"row": places}
        rows, columns = np.divmod(places, self._width)
        return {"row": rows, "column": self._column_labels[columns]}

    def _largest(self) -> float:
        return self._moments.largest(f"{self._side}mean")

    def _has_errors(self) -> bool:
        largest = self._moments.largest_spread(f"{self._side}mean")
        return bool(np.any(self._errors(np.array([largest]))))
