"""Coalitions chosen before the first fit: those that are expected to say most about the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from cellworth.data.arguments import Floats, Mask
from cellworth.sampling.gaussian_process import Side, link_values, pair_kernel, prior_covariance
from cellworth.sampling.moments import limit_threads
from cellworth.sampling.samplers import (
    CoalitionPairs,
    draw_coalitions,
    generator,
    list_pairs,
    n_utilities,
)
from cellworth.sampling.semivalues import Semivalue, sizes_around

_PAIRS_PER_TASK = 8
# So many pairs are chosen at once, out of others that are drawn at random.
_BATCH, _POOL = 64, 500
# Every choice takes longer than the one before, and helps less: later pairs are drawn.
_MAX_CHOSEN = 1_500
# Of so many pairs, all that are left can be listed.
_MAX_LISTED = 2**14
# The parameters of the kernel by which pairs are chosen, in the order of gaussian_process.py. They
# were found on six of the twelve games of experiments/estimators_race.py.
_KERNEL = np.array([0.45, 0.05, 0.25, 0.25, 0.45, 0.05, 0.25, 0.25, 0.03])
# Added to variances, some of which are 0.
_JITTER = 1e-6
# Gains are equal if they differ by less, because rounding depends on the processor.
_SAME = 1e-6


@dataclass(eq=False)
class DesignedTasks:
    """Choose pairs of coalitions one by one, by what they say about the values of all blocks.

    What a pair is expected to say is the information gain: half the logarithm of its variance in a
    Gaussian process, divided by its variance if the values were known, given all earlier pairs.
    Variances do not depend on utilities, and the kernel is fixed. So the pairs are a function of
    shape, semivalues and seed, and are known before the first fit. The first one is the pair of all
    rows and all columns.
    """

    shape: tuple[int, int]
    seed: int
    semivalues: tuple[Semivalue, Semivalue]
    # The pairs so far, which others follow.
    _rows: Mask = field(init=False, repr=False)
    _columns: Mask = field(init=False, repr=False)
    # Of these pairs: covariances with the values, in units in which values are independent; and the
    # Cholesky factors of their covariances, and of those if the values were known.
    _links: Floats | None = field(init=False, repr=False)
    _factors: list[Floats] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._go_on(*(np.ones((1, n_players), dtype=bool) for n_players in self.shape))

    def __getstate__(self) -> dict[str, Any]:
        # How far it has come is no setting of a run.
        return {"shape": self.shape, "seed": self.seed, "semivalues": self.semivalues}

    @property
    def utilities_per_task(self) -> float:
        """One per pair; pairs with an empty side cost little and are not counted."""
        return float(_PAIRS_PER_TASK)

    def __call__(self, task: int) -> CoalitionPairs:
        """Return pairs, and those with an empty side that their interactions are measured from."""
        rows, columns = self.pairs((task + 1) * _PAIRS_PER_TASK)
        # If there are no more pairs, the first ones come again.
        some = np.arange(task * _PAIRS_PER_TASK, (task + 1) * _PAIRS_PER_TASK) % len(rows)
        rows, columns = rows[some], columns[some]
        no_rows, no_columns = np.zeros_like(rows), np.zeros_like(columns)
        return CoalitionPairs(
            np.concatenate([rows, rows, no_rows, no_rows[:1]]),
            np.concatenate([columns, no_columns, columns, no_columns[:1]]),
        )

    def pairs(self, n_pairs: int) -> tuple[Mask, Mask]:
        """Return the row and the column coalitions of the first pairs, or of all if they end."""
        while len(self._rows) < n_pairs:
            pool = self._draw_pool()
            if not len(pool[0]):
                break
            with limit_threads():
                chosen = self._choose(pool) if len(self._rows) < _MAX_CHOSEN else slice(_BATCH)
            self._rows, self._columns = (
                np.concatenate([seen, new[chosen]])
                for seen, new in zip((self._rows, self._columns), pool, strict=True)
            )
        return self._rows[:n_pairs], self._columns[:n_pairs]

    def pack(self) -> NDArray[np.uint8]:
        """Return the pairs that were chosen so far, as bits."""
        return np.packbits(np.hstack([self._rows, self._columns]), axis=1)

    def restore(self, packed: NDArray[np.uint8]) -> None:
        """Go on after pairs that were chosen earlier, perhaps on another machine."""
        n_rows, n_columns = self.shape
        members = np.unpackbits(packed, axis=1, count=n_rows + n_columns).astype(bool)
        self._go_on(members[:, :n_rows], members[:, n_rows:])

    def _go_on(self, rows: Mask, columns: Mask) -> None:
        self._rows, self._columns = rows, columns
        # They take long where blocks are many, and a run may need no pairs.
        self._links = None

    @cached_property
    def _whiten(self) -> Floats:
        prior = prior_covariance(_KERNEL, self._sides((self._rows, self._columns)))
        factor = np.linalg.cholesky(prior + _JITTER * np.diag(np.diag(prior)))
        return np.asarray(np.linalg.inv(factor))

    def _sides(self, pairs: Sequence[Mask]) -> tuple[Side, Side]:
        return Side(pairs[0], self.semivalues[0]), Side(pairs[1], self.semivalues[1])

    def _draw_pool(self) -> tuple[Mask, Mask]:
        """Draw pairs that are new, with sizes before and after a player joins, half each."""
        rng = generator(self.seed, len(self._rows))
        rows, columns = (
            draw_coalitions(rng, sizes_around(semivalue, n_players), 2 * _POOL)
            for semivalue, n_players in zip(self.semivalues, self.shape, strict=True)
        )
        new = self._find_new(rows, columns)
        if len(new) < _BATCH and n_utilities(self.shape) <= _MAX_LISTED:
            every = list_pairs(np.arange(1 << sum(self.shape)), self.shape)
            rows, columns = every.rows, every.columns
            new = rng.permutation(self._find_new(rows, columns))
        return rows[new[:_POOL]], columns[new[:_POOL]]

    def _find_new(self, rows: Mask, columns: Mask) -> Any:
        """Return the positions of different pairs without empty sides that are not chosen yet."""
        seen = np.hstack([self._rows, self._columns])
        drawn = np.hstack([rows, columns])
        _, first = np.unique(np.concatenate([seen, drawn]), axis=0, return_index=True)
        new = np.sort(first[first >= len(seen)]) - len(seen)
        return new[rows[new].any(axis=1) & columns[new].any(axis=1)]

    def _choose(self, pool: tuple[Mask, Mask]) -> list[int]:
        """Return the positions of the best pairs of a pool, and add them to the factors."""
        sides, seen = self._sides(pool), self._sides((self._rows, self._columns))
        if self._links is None:
            self._links = link_values(_KERNEL, seen) @ self._whiten.T
            kernel = pair_kernel(_KERNEL, seen) + _JITTER * np.eye(len(self._links))
            both = kernel, kernel - self._links @ self._links.T
            self._factors = [np.asarray(np.linalg.cholesky(each)) for each in both]
        links = link_values(_KERNEL, sides) @ self._whiten.T
        kernel = pair_kernel(_KERNEL, sides) + _JITTER * np.eye(len(links))
        with_seen = pair_kernel(_KERNEL, seen, sides)
        searches = [
            _Search(self._factors[0], with_seen, kernel),
            _Search(self._factors[1], with_seen - self._links @ links.T, kernel - links @ links.T),
        ]
        chosen: list[int] = []
        while len(chosen) < min(_BATCH, len(links)):
            gains = searches[0].variances / searches[1].variances
            gains[chosen] = 0.0
            chosen.append(int(np.argmax(gains >= (1.0 - _SAME) * gains.max())))
            for search in searches:
                search.learn(chosen[-1])
        self._links = np.concatenate([self._links, links[chosen]])
        self._factors = [search.extend_factor(chosen) for search in searches]
        return chosen


class _Search:
    """The covariance of a pool's interactions, given the seen pairs and those chosen from it."""

    def __init__(self, factor: Floats, with_seen: Floats, covariance: Floats) -> None:
        self._factor = factor
        self._known = solve_triangular(factor, with_seen, lower=True)
        self._covariance = covariance - self._known.T @ self._known
        self.variances = np.diag(self._covariance).copy()
        # A line for each chosen pair.
        self._learned = np.zeros((0, len(covariance)))

    def learn(self, position: int) -> None:
        """Condition on one interaction of the pool."""
        line = self._covariance[position] - self._learned[:, position] @ self._learned
        line /= np.sqrt(max(line[position], _JITTER))
        self._learned = np.vstack([self._learned, line])
        self.variances = np.maximum(self.variances - line**2, _JITTER)

    def extend_factor(self, chosen: list[int]) -> Floats:
        """Return the Cholesky factor of the seen and the chosen pairs."""
        corner = np.tril(self._learned[:, chosen].T)
        nothing = np.zeros((len(self._factor), len(chosen)))
        return np.block([[self._factor, nothing], [self._known[:, chosen].T, corner]])
