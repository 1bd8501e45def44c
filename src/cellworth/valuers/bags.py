"""The tasks of OutOfBagValuer: bags to learn from, and what scores of the other rows add."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cellworth.blocks import Blocks
from cellworth.counts import GAP, Floats, Mask, Positions
from cellworth.designs import generator
from cellworth.games.adapting import for_columns
from cellworth.games.base import described_model, one_line
from cellworth.games.fitting import seeded
from cellworth.moments import Contribution, Moments, Tally
from cellworth.neighbours.columns import CategoricalColumn, NumericColumn, read_column
from cellworth.problem import Problem, target_groups
from cellworth.runtime import TaskPlanner, leave_if_cancelled
from cellworth.tables import Table

_TREES_PER_TASK = 10
# Distances closer than this, where columns have variance 1, differ by rounding alone.
_SAME_DISTANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Lessons:
    """What models learn from, and how well they tell the labels of other rows.

    Parameters
    ----------
    problem : Problem
    model : classifier or regressor
    table : Table
        Cells in a form that the model takes.
    distances : ClassDistances or None
        What adds, to every score, how near the row is to the mean of its class; None: nothing.
    """

    problem: Problem
    model: Any
    table: Table
    distances: ClassDistances | None = None

    @property
    def blocks(self) -> Blocks:
        """What is valued."""
        return self.problem.blocks

    def question(self) -> dict[str, Any]:
        """What decides the scores of a model."""
        return {
            "game": "out-of-bag scores",
            **described_model(self.model),
            **self.problem.question(),
        }

    def trained(self, rows: Positions, columns: Positions, seed: int) -> Any:
        """A model trained on these rows, which may repeat, with what is random in it fixed."""
        X, y = self.table.take(rows, columns), self.problem.target[rows]
        kept = np.zeros(len(self.table.names), dtype=bool)
        kept[columns] = True
        model = for_columns(seeded(self.model, seed), self.table.names, kept, lambda: X)
        if model is None:
            raise ValueError("the model names columns, and none of them is among the tree's")
        return model.fit(X, y)

    def scores(self, bag: Bag) -> tuple[Floats, Tally]:
        """Scores of the rows that are out of the bag, NaN for the others; a failed fit is told."""
        outside = np.ones(len(self.problem.target), dtype=bool)
        outside[bag.rows] = False
        rows, columns = np.flatnonzero(outside), self.blocks.columns.positions(bag.columns)
        scores = np.full(len(outside), np.nan)
        if len(rows) == 0:
            return scores, Tally()
        try:
            model = self.trained(bag.rows, columns, bag.seed)
            scores[rows], tally = self.judged(model, rows, columns), Tally(utilities=1, new=1)
        # Any error of the user's model must end in the ledger, not end the run.
        except Exception as error:
            scores[rows] = self._constant_scores(bag.rows, rows)
            tally = Tally(1, 1, (one_line(error),), new=1)
        if self.distances is not None:
            scores[rows] += self.distances.nearness(bag.rows, columns)[rows]
        return scores, tally

    def judged(self, model: Any, rows: Positions, columns: Positions) -> Floats:
        """How well a trained model tells the labels of these rows."""
        return self._compared(model.predict(self.table.take(rows, columns)), rows)

    def _compared(self, predictions: Any, rows: Positions) -> Floats:
        target = self.problem.target[rows]
        if self.problem.classes is None:
            errors: Floats = np.asarray(predictions, dtype=np.float64) - target
            if not np.isfinite(errors).all():
                raise ValueError("a prediction is NaN or infinite")
            # In units of the target's variance, as R2 is: scores mean the same in any currency.
            return 1.0 - (errors / self._target_spread) ** 2
        right: Floats = (np.asarray(predictions) == target).astype(np.float64)
        return right

    @cached_property
    def _target_spread(self) -> float:
        return float(np.std(self.problem.target)) or 1.0

    def _constant_scores(self, bag: Positions, rows: Positions) -> Floats:
        """Scores of predicting the bag's mean target, or its most frequent class."""
        target = self.problem.target
        if self.problem.classes is None:
            return self._compared(np.full(len(rows), target[bag].mean()), rows)
        classes, counts = np.unique(target[bag], return_counts=True)
        # Classes that are equally frequent have the same claim: the mean over predicting each.
        best = classes[counts == counts.max()]
        return np.isin(target[rows], best) / len(best)


