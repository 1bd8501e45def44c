"""Watching: how the values of single queries differ, and what owners hold of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Positions
from cellworth.owners import Holdings
from cellworth.sweeps import Spread

Floats = NDArray[np.float64]


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
    """Looks at the values of single queries, for how they differ."""

    def __init__(
        self,
        shape: tuple[int, int],
        players: Positions,
        n_players: int,
        owned: Owned | None = None,
    ) -> None:
        self._values = np.empty(shape)
        self._players = players
        whole = shape[0] + 1, n_players + 1
        self._seen, self._first, self._second = (np.zeros(whole) for _ in range(3))
        self._counts = 0.0
        self._owned = owned
        n_owners = 0 if owned is None else owned.shares.shape[1]
        self._owned_first, self._owned_second = np.zeros(n_owners), np.zeros(n_owners)

    def cleared(self) -> Floats:
        """Room for the values of the next query."""
        self._values[:] = 0.0
        return self._values

    def note(self, squared_count: float) -> None:
        """Take in what the room holds."""
        from cellworth.neighbours import kernels

        kernels.observe(
            self._values, self._players, squared_count, self._seen, self._first, self._second
        )
        self._counts += squared_count
        if self._owned is not None:
            sums = self._owned.sums(self._values)
            self._owned_first += squared_count * sums
            self._owned_second += squared_count * sums**2

    def spread(self, n_queries: int) -> Spread:
        """Sums over the queries that were noted."""
        return Spread(n_queries, self._counts, self._first.T.copy(), self._second.T.copy())

    def owned_spread(self, n_queries: int) -> Spread:
        """The same for what owners hold."""
        return Spread(n_queries, self._counts, self._owned_first, self._owned_second)
