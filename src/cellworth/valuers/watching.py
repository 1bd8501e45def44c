"""Watching: how the values of single queries differ, and what owners hold of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats, Positions
from cellworth.holdings import Holdings
from cellworth.sweeps import Spread


@dataclass(frozen=True, eq=False)
class Owned:
    """Who holds each cell of some rows: a code by column and row, and what each code shares."""

    codes: NDArray[np.int32]
    shares: Floats

    @classmethod
    def of(cls, holdings: Holdings, players: Positions) -> Owned:
        """Codes of the cells of rows that belong to these players."""
        claims = holdings.claims
        codes = holdings.lines[holdings.row_lines[players]]
        return cls(codes.T.ravel(), claims / np.maximum(claims.sum(axis=1, keepdims=True), 1))

    def sums(self, cells: Floats) -> Floats:
        """Add up values, shape (n_columns, n_rows), by owner."""
        by_code = np.bincount(self.codes, weights=cells.ravel(), minlength=len(self.shares))
        added: Floats = by_code @ self.shares
        return added


class Watch:
    """Looks at the values of single queries, for how they differ within strata.

    Parameters
    ----------
    n_results : int
        Columns that have values.
    n_players : int
        Players among the rows.
    n_strata : int
    n_owners : int, default=0
    """

    def __init__(self, n_results: int, n_players: int, n_strata: int, n_owners: int = 0) -> None:
        whole = n_results + 1, n_players + 1
        self._seen = np.zeros(whole)
        self._first, self._second = (np.zeros((n_strata, *whole)) for _ in range(2))
        self._owned_first, self._owned_second = (np.zeros((n_strata, n_owners)) for _ in range(2))
        self._n_queries, self._counts = np.zeros(n_strata, dtype=np.int64), np.zeros(n_strata)

    def turn_to(self, players: Positions, owned: Owned | None = None) -> None:
        """Be ready for values of rows that belong to these players."""
        self._values = np.empty((len(self._seen) - 1, len(players)))
        self._players, self._owned = players, owned

    def cleared(self) -> Floats:
        """Room for the values of the next query."""
        self._values[:] = 0.0
        return self._values

    def note(self, squared_count: float, stratum: int) -> None:
        """Take in what the room holds."""
        from cellworth.neighbours import kernels

        kernels.observe(
            self._values, self._players, squared_count, self._seen, self._first[stratum],
            self._second[stratum],
        )  # fmt: skip
        self._n_queries[stratum] += 1
        self._counts[stratum] += squared_count
        if self._owned is not None:
            sums = self._owned.sums(self._values)
            self._owned_first[stratum] += squared_count * sums
            self._owned_second[stratum] += squared_count * sums**2

    def spread(self) -> Spread:
        """Sums over the queries that were noted."""
        first, second = (sums.swapaxes(1, 2).copy() for sums in (self._first, self._second))
        return Spread(self._n_queries, self._counts, first, second)

    def owned_spread(self) -> Spread:
        """The same for what owners hold."""
        return Spread(self._n_queries, self._counts, self._owned_first, self._owned_second)