@dataclass(frozen=True, eq=False)
class ClassDistances:
    """How far rows are from the mean of their class in a bag, over the columns of a tree.

    Parameters
    ----------
    groups : array of shape (n_rows,)
        Number of the class of each row; for numeric targets, of a group of like targets.
    columns : list of NumberCells or CategoryCells
        One for each column of the table.
    """

    groups: Positions
    columns: list[NumberCells | CategoryCells]

    @classmethod
    def of(cls, problem: Problem) -> ClassDistances:
        """Read a table as it was handed over."""
        if problem.classes is None:
            groups = target_groups(problem.target)
        else:
            groups = np.searchsorted(problem.classes, problem.target)
        places = range(problem.table.shape[1])
        return cls(groups, [_cells(read_column(j, [problem.table], None, "std")) for j in places])

    def nearness(self, bag: Positions, columns: Positions) -> Floats:
        """Return 1 for rows as near to their class as the nearest of the bag, 0 for its farthest.

        Parameters
        ----------
        bag : array of int
            Rows of the bag, which may repeat.
        columns : array of int
            Columns over which squared distances add up.

        Returns
        -------
        array of shape (n_rows,)
            Between 0 and 1. Where all rows of the bag are equally far, 1 up to there, 0 beyond.
        """
        weights = np.bincount(bag, minlength=len(self.groups)).astype(np.float64)
        squares = np.zeros(len(self.groups))
        for place in columns.tolist():
            squares += self.columns[place].squared_distances(self.groups, weights)
        distances = np.sqrt(squares)
        nearest, farthest = float(distances[bag].min()), float(distances[bag].max())
        if farthest - nearest <= _SAME_DISTANCE:
            return (distances <= farthest + _SAME_DISTANCE).astype(np.float64)
        # Cut off at the bag's own rows: one wild number must not outweigh all other trees.
        return np.clip((farthest - distances) / (farthest - nearest), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class NumberCells:
    """A column of numbers with mean 0 and variance 1, NaN where missing."""

    cells: Floats

    def squared_distances(self, groups: Positions, weights: Floats) -> Floats:
        """Squared distance of each cell from the weighted mean of its group; 1 where missing."""
        known = ~np.isnan(self.cells)
        weights = np.where(known, weights, 0.0)
        sums = np.bincount(groups, weights=weights * np.where(known, self.cells, 0.0))
        totals = np.bincount(groups, weights=weights)
        # A group without a cell in the bag is compared with the bag as a whole.
        overall = float(sums.sum()) / max(float(totals.sum()), 1.0)
        means = np.where(totals > 0, sums / np.maximum(totals, 1.0), overall)
        # Columns have variance 1, so 1 is what a row whose cell is unknown has on average.
        return np.where(known, (self.cells - means[groups]) ** 2, 1.0)


@dataclass(frozen=True, eq=False)
class CategoryCells:
    """A column of codes of categories, GAP where missing."""

    codes: NDArray[np.int32]

    def squared_distances(self, groups: Positions, weights: Floats) -> Floats:
        """Squared distance of each cell, one-hot, from the shares in its group; 1 where missing."""
        known = self.codes != GAP
        group, level = groups[known], self.codes[known]
        counts = np.bincount(level)
        variance = 1.0 - float(((counts / max(counts.sum(), 1)) ** 2).sum())
        if len(counts) < 2:
            return np.zeros(len(known))
        squares = np.ones(len(known))
        shares = _shares_by_group(group, level, weights[known], len(counts))
        # |e - p|^2 for the unit vector e of the category and the shares p. Divided by the variance
        # of the column, its mean over all rows would be 1 without groups, as for numbers.
        own = 1.0 - 2.0 * shares[group, level] + (shares**2).sum(axis=1)[group]
        squares[known] = own / variance
        return squares


def _cells(column: Any) -> NumberCells | CategoryCells:
    """Cells of a column that was read, numbers standardised."""
    if isinstance(column, CategoricalColumn):
        return CategoryCells(column.cells[0])
    cells: Floats = column.cells[0]
    known = cells[~np.isnan(cells)]
    if len(known) == 0 or known.min() == known.max():
        return NumberCells(np.zeros(len(cells)))
    # Centred first: a large offset would leave no digits for differences.
    return NumberCells((cells - known.mean()) * math.sqrt(column.weight))


def _shares_by_group(
    groups: Positions, levels: NDArray[np.int32], weights: Floats, n_levels: int
) -> Floats:
    """Weighted share of every level in every group; a group without weight has those of all."""
    n_groups = int(groups.max()) + 1
    sums = np.bincount(groups * n_levels + levels, weights, minlength=n_groups * n_levels)
    counts = sums.reshape(n_groups, n_levels)
    totals = counts.sum(axis=1, keepdims=True)
    overall = counts.sum(axis=0) / max(float(totals.sum()), 1.0)
    shares: Floats = np.where(totals > 0, counts / np.maximum(totals, 1.0), overall)
    return shares


@dataclass(frozen=True, eq=False)
class Bag:
    """What one tree learns from.

    Parameters
    ----------
    rows : array of shape (n_rows,)
        Rows drawn with replacement, in order.
    columns : array of shape (n_column_players,)
        True for those that the tree has.
    seed : int
        Of what is random in the tree.
    """

    rows: Positions
    columns: Mask
    seed: int


@dataclass(frozen=True)
class Bags:
    """Task t is ten bags, the last task maybe fewer; a bag is a function of (seed, number)."""

    n_rows: int
    n_columns: int
    n_used: int
    n_trees: int
    seed: int

    @property
    def utilities_per_task(self) -> float:
        """One for each tree."""
        return float(_TREES_PER_TASK)

    @property
    def n_tasks(self) -> int:
        """Tasks for all trees."""
        return -(-self.n_trees // _TREES_PER_TASK)

    def __call__(self, task: int) -> list[Bag]:
        """Draw the bags of a task."""
        first = task * _TREES_PER_TASK
        return [self.bag(tree) for tree in range(first, min(first + _TREES_PER_TASK, self.n_trees))]

    def bag(self, tree: int) -> Bag:
        """Draw the bag of one tree."""
        rng = generator(self.seed, tree)
        rows = np.sort(rng.integers(self.n_rows, size=self.n_rows))
        columns = np.zeros(self.n_columns, dtype=bool)
        columns[rng.permutation(self.n_columns)[: self.n_used]] = True
        return Bag(rows, columns, int(rng.integers(2**31 - 1)))


@dataclass(frozen=True, eq=False)
class Contrast:
    """Scores of trees with each column and of trees without it, and their difference."""

    inside: Moments
    outside: Moments
    tally: Tally = field(default_factory=Tally)

    def merge(self, other: Contrast) -> Contrast:
        """What both saw."""
        return Contrast(
            self.inside.merge(other.inside),
            self.outside.merge(other.outside),
            self.tally.merge(other.tally),
        )

    @property
    def moments(self) -> Moments:
        """Differences of means; the two come from different trees, so their variances add."""
        count = np.minimum(self.inside.count, self.outside.count)
        errors = (self.inside.standard_errors, self.outside.standard_errors)
        variance = np.nan_to_num(errors[0] ** 2 + errors[1] ** 2)
        difference = self.inside.mean - self.outside.mean
        return Moments.of_variances(count, np.where(count > 0, difference, 0.0), variance)


@dataclass(frozen=True, eq=False)
class TreeScores:
    """What workers answer: scores, tree by tree; crossed with columns they fill the whole table.

    Parameters
    ----------
    scores : array of shape (n_trees, n_row_players)
        NaN where no row of the player was out of the bag.
    used : array of shape (n_trees, n_column_players)
        Whether the tree had the column.
    tally : Tally
    """

    scores: Floats
    used: Mask
    tally: Tally

    def inside(self) -> Contribution:
        """Scores of trees that had each column."""
        # One thread, as inside tasks: the bits must not depend on the machine's number of cores.
        with threadpool_limits(1):
            return Contribution(crossed_moments(self.scores, self.used), self.tally)

    def contrast(self) -> Contrast:
        """Scores of trees that had each column, and of those that had not."""
        with threadpool_limits(1):
            inside, outside = (
                crossed_moments(self.scores, used) for used in (self.used, ~self.used)
            )
        return Contrast(inside, outside, self.tally)


def score_book(contrast: bool) -> TaskPlanner:
    """Keep the books of scores: tables are filled where tasks are folded, and do not travel."""
    if contrast:
        return TaskPlanner(Contrast, TreeScores, TreeScores.contrast)
    return TaskPlanner(Contribution, TreeScores, TreeScores.inside)


@dataclass(frozen=True, eq=False)
class OutOfBagScores:
    """What a task's trees tell: scores of the rows that they did not see."""

    lessons: Lessons

    def __call__(self, bags: list[Bag]) -> TreeScores:
        """Train on every bag and score the rows outside."""
        seen = []
        for bag in bags:
            leave_if_cancelled()
            seen.append(self.lessons.scores(bag))
        tally = Tally()
        for _, counted in seen:
            tally = tally.merge(counted)
        scores = np.array([self._by_player(rows) for rows, _ in seen])
        return TreeScores(scores, np.array([bag.columns for bag in bags]), tally)

    def _by_player(self, scores: Floats) -> Floats:
        """Mean score over the rows of each row player that are out of the bag."""
        axis, outside = self.lessons.blocks.rows, ~np.isnan(scores)
        players = axis.codes[outside]
        sums = np.bincount(players, weights=scores[outside], minlength=len(axis))
        counts = np.bincount(players, minlength=len(axis))
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def crossed_moments(scores: Floats, used: Mask) -> Moments:
    """Moments, row by column, of the scores from trees that used the column.

    Parameters
    ----------
    scores : array of shape (n_trees, n_rows)
        NaN where the row was not scored.
    used : array of shape (n_trees, n_columns)

    Returns
    -------
    Moments of shape (n_rows + 1, n_columns + 1)
        Sums of rows and columns count as not seen: no tree sees all of their blocks.
    """
    known = ~np.isnan(scores)
    n_known = known.sum(axis=0)
    level = np.where(known, scores, 0.0).sum(axis=0) / np.maximum(n_known, 1)
    # Deviations from the row's level: squares of large scores would leave no digits for spreads.
    gaps = np.where(known, scores - level, 0.0)
    trees = used.astype(np.float64)
    count = known.T.astype(np.float64) @ trees
    sums = gaps.T @ trees
    shift = sums / np.maximum(count, 1)
    spread = np.maximum((gaps**2).T @ trees - shift * sums, 0.0)
    mean = np.where(count > 0, level[:, None] + shift, 0.0)
    margin = ((0, 1), (0, 1))
    return Moments(
        np.pad(count.astype(np.int64), margin), np.pad(mean, margin), np.pad(spread, margin)
    )


def numbers_of(table: Table) -> Table:
    """All cells as numbers: text and categories by their place in the alphabet, gaps as NaN."""
    columns = []
    for place in range(table.shape[1]):
        column = read_column(place, [table], None, None)
        if isinstance(column, NumericColumn):
            columns.append(column.cells[0])
        else:
            columns.append(_alphabetical(column.cells[0], table.column(place)))
    return Table(np.column_stack(columns), table.names, table.row_ids)


def _alphabetical(codes: NDArray[np.int32], cells: NDArray[Any]) -> Floats:
    """Number categories by name, so that the order of rows does not matter."""
    numbers = np.full(len(codes), np.nan)
    known = codes != GAP
    names = np.array([str(cell) for cell in cells[known].tolist()], dtype=object)
    numbers[known] = np.unique(names, return_inverse=True)[1]
    return numbers
