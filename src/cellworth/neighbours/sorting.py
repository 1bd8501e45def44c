"""Exact ranking: rows are sorted by distance, coalition by coalition."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.blas import dgemm

from cellworth.counts import Floats, Wholes
from cellworth.neighbours.training import CoalitionBatches, Query, Training
from cellworth.neighbours.votes import vote_of_sorted

# Keys that are sorted together; about what the cache of a core holds.
_KEYS_AT_ONCE = 2**18
_LEAST_AT_ONCE = 16


def coalitions_at_once(n_rows: int) -> int:
    """How many coalitions are ranked together."""
    return max(_KEYS_AT_ONCE // n_rows, _LEAST_AT_ONCE)


class SortedRows:
    """Values the rows for one query after the other, in buffers of its own."""

    def __init__(self, training: Training, n_lines: int) -> None:
        self._training = training
        self._keys = np.empty((n_lines, training.n_rows), dtype=np.int64)
        # One line more: what rows are worth without any column.
        self._values = np.empty((n_lines + 1, training.n_rows))

    def add(
        self,
        query: Query,
        plan: CoalitionBatches,
        *,
        order: Wholes,
        weights: Floats,
        count: float,
        nothing: Floats,
        into: Floats,
    ) -> tuple[float, float]:
        """Add the values of all cells for one query; return what the whole table does for it.

        That is its utility, and the chance that its majority vote is right (NaN for a numeric
        target).

        Parameters
        ----------
        query : Query
        plan : CoalitionBatches
        order : array of shape (n_players,)
            Player that stands for each name in the plan.
        weights : array of shape (n_coalitions + 1, n_results)
            What each coalition counts for each result; the last line is for ``nothing``.
        count : float
            What the query counts.
        nothing : array of shape (n_rows,)
            Values of rows that the last line of weights counts.
        into : array of shape (n_results, n_rows)
            Added to.
        """
        from cellworth.neighbours import kernels

        training, whole, vote = self._training, 0.0, math.nan
        payload = training.payload(query)
        for part, steps in plan.batches:
            n_lines = len(steps[0])
            keys, values = self._keys[:n_lines], self._values[: n_lines + 1]
            kernels.fill_keys(
                training.rows, query[:3], training.rulers, training.players, order, steps,
                payload, training.shift, keys,
            )  # fmt: skip
            keys.sort(axis=1)
            training.row_values(keys, query, values[:-1])
            counts = weights[part]
            if part is plan.batches[-1][0]:
                whole = training.utility(keys[-1], query)
                if training.is_class:
                    vote = vote_of_sorted(training, keys[-1], query)
                values[-1] = nothing
                counts = weights[part.start :]
            dgemm(count, values[: len(counts)].T, counts, beta=1.0, c=into.T, overwrite_c=1)
        return whole, vote
