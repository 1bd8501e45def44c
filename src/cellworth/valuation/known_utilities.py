"""Utilities: the distinct coalitions that a run evaluated, a game that needs no fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask
from cellworth.data.blocks import Blocks
from cellworth.data.tables import frame
from cellworth.data.views import paragraph, view
from cellworth.sampling.moments import DetailedUtility, Deviations


@dataclass(frozen=True, eq=False)
class Utilities:
    """The distinct coalitions that a run evaluated, with their utilities.

    It is a game: ``value_game(valuation.utilities, semivalue=Banzhaf())`` needs no model fit. The
    values are exact if all coalitions were evaluated. Otherwise a Gaussian process is fitted to the
    known utilities, as :class:`~cellworth.sampling.GaussianProcess` does.

    Parameters
    ----------
    blocks : Blocks
        Whose coalitions these are.
    coalitions : array of uint8, shape (n, n_bytes)
        Members of each coalition as bits, rows first; see ``numpy.packbits``.
    values : array of shape (n,)
        Utility of each coalition, in the order of first evaluation.
    deviations : array of float32, shape (n, n_deviations)
        As in :class:`~cellworth.sampling.DetailedUtility`; without columns if they are not known.
    spec : mapping
        Problem spec of the run.
    backend : str or None
        Data-frame library for :meth:`to_frame`.

    See Also
    --------
    cellworth.Valuation, cellworth.value_game

    Examples
    --------
    >>> from cellworth import value_game
    >>> from cellworth.games import TableGame
    >>> from cellworth.sampling import Banzhaf
    >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
    >>> utilities = value_game(game, (2, 2)).utilities
    >>> utilities
    Utilities of 16 of 2^4 coalitions, 2 x 2 blocks
    >>> utilities.to_frame("pandas").head(1)
       row 0  row 1  column 0  column 1  utility
    0   True   True      True      True      5.0
    >>> value_game(utilities, semivalue=Banzhaf()).values
    array([[ 3., -1.],
           [ 1.,  2.]])
    """

    blocks: Blocks
    coalitions: NDArray[np.uint8]
    values: Floats
    deviations: Deviations
    spec: Mapping[str, Any]
    backend: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of row players and of column players."""
        return self.blocks.shape

    @property
    def rows(self) -> Mask:
        """Which rows each coalition has, shape (n, n_rows)."""
        return self._members[:, : self.shape[0]]

    @property
    def columns(self) -> Mask:
        """Which columns each coalition has, shape (n, n_columns)."""
        return self._members[:, self.shape[0] :]

    @property
    def _members(self) -> Mask:
        return np.unpackbits(self.coalitions, axis=1, count=sum(self.shape)).astype(bool)

    @cached_property
    def _positions(self) -> dict[bytes, int]:
        return {members.tobytes(): number for number, members in enumerate(self.coalitions)}

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the utilities."""
        return {name: part for name, part in self.spec.items() if "semivalue" not in name}

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the utility of a coalition; raise ValueError if it was not evaluated."""
        found = self._positions.get(np.packbits(np.concatenate([rows, columns])).tobytes())
        if found is None:
            raise ValueError(
                f"the utility of {np.sum(rows)} rows and {np.sum(columns)} columns is not known, "
                f"only those of {len(self.values):,} other coalitions; leave out estimator and "
                "stop to compute values from these, or value the game itself."
            )
        utility, deviations = float(self.values[found]), self.deviations[found]
        return DetailedUtility(utility, deviations) if len(deviations) else utility

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame: whether each row and each column is a member, and the utility.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, default=None
            None means the library that X came in; for arrays the first that is installed.
        """
        sides = ("row", self.blocks.rows), ("column", self.blocks.columns)
        names = [f"{side} {label}" for side, axis in sides for label in axis.labels.tolist()]
        columns = dict(zip(names, self._members.T, strict=True))
        return frame({**columns, "utility": self.values}, backend or self.backend)

    def to_table(self) -> Any:
        """Return the data frame with deviations, as an Arrow table."""
        import pyarrow as pa

        deviations = pa.array([*self.deviations], pa.list_(pa.float32()))
        return self.to_frame("pyarrow").append_column("deviations", deviations)

    @classmethod
    def from_table(cls, table: Any, blocks: Blocks, *settings: Any) -> Utilities:
        """Read the output of :meth:`to_table`."""
        *members, utilities, deviations = table.columns
        values = utilities.to_numpy()
        if len(members) != sum(blocks.shape) or not np.isfinite(values).all():
            raise ValueError("utilities are not those of the blocks")
        numbers = deviations.combine_chunks().flatten().to_numpy().reshape(len(values), -1)
        return cls(blocks, np.packbits(members, axis=0).T, values, numbers, *settings)

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        known = f"{len(self.values):,} of 2^{n_rows + n_columns} coalitions"
        return f"Utilities of {known}, {n_rows:,} x {n_columns:,} blocks"

    def _repr_html_(self) -> str:
        return view(paragraph(repr(self)))
