"""The tasks of OutOfBagValuer: bags to learn from, and what scores of the other rows add."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cellworth.blocks import Blocks, Mask, Positions
from cellworth.designs import generator
from cellworth.execution import TaskBook, leave_if_cancelled
from cellworth.games.adapting import for_columns
from cellworth.games.base import described_model, one_line
from cellworth.games.fitting import seeded
from cellworth.moments import Contribution, Moments, Tally
from cellworth.neighbours.columns import GAP, NumericColumn, read_column
from cellworth.problem import Problem
from cellworth.tables import Table

Floats = NDArray[np.float64]

_TREES_PER_TASK = 10


@dataclass(frozen=True, eq=False)
class Lessons:
    """What models learn from, and how well they tell the labels of other rows.

    Parameters
    ----------
    problem : Problem
    model : classifier or regressor
    table : Table
        Cells in a form that the model takes.
    """

    problem: Problem
    model: Any
    table: Table

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
            scores[rows] = self.judged(model, rows, columns)
            return scores, Tally(utilities=1, new=1)
        # Any error of the user's model must end in the ledger, not end the run.
        except Exception as error:
            scores[rows] = self._constant_scores(bag.rows, rows)
            return scores, Tally(1, 1, (one_line(error),), new=1)

    def judged(self, model: Any, rows: Positions, columns: Positions) -> Floats:
        """How well a trained model tells the labels of these rows."""
        return self._compared(model.predict(self.table.take(rows, columns)), rows)

    def _compared(self, predictions: Any, rows: Positions) -> Floats:
        target = self.problem.target[rows]
        if self.problem.classes is None:
            errors: Floats = np.asarray(predictions, dtype=np.float64) - target
            if not np.isfinite(errors).all():
                raise ValueError("a prediction is NaN or infinite")
            return -(errors**2)
        right: Floats = (np.asarray(predictions) == target).astype(np.float64)
        return right

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


def score_book(contrast: bool) -> TaskBook:
    """Keep the books of scores: tables are filled where tasks are folded, and do not travel."""
    if contrast:
        return TaskBook(Contrast, TreeScores, TreeScores.contrast)
    return TaskBook(Contribution, TreeScores, TreeScores.inside)


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
