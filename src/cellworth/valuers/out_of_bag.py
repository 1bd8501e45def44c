"""OutOfBagValuer: values of cells from trees on bootstrap samples (2D-OOB)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cellworth.data.arguments import (
    MISSING,
    Codes,
    Floats,
    Mask,
    Model,
    Positions,
    RandomState,
    check_count,
)
from cellworth.data.blocks import Blocks, Groups
from cellworth.data.column import Column, find_common_kind, read_differences
from cellworth.data.problem import Problem, target_groups
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.findings.fit_checks import DataAdvice
from cellworth.games.fitting import for_columns, set_seeds
from cellworth.games.game import describe_model, one_line
from cellworth.games.model import check_model
from cellworth.knn.distances import ScaledColumn, read_column
from cellworth.runtime.engine import TaskPlanner, answer_task
from cellworth.runtime.run_settings import Runtime
from cellworth.runtime.stopping import MaxTasks
from cellworth.runtime.workers import leave_if_cancelled
from cellworth.sampling.moments import Contribution, Moments, Tally, limit_threads
from cellworth.sampling.samplers import generator
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.run import Corners, Method, value_blocks
from cellworth.valuers.settings import check_flag, draw_seed
from cellworth.valuers.valuer import Valuer

_TASKS_PER_ROUND = 10
_TREES_PER_TASK = 10
# Distances closer than this, where columns have variance 1, differ by rounding alone.
_SAME_DISTANCE = 1e-9


@dataclass(frozen=True, eq=False)
class ClassDistances:
    """Distances of rows from the mean of their class in a bag, over the columns of a tree."""

    # Code of the class of each row; for numeric targets, of a group of similar targets.
    groups: Positions
    # Numbers with mean 0 and variance 1, NaN where missing; or codes, -1 where missing.
    columns: list[Floats | Codes]

    @classmethod
    def of(cls, problem: Problem) -> ClassDistances:
        """Read the columns of a table."""
        if problem.classes is None:
            groups = target_groups(problem.target)
        else:
            groups = np.searchsorted(problem.classes, problem.target)
        positions = range(problem.table.shape[1])
        return cls(
            groups, [_cells(read_column(j, [problem.table], None, "std")) for j in positions]
        )

    def nearness(self, bag: Positions, columns: Positions) -> Floats:
        """Return 1 for rows as near to their class as the nearest of the bag, 0 for its farthest.

        Rows of the bag may repeat. If all are equally far, rows up to there get 1, others 0.
        """
        weights = np.bincount(bag, minlength=len(self.groups)).astype(np.float64)
        squares = np.zeros(len(self.groups))
        for position in columns.tolist():
            squares += measure_cells(self.columns[position], self.groups, weights)
        distances = np.sqrt(squares)
        nearest, farthest = float(distances[bag].min()), float(distances[bag].max())
        if farthest - nearest <= _SAME_DISTANCE:
            return (distances <= farthest + _SAME_DISTANCE).astype(np.float64)
        # Clip at the bag's own rows: one outlier must not outweigh all other trees.
        return np.clip((farthest - distances) / (farthest - nearest), 0.0, 1.0)


def measure_cells(cells: NDArray[Any], groups: Positions, weights: Floats) -> Floats:
    """Return squared distances of cells from the weighted mean of their group; 1 where missing."""
    if cells.dtype.kind == "i":
        return _measure_codes(cells, groups, weights)
    known = ~np.isnan(cells)
    weights = np.where(known, weights, 0.0)
    sums = np.bincount(groups, weights=weights * np.where(known, cells, 0.0))
    totals = np.bincount(groups, weights=weights)
    # A group without a cell in the bag is compared with the whole bag.
    overall = float(sums.sum()) / max(float(totals.sum()), 1.0)
    means = np.where(totals > 0, sums / np.maximum(totals, 1.0), overall)
    # Columns have variance 1, so 1 is the mean for a missing cell.
    return np.where(known, (cells - means[groups]) ** 2, 1.0)


def _measure_codes(cells: Codes, groups: Positions, weights: Floats) -> Floats:
    """Return squared distances of cells, one-hot, from the shares in their group."""
    known = cells != MISSING
    group, level = groups[known], cells[known]
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


# Training data of one tree: sorted rows, drawn with replacement, columns, and its seed.
Bag = tuple[Positions, Mask, int]


@dataclass(frozen=True, eq=False)
class Lessons:
    """Trains models on bags, and scores their predictions of other rows."""

    problem: Problem
    model: Model
    # Cells in a form that the model takes.
    table: Table
    # If given, scores include the nearness of the row to the mean of its class.
    distances: ClassDistances | None = None
    # No row or column is ever absent.
    empty: ClassVar[str] = "none"

    @property
    def blocks(self) -> Blocks:
        """Blocks that are valued."""
        return self.problem.blocks

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the scores of a model."""
        spec = describe_model(self.model) | self.problem.problem_spec()
        return {"game": "out-of-bag scores", **spec}

    def train(self, rows: Positions, columns: Positions, seed: int) -> Any:
        """Return a model trained on these rows, which may repeat, with a fixed random state."""
        X, y = self.table.take(rows, columns), self.problem.target[rows]
        kept = np.zeros(len(self.table.names), dtype=bool)
        kept[columns] = True
        model = for_columns(set_seeds(self.model, seed), self.table.names, kept, lambda: X)
        if model is None:
            raise ValueError("the model names columns, and none of them is among the tree's")
        return model.fit(X, y)

    def score_bags(self, bags: list[Bag]) -> TreeScores:
        """Train on every bag and score the rows outside: the task function."""
        scores, tally = [], Tally()
        for bag in bags:
            leave_if_cancelled()
            found, counted = self.scores(bag)
            scores.append(self._average_by_player(found))
            tally = tally.merge(counted)
        return TreeScores(np.array(scores), np.array([columns for _, columns, _ in bags]), tally)

    def _average_by_player(self, scores: Floats) -> Floats:
        """Return the mean score over the rows of each row player that are out of the bag."""
        axis, outside = self.blocks.rows, ~np.isnan(scores)
        players = axis.codes[outside]
        sums = np.bincount(players, weights=scores[outside], minlength=len(axis))
        counts = np.bincount(players, minlength=len(axis))
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def scores(self, bag: Bag) -> tuple[Floats, Tally]:
        """Return scores of the rows out of the bag, NaN for others; count a failed fit."""
        drawn, players, seed = bag
        outside = np.ones(len(self.problem.target), dtype=bool)
        outside[drawn] = False
        rows, columns = np.flatnonzero(outside), self.blocks.columns.positions(players)
        scores = np.full(len(outside), np.nan)
        if len(rows) == 0:
            return scores, Tally()
        try:
            model = self.train(drawn, columns, seed)
            scores[rows], tally = self.score(model, rows, columns), Tally(utilities=1, new=1)
        # Errors of the user's model are counted and must not end the run.
        except Exception as error:
            scores[rows] = self._constant_scores(drawn, rows)
            tally = Tally(1, 1, (one_line(error),), new=1)
        if self.distances is not None:
            scores[rows] += self.distances.nearness(drawn, columns)[rows]
        return scores, tally

    def score(self, model: Any, rows: Positions, columns: Positions) -> Floats:
        """Return the score of a model for each of these rows."""
        return self._compare(model.predict(self.table.take(rows, columns)), rows)

    def _compare(self, predictions: Any, rows: Positions) -> Floats:
        target = self.problem.target[rows]
        if self.problem.classes is None:
            errors: Floats = np.asarray(predictions, dtype=np.float64) - target
            if not np.isfinite(errors).all():
                raise ValueError("a prediction is NaN or infinite")
            # In units of the target's variance, as R2 is: the unit of the target does not matter.
            scale = float(np.std(self.problem.target)) or 1.0
            return 1.0 - (errors / scale) ** 2
        right: Floats = (np.asarray(predictions) == target).astype(np.float64)
        return right

    def _constant_scores(self, bag: Positions, rows: Positions) -> Floats:
        """Return the scores of predicting the bag's mean target, or its most frequent class."""
        target = self.problem.target
        if self.problem.classes is None:
            return self._compare(np.full(len(rows), target[bag].mean()), rows)
        classes, counts = np.unique(target[bag], return_counts=True)
        # Average over classes that are equally frequent.
        best = classes[counts == counts.max()]
        return np.isin(target[rows], best) / len(best)


