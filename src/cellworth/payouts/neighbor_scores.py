"""Scores of nearest neighbors for coalitions of owners: lists of K rows, which merge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from cellworth.data.arguments import MISSING, Floats, Integers, Mask
from cellworth.games.scoring import MAX_GROUPS
from cellworth.knn.distances import Distances
from cellworth.knn.exact import find_targets
from cellworth.knn.knn_game import KNNGame, stratify_queries
from cellworth.sampling.moments import DetailedUtility, pool_deviations, widening

# Distances that are held at once; more are computed again for each coalition.
_MAX_DISTANCES = 2**26
# The distance of places without a row.
_NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Nearest:
    """The K nearest rows of each validation row, nearest first, in a form that can be merged.

    All rows that tie at the K-th distance count in the first of their places, and none in others.
    """

    distances: Integers  # Shape (n_queries, K)
    counts: Integers  # Number of rows in each place
    sums: Floats  # Sums over these rows of each figure; shape (n_figures, n_queries, K)
    totals: Floats  # Sums over all rows of each figure; shape (n_figures, n_queries)
    n_rows: int

    @classmethod
    def of_rows(cls, distances: Integers, figures: Floats, n_neighbors: int) -> Nearest:
        """Keep the K nearest of some rows."""
        ones = np.broadcast_to(np.int64(1), distances.shape)
        rows = cls(distances, ones, figures, figures.sum(axis=2), distances.shape[1])
        return rows.keep(n_neighbors)

    @classmethod
    def merge(cls, lists: Sequence[Nearest], n_neighbors: int) -> Nearest:
        """Keep the K nearest of several lists."""
        joined = _concatenate(lists, distances=1, counts=1, sums=2)
        totals = np.sum([one.totals for one in lists], axis=0)
        n_rows = sum(one.n_rows for one in lists)
        return cls(**joined, totals=totals, n_rows=n_rows).keep(n_neighbors)

    @classmethod
    def join(cls, lists: Sequence[Nearest]) -> Nearest:
        """Join lists of the same rows for several validation rows."""
        joined = _concatenate(lists, distances=0, counts=0, sums=1, totals=1)
        return cls(**joined, n_rows=lists[0].n_rows)

    def keep(self, n_neighbors: int) -> Nearest:
        """Keep the K nearest places, whose number may differ from K."""
        distances, counts, sums = self.distances, self.counts, self.sums
        n_lacking = n_neighbors - distances.shape[1]
        if n_lacking > 0:
            distances = np.pad(distances, ((0, 0), (0, n_lacking)), constant_values=_NO_ROW)
            counts = np.pad(counts, ((0, 0), (0, n_lacking)))
            sums = np.pad(sums, ((0, 0), (0, 0), (0, n_lacking)))
        order = np.argpartition(distances, n_neighbors - 1, axis=1)[:, :n_neighbors]
        order = np.take_along_axis(
            order, np.argsort(np.take_along_axis(distances, order, axis=1), axis=1), axis=1
        )
        kept = np.take_along_axis(distances, order, axis=1)
        farthest = kept[:, -1:]
        nearer, tied = kept < farthest, distances == farthest
        first, every = nearer.sum(axis=1), np.arange(len(kept))
        kept_counts = np.take_along_axis(counts, order, axis=1) * nearer
        kept_counts[every, first] = (counts * tied).sum(axis=1)
        kept_sums = np.take_along_axis(sums, order[np.newaxis], axis=2) * nearer
        kept_sums[:, every, first] = np.einsum("fqr,qr->fq", sums, tied)
        return replace(self, distances=kept, counts=kept_counts, sums=kept_sums)

    def at_one_distance(self) -> Nearest:
        """Return the same rows as if all of them tied, as they do without any cell."""
        zeros, sums = np.zeros((self.totals.shape[1], 1), dtype=np.int64), self.totals[..., None]
        return replace(self, distances=zeros, counts=zeros + self.n_rows, sums=sums)

    def score(self, game: KNNGame, fold: int) -> Floats:
        """Return the score of each validation row of a fold, averaged over orders of ties."""
        farthest = self.distances[:, -1:]
        nearer, tied = self.distances < farthest, self.distances == farthest
        n_tied = np.maximum((self.counts * tied).sum(axis=1), 1)
        n_left = min(game.n_neighbors, self.n_rows) - (self.counts * nearer).sum(axis=1)
        totals = (self.sums * nearer).sum(axis=2)
        means = (self.sums * tied).sum(axis=2) / n_tied
        if game.has_votes:
            return np.asarray((totals[0] + means[0] * n_left) / game.count_votes(self.n_rows))
        asked = find_targets(game.query_labels[fold], game.class_targets(fold))
        errors = np.zeros(len(farthest))
        for target, position in zip(asked, range(0, len(means), 2), strict=True):
            mean, square = means[position : position + 2]
            # Of a sum of n_left tied targets, drawn without replacement.
            variance = np.maximum(square - mean**2, 0.0) * n_left * (n_tied - n_left)
            variance /= np.maximum(n_tied - 1, 1)
            total = totals[position] + n_left * mean
            errors += (total / game.n_neighbors - target) ** 2 + variance / game.n_neighbors**2
        return -errors


def _concatenate(lists: Sequence[Nearest], **axes: int) -> dict[str, Any]:
    """Return fields of several lists, each joined along an axis."""
    return {
        name: np.concatenate([getattr(one, name) for one in lists], axis=axis)
        for name, axis in axes.items()
    }


def _find_figures(game: KNNGame, fold: int, rows: Mask, queries: slice) -> Floats:
    """Return what is summed over the nearest rows, shape (n_figures, n_queries, n_rows).

    These are the gains of votes; or the targets and their squares, which all queries share.
    """
    may_train = game.problem.folds[fold].may_train
    if game.has_votes:
        train = np.flatnonzero(may_train)[rows]
        gains = game.find_gains(train, game.query_labels[fold][queries])
        return gains.astype(np.float64)[np.newaxis]
    targets = find_targets(game.labels_in(fold)[rows], game.class_targets(fold))
    lines = np.stack([targets, targets**2], axis=1).reshape(-1, 1, targets.shape[1])
    return np.broadcast_to(lines, (len(lines), queries.stop - queries.start, lines.shape[2]))


class NeighborScorer:
    """Utility of nearest neighbors among the cells that are there."""

    def __init__(self, game: KNNGame) -> None:
        if game.limit is not None or game.agreement.weights is not None:
            raise ValueError("owners as players need equal votes; leave radius and weights out.")
        self._game = game
        self._weights = np.concatenate(game.query_weights)
        strata = np.concatenate(stratify_queries(game.query_groups, game.scoring))
        self._strata = [np.flatnonzero(strata == one) for one in np.unique(strata)]
        self._known: dict[int, Integers] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Each worker measures distances itself.
        return self.__dict__ | {"_known": {}}

    def __call__(self, cells: Mask, rows: Mask) -> float:
        """Return the utility of these cells of these rows."""
        folds = range(len(self._game.problem.folds))
        return self.combine([self._score(fold, cells, rows) for fold in folds])

    @cached_property
    def nothing(self) -> float:
        """The utility 0, with deviations as others have them."""
        return self.combine([np.zeros(len(self._weights))])

    def combine(self, scores: list[Floats]) -> float:
        """Return the weighted mean of the scores of validation rows, with its deviations."""
        every, deviations = np.concatenate(scores), np.empty(len(self._weights))
        for here, scale in zip(self._strata, self._scales, strict=True):
            weights = self._weights[here]
            mean = weights @ every[here] / weights.sum()
            deviations[here] = (every[here] - mean) * weights * scale
        shuffled = deviations[self._order]
        return DetailedUtility(float(self._weights @ every), pool_deviations(shuffled, MAX_GROUPS))

    @cached_property
    def _scales(self) -> list[float]:
        """What makes deviations of few rows as large as they should be, by stratum."""
        sizes = map(len, self._strata)
        return [float(widening(n)) * math.sqrt(n / max(n - 1, 1)) for n in sizes]

    @cached_property
    def _order(self) -> Integers:
        # Neighbors in the table may be alike, and would be pooled.
        return np.random.default_rng(0).permutation(len(self._weights))

    def score_nothing(self, fold: int) -> Floats:
        """Return the scores without any row: no vote, or the mean of the targets."""
        game, asked = self._game, self._game.query_labels[fold]
        if game.has_votes or game.empty == "zero":
            return np.zeros(len(asked))
        return np.asarray(-(find_targets(asked, game.class_targets(fold)) ** 2).sum(axis=0))

    def _score(self, fold: int, cells: Mask, rows: Mask) -> Floats:
        game, may_train = self._game, self._game.problem.folds[fold].may_train
        here, no_cells = rows[may_train], not cells[rows & may_train].any()
        if not here.any() or (game.empty == "zero" and no_cells):
            return self.score_nothing(fold)
        lists = []
        for queries, relative in self.iter_relative(fold):
            figures = _find_figures(game, fold, here, queries)
            distances = _add_columns(relative, cells[may_train])[:, here]
            lists.append(Nearest.of_rows(distances, figures, game.n_neighbors))
        return Nearest.join(lists).score(game, fold)

    def iter_relative(self, fold: int) -> Iterator[tuple[slice, Integers]]:
        """Yield some queries and their distances minus those of missing values.

        Their shape is (n_columns, n_queries, n_rows).
        """
        n_rows, n_columns = self._game.problem.table.shape
        n_queries, at_once = len(self._game.query_labels[fold]), _MAX_DISTANCES // n_rows
        at_once = max(at_once // n_columns, 1)
        for start in range(0, n_queries, at_once):
            queries = slice(start, min(start + at_once, n_queries))
            known = self._known.get(fold)
            relative = self._measure(fold, queries) if known is None else known
            if at_once >= n_queries:
                self._known[fold] = relative
            yield queries, relative

    def _measure(self, fold: int, queries: slice) -> Integers:
        may_train = self._game.problem.folds[fold].may_train
        lines = [
            self._game.distances.measure(fold, query)[:, may_train]
            - self._blank.measure(fold, query)
            for query in range(queries.start, queries.stop)
        ]
        return np.ascontiguousarray(np.array(lines).swapaxes(0, 1))

    @cached_property
    def _blank(self) -> Distances:
        """Distances to a single row whose cells are all missing."""
        rows = self._game.distances.rows
        blank = rows._replace(
            numbers=np.full((len(rows.numbers), 1), np.nan),
            categories=np.full((len(rows.categories), 1), MISSING, dtype=rows.categories.dtype),
        )
        return replace(self._game.distances, rows=blank)


class PartyScorer(NeighborScorer):
    """Utility of parties that hold whole rows, from lists of their nearest rows.

    A coalition merges the lists of its members: K places per member and validation row, however
    many rows they hold. A coalition that contains the one before merges only those who joined, if
    figures are integers, whose sums do not depend on the order.
    """

    def __init__(self, game: KNNGame, claims: Mask, sets: Integers) -> None:
        super().__init__(game)
        # Few sets have more than one member.
        self._claims = sparse.csr_matrix(claims.astype(np.int32))
        # The nearest rows in each set of owners, by fold.
        self._lists: list[list[Nearest]] = [
            self._find_lists(fold, sets) for fold in range(len(game.problem.folds))
        ]
        self._adds = game.has_votes and game.gains is None
        self._latest: tuple[Mask, list[Nearest]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_latest": None}

    def score_members(self, members: Mask, *, with_cells: bool) -> float:
        """Return the utility of the rows of some owners, or of their labels alone."""
        there = np.asarray(self._claims @ np.append(members, True).astype(np.int32) > 0)
        if not there.any() or (self._game.empty == "zero" and not with_cells):
            return self.combine([self.score_nothing(fold) for fold in range(len(self._lists))])
        scores = []
        for fold, nearest in enumerate(self._merge(there)):
            found = nearest if with_cells else nearest.at_one_distance()
            nothing = found.n_rows == 0
            scores.append(self.score_nothing(fold) if nothing else found.score(self._game, fold))
        return self.combine(scores)

    def _find_lists(self, fold: int, sets: Integers) -> list[Nearest]:
        """Return the list of each set; validation rows are measured some at a time."""
        game, may_train = self._game, self._game.problem.folds[fold].may_train
        sets, n_queries = sets[may_train], len(game.query_labels[fold])
        order, every = np.argsort(sets, kind="stable"), np.ones(len(sets), dtype=bool)
        ends = np.cumsum(np.bincount(sets, minlength=self._claims.shape[0]))[:-1]
        at_once, parts = max(_MAX_DISTANCES // 8 // len(sets), 1), []
        for start in range(0, n_queries, at_once):
            queries = slice(start, min(start + at_once, n_queries))
            distances = np.array(
                [
                    game.distances.measure(fold, query)[:, may_train].sum(axis=0)[order]
                    for query in range(queries.start, queries.stop)
                ]
            )
            figures = _find_figures(game, fold, every, queries)[:, :, order]
            rows = zip(
                np.split(distances, ends, axis=1), np.split(figures, ends, axis=2), strict=True
            )
            parts.append([Nearest.of_rows(*one, game.n_neighbors) for one in rows])
        return [Nearest.join(lists) for lists in zip(*parts, strict=True)]

    def _merge(self, there: Mask) -> list[Nearest]:
        """Return the nearest rows of some sets of owners."""
        before: list[list[Nearest]] = [[] for _ in self._lists]
        joined = there
        if self._latest is not None:
            if np.array_equal(self._latest[0], there):
                return self._latest[1]
            if self._adds and not (self._latest[0] & ~there).any():
                joined, before = there & ~self._latest[0], [[one] for one in self._latest[1]]
        chosen = np.flatnonzero(joined).tolist()
        merged = [
            Nearest.merge([*one, *(lists[i] for i in chosen)], self._game.n_neighbors)
            for one, lists in zip(before, self._lists, strict=True)
        ]
        self._latest = there, merged
        return merged


def _add_columns(relative: Integers, present: Mask) -> Integers:
    """Return the distances over the cells that are there, shape (n_queries, n_rows)."""
    distances = np.zeros(relative.shape[1:], dtype=np.int64)
    for column, cells in zip(relative, present.T, strict=True):
        if cells.any():
            distances += column * cells
    return distances