class OutOfBagValuer(Valuer):
    """2D-OOB (Sun, Shen and Kwon 2024): values of cells from out-of-bag scores of trees.

    Every tree is trained on a bootstrap sample of the rows and a random subset of the columns. The
    value of cell (i, j) is a mean over the trees that have column j and do not have row i in their
    bag. It is the mean of the sum of two scores of row i:

    - how well the tree predicts its label: 1 or 0 for a class; for a numeric target 1 minus the
      squared error in units of the target's variance, so that 1 is perfect and 0 is as good as
      predicting the mean;
    - with ``distance``, how near the row is to the mean of its class in the bag, over the columns
      of the tree: 1 for the nearest row of the bag, 0 for the farthest and beyond.

    The number of fits is the number of trees, however large the table is. No validation set is
    needed. Only the order of values distinguishes good cells from bad ones.

    There is no game, and most axioms of two-dimensional values do not hold. Values are linear in
    the score, and symmetric within standard errors. The dummy axiom does not hold: a constant
    column gets the scores of trees that also have other columns. Sums of values have no meaning.
    With ``distance`` a cell counts even if no tree uses it: a row that is unlike its class has a
    low value even if every tree predicts it well. See ``docs/evidence/baselines.md``.

    A block of several rows gets the mean over its rows that are out of a tree's bag, and columns of
    a group are drawn together, so that the value is a mean score for any size of the block. Sums of
    rows and columns have no standard errors.

    Ctrl-C ends a run early: the finished trees are kept, with a warning.

    Parameters
    ----------
    model : classifier or regressor, default=None
        None means a fully grown scikit-learn tree. The target is then numeric if it has fractions
        or more than 50 different numbers, and classes otherwise. The tree gets strings and
        categories as codes in alphabetical order, dates as time since the first, and missing
        values as NaN. Your own model gets the table as it is.
    n_trees : int, default=1000
        Number of trees (or models) to train.
    column_share : float, default=0.5
        Share of the columns that each tree has, rounded to whole columns, at least one.
    max_features : int, float, str or None, default="sqrt"
        Number of columns that a tree considers for each split; see scikit-learn's trees. Your own
        ``model`` has its own parameters.
    distance : bool, default=True
        Whether to add nearness to the mean of the class. Numbers are standardized first. The
        distance of a category is that of its one-hot vector from the shares of categories in the
        class, scaled to the same mean. A missing cell has the mean distance of its column. A
        numeric target is divided into five groups of about equal size, used as classes.
    random_state : int, Generator, RandomState or None, default=None
        Seed of bags, columns and trees; None draws one, which the provenance records.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed: executor, checkpoint, progress.

    Attributes
    ----------
    valuation_ : Valuation
        Its counts are the numbers of trees of each value; values are NaN without trees.
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        Sums of the blocks.

    See Also
    --------
    KNNValuer, ModelValuer

    References
    ----------
    Sun, Shen and Kwon (2024), 2D-OOB: Attributing Data Contribution Through Joint Valuation
    Framework, NeurIPS.

    Kwon and Zou (2023), Data-OOB: Out-of-bag Estimate as a Simple and Efficient Data Value, ICML.

    Examples
    --------
    >>> from cellworth import OutOfBagValuer
    >>> X = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0], [9.0, 5.0], [4.0, 4.0]]
    >>> valuer = OutOfBagValuer(n_trees=200, random_state=0).fit(X, [0, 0, 0, 1, 1, 1])
    >>> valuer.valuation_.columns().highest(1)
    rank  column  value  sampling_se
       1      x0  6.592          nan
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        n_trees: int = 1000,
        column_share: float = 0.5,
        max_features: int | float | str | None = "sqrt",
        distance: bool = True,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.model = model
        self.n_trees = n_trees
        self.column_share = column_share
        self.max_features = max_features
        self.distance = distance
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime

    def fit(
        self,
        X: TableLike,
        y: VectorLike,
        *,
        row_groups: Groups = None,
        column_groups: Groups = None,
    ) -> Self:
        """Value the blocks of a training table.

        Parameters
        ----------
        X : pandas, polars or Arrow table, or array, of shape (n_rows, n_columns)
            Table to learn from; its blocks are valued. Names and row ids are kept.
        y : array-like of shape (n_rows,)
            Labels.
        row_groups : array-like or mapping, default=None
            One group per row or ``{group: [row ids]}``. None: every row for itself.
        column_groups : array-like or mapping, default=None
            One group per column or ``{group: [column names]}``. None: every column for itself.

        Returns
        -------
        self
        """
        self._forget()
        game = self._make_game(X, y, row_groups=row_groups, column_groups=column_groups)
        return self._keep(game, self._value(game, self._inspect_columns(game)))

    def _make_game(
        self,
        X: TableLike,
        y: VectorLike,
        *,
        row_groups: Groups = None,
        column_groups: Groups = None,
    ) -> Lessons:
        wants_classes = None if self.model is None else check_model(self.model)
        problem = Problem.from_data(
            X, y, classification=wants_classes, row_groups=row_groups,
            column_groups=column_groups, with_validation=False,
        )  # fmt: skip
        if len(problem.target) < 2:
            raise ValueError(
                "X has n_samples=1 row, which is in every bag and never scored; give at least 2 "
                "rows."
            )
        distances = self._distances(problem) if check_flag(self.distance, "distance") else None
        if self.model is not None:
            return Lessons(problem, self.model, problem.table, distances)
        kind = DecisionTreeRegressor if problem.classes is None else DecisionTreeClassifier
        tree = kind(max_features=self.max_features)
        return Lessons(problem, tree, numbers_of(problem.table), distances)

    def _advice(self, game: Any) -> DataAdvice:
        guessed = self.model is None
        return DataAdvice(
            to_classes="model=DecisionTreeClassifier()" if guessed else None,
            to_numbers="model=DecisionTreeRegressor()" if guessed else None,
        )

    def _distances(self, problem: Problem) -> ClassDistances:
        try:
            return ClassDistances.of(problem)
        except (TypeError, ValueError) as error:
            if self.model is None:
                raise
            raise type(error)(
                f"{str(error).removesuffix('.')}; or pass distance=False if your model takes it."
            ) from error

    def _value(self, game: Lessons, columns: ColumnTable) -> Valuation:
        blocks = game.blocks
        seed = draw_seed(self.random_state, self.runtime)
        bags = Bags(
            n_rows=len(game.problem.target),
            n_columns=blocks.shape[1],
            n_used=_n_used(self.column_share, blocks.shape[1]),
            n_trees=check_count(self.n_trees, "n_trees"),
            seed=seed,
        )
        method = Method(
            name="out-of-bag trees",
            sampler=bags,
            # The driver computes moments of whole tables, workers only scores.
            planned=(
                TaskPlanner(Contribution, TreeScores, TreeScores.contribution),
                partial(answer_task, bags, game.score_bags),
            ),
            stop=MaxTasks(bags.n_tasks),
            seed=seed,
            tasks_per_round=_TASKS_PER_ROUND,
        )
        return value_blocks(
            cast(Any, game), blocks, method, settings=self._settings(), ends=_trial(game),
            problem_spec=self._problem_spec(game), columns=columns,
        )  # fmt: skip

    def _problem_spec(self, game: Any) -> dict[str, Any]:
        spec = super()._problem_spec(game)
        # Trees have no semivalues.
        del spec["row_semivalue"], spec["column_semivalue"]
        return spec | {
            "column_share": float(self.column_share),
            "distance": check_flag(self.distance, "distance"),
        }


def _trial(lessons: Lessons) -> Corners:
    """Train once on everything; raise before the run begins if the model fails."""
    rows, columns = (np.arange(n) for n in lessons.table.shape)
    began = time.perf_counter()
    try:
        with limit_threads():
            lessons.score(lessons.train(rows, columns, 0), rows, columns)
    except Exception as error:
        raise ValueError(
            f"the model could not be trained and scored on the whole table ({one_line(error)}); "
            "fix the data, or put the steps that it needs into a Pipeline."
        ) from error
    unknown = (math.nan,) * 4
    return Corners(lessons.problem.blocks.shape, unknown, Tally(), time.perf_counter() - began)


def _n_used(share: Any, n_columns: int) -> int:
    """Return the number of columns of each tree."""
    expected = "column_share must be the share of columns of each tree, above 0 and at most 1, got"
    if isinstance(share, bool) or not isinstance(share, int | float | np.number):
        raise TypeError(f"{expected} {share!r}.")
    if not 0 < share <= 1:
        raise ValueError(f"{expected} {share}.")
    return max(round(float(share) * n_columns), 1)


def _cells(column: ScaledColumn) -> Floats | Codes:
    """Return the cells of a column, numbers standardized."""
    cells: Floats | Codes = column.cells[0]
    if column.kind == "categories":
        return cells
    known = cells[~np.isnan(cells)]
    if len(known) == 0 or known.min() == known.max():
        return np.zeros(len(cells))
    # Center first: a large offset would leave no digits for differences.
    return np.asarray((cells - known.mean()) * math.sqrt(column.weight))


def _shares_by_group(
    groups: Positions, levels: NDArray[np.int32], weights: Floats, n_levels: int
) -> Floats:
    """Return the weighted share of every level in every group, overall if a group is empty."""
    n_groups = int(groups.max()) + 1
    sums = np.bincount(groups * n_levels + levels, weights, minlength=n_groups * n_levels)
    counts = sums.reshape(n_groups, n_levels)
    totals = counts.sum(axis=1, keepdims=True)
    overall = counts.sum(axis=0) / max(float(totals.sum()), 1.0)
    shares: Floats = np.where(totals > 0, counts / np.maximum(totals, 1.0), overall)
    return shares


@dataclass(frozen=True)
class Bags:
    """Task t is ten bags (the last task may have fewer); a bag depends on seed and number."""

    n_rows: int
    n_columns: int
    n_used: int
    n_trees: int
    seed: int

    @property
    def utilities_per_task(self) -> float:
        """Number of trees."""
        return float(_TREES_PER_TASK)

    @property
    def n_tasks(self) -> int:
        """Number of tasks for all trees."""
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
        return rows, columns, int(rng.integers(2**31 - 1))


@dataclass(frozen=True, eq=False)
class TreeScores:
    """Answer of a worker: scores by tree; with columns they give moments of the whole table."""

    # Shape (n_trees, n_row_players); NaN if no row of the player was out of the bag.
    scores: Floats
    # Shape (n_trees, n_column_players).
    used: Mask
    tally: Tally

    def contribution(self) -> Contribution:
        """Return the moments of scores of trees that used each column."""
        # One thread, as inside tasks: the bits must not depend on the machine's number of cores.
        with limit_threads():
            return Contribution(cross_moments(self.scores, self.used), self.tally)


def cross_moments(scores: Floats, used: Mask) -> Moments:
    """Return moments, row by column, of the scores from trees that used the column.

    ``scores``, of shape (n_trees, n_rows), are NaN where the row was not scored. Sums of rows and
    columns have no observations: no tree uses all of their blocks.
    """
    known = ~np.isnan(scores)
    n_known = known.sum(axis=0)
    level = np.where(known, scores, 0.0).sum(axis=0) / np.maximum(n_known, 1)
    # Deviations from the row's level: squares of large scores would leave no digits for variances.
    deviations = np.where(known, scores - level, 0.0)
    trees = used.astype(np.float64)
    count = known.T.astype(np.float64) @ trees
    sums = deviations.T @ trees
    shift = sums / np.maximum(count, 1)
    sum_sq = np.maximum((deviations**2).T @ trees - shift * sums, 0.0)
    mean = np.where(count > 0, level[:, None] + shift, 0.0)
    margin = ((0, 1), (0, 1))
    return Moments(
        np.pad(count.astype(np.int64), margin), np.pad(mean, margin), np.pad(sum_sq, margin)
    )


def numbers_of(table: Table) -> Table:
    """Return all cells as numbers: categories in alphabetical order, missing values as NaN."""
    columns = [_read_numbers(table.read(position)) for position in range(table.shape[1])]
    return Table(np.column_stack(columns), table.names, table.row_ids)


def _read_numbers(column: Column) -> Floats:
    if find_common_kind([column]) != "category":
        (numbers,), _ = read_differences([column])
        return numbers
    codes, _ = column.levels
    return np.where(codes == MISSING, np.nan, codes)
