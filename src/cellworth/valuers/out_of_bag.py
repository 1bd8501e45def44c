"""OutOfBagValuer: how well trees that did not see a row, but saw a column, tell the row's label."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from cellworth.blocks import Blocks
from cellworth.checks import Ways
from cellworth.counts import checked_count
from cellworth.games.base import Game, one_line
from cellworth.games.model import checked_model
from cellworth.moments import Tally
from cellworth.problem import Problem
from cellworth.runtime import AfterTasks, Runtime
from cellworth.valuation import Valuation
from cellworth.valuers.bags import (
    Bags,
    ClassDistances,
    Lessons,
    OutOfBagScores,
    numbers_of,
    score_book,
)
from cellworth.valuers.base import Valuer
from cellworth.valuers.methods import Corners, Method, value_blocks
from cellworth.valuers.settings import Settings, checked_seed

_TASKS_PER_ROUND = 10


class OutOfBagValuer(Valuer):
    """2D-OOB (Sun, Shen and Kwon 2024): a cell is worth what trees with its column make of its row.

    Every tree learns from a bootstrap sample of the rows, seen through a random part of the
    columns. The value of cell (i, j) is the mean, over the trees that have column j and do not have
    row i in their bag, of the sum of two scores of row i:

    - how well the tree predicts its label: 1 or 0 for a class; for a numeric target 1 minus the
      squared error in units of the target's variance, so that 1 is perfect and 0 is as good as
      predicting the mean;
    - with ``distance``, how near the row is to the mean of its class in the bag, over the columns
      of the tree: 1 for the nearest row of the bag, 0 for the farthest and beyond.

    It takes as many fits as there are trees, however large the table is, and no validation set.
    Only the order of values tells a good cell from a bad one, and with ``contrast`` also their
    sign.

    No game is played, and most promises of two-dimensional values are broken. Kept: linear in the
    score; symmetric, within standard errors. Broken: dummy (a constant column is worth as much as
    the scores of trees that have others besides), and values add up to nothing in particular, as
    do rows and columns. With ``distance`` a cell counts also where no tree uses it: a row that is
    unlike its class has a low value even if every tree predicts it well. See
    ``docs/explanation/baselines.md``.

    A block of several rows gets the mean over its rows that are out of a tree's bag, and columns of
    a group are drawn together: the value stays a mean score, whatever the size of the block. Sums
    of rows and columns come without standard errors.

    Ctrl-C ends a run early: the finished trees are kept, with a warning.

    Parameters
    ----------
    model : classifier or regressor, default=None
        None: a fully grown scikit-learn tree. Numbers with a fraction, or more than 50 different
        numbers, are a numeric target, all else are classes; a model settles it. The tree gets text
        and categories as their numbers in alphabetical order, dates as time since the first, and
        gaps as NaN. A model of your own gets the table as it is.
    n_trees : int, default=1000
        How many trees (or models) to train.
    column_share : float, default=0.5
        Which part of the columns each tree has, rounded to whole columns, at least one.
    max_features : int, float, str or None, default="sqrt"
        How many of its columns a tree looks at for each split; see scikit-learn's trees. A
        ``model`` of your own has its own parameters.
    distance : bool, default=True
        Whether nearness to the mean of the class counts. Numbers are standardised first; a
        category is as far as its one-hot vector is from the shares of categories in the class,
        scaled to the same mean; a missing cell has the mean distance of its column. A numeric
        target stands in for classes as five groups of rows of about equal size. False: the scores
        of trees alone.
    contrast : bool, default=False
        Whether to take off the mean over the trees that do not have column j: what the column
        changes about the row, not how easy the row is.
    random_state : int or None, default=None
        Seed of bags, columns and trees; None draws one, which the provenance records.
    n_jobs : int, default=None
        Number of workers of the default executor, -1 for all cores; None as in :class:`Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed: executor, checkpoint, partition, cache, progress.

    Attributes
    ----------
    valuation_ : Valuation
        Its counts tell how many trees stand behind each value; NaN where there were none.
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        Sums of the blocks.

    References
    ----------
    Sun, Shen and Kwon (2024), 2D-OOB: Attributing Data Contribution Through Joint Valuation
    Framework, NeurIPS.

    Kwon and Zou (2023), Data-OOB: Out-of-bag Estimate as a Simple and Efficient Data Value, ICML.

    Examples
    --------
    >>> X = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0], [9.0, 5.0], [4.0, 4.0]]
    >>> valuer = OutOfBagValuer(n_trees=200, random_state=0).fit(X, [0, 0, 0, 1, 1, 1])
    >>> valuer.valuation_.columns().highest(1)
    rank  column  value  standard error
       1      x0  6.592             nan
    """

    def __init__(
        self,
        model: Any = None,
        *,
        n_trees: int = 1000,
        column_share: float = 0.5,
        max_features: int | float | str | None = "sqrt",
        distance: bool = True,
        contrast: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """Keep the parameters; they are checked by ``fit``."""
        self.model = model
        self.n_trees = n_trees
        self.column_share = column_share
        self.max_features = max_features
        self.distance = distance
        self.contrast = contrast
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime

    def _game(self, **given: Any) -> Lessons:
        wants_classes = None if self.model is None else checked_model(self.model)
        problem = Problem.of(**given, classification=wants_classes, with_validation=False)
        _refuse_single_row(problem)
        distances = self._distances(problem) if _checked(self.distance, "distance") else None
        if self.model is not None:
            return Lessons(problem, self.model, problem.table, distances)
        kind = DecisionTreeRegressor if problem.classes is None else DecisionTreeClassifier
        tree = kind(max_features=self.max_features)
        return Lessons(problem, tree, numbers_of(problem.table), distances)

    def _ways(self) -> Ways:
        guessed = self.model is None
        return Ways(
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

    def _value(self, game: Any, blocks: Blocks) -> Valuation | None:
        seed = checked_seed(self.random_state, self.runtime)
        contrast = _checked(self.contrast, "contrast")
        bags = Bags(
            n_rows=len(game.problem.target),
            n_columns=blocks.shape[1],
            n_used=_n_used(self.column_share, blocks.shape[1], contrast),
            n_trees=checked_count(self.n_trees, "n_trees"),
            seed=seed,
        )
        method = Method(
            name="out-of-bag trees",
            design=bags,
            answer=OutOfBagScores(game),
            planner=score_book(contrast),
            stop=AfterTasks(bags.n_tasks),
            seed=seed,
            tasks_per_round=_TASKS_PER_ROUND,
        )
        valuation = value_blocks(game, blocks, method, settings=self._asked(), ends=_trial(game))
        return None if valuation is None else replace(valuation, empty="none")

    def _question(self, game: Any) -> dict[str, Any]:
        return self._asked().question(game)

    def _asked(self) -> _Asked:
        return _Asked(
            **vars(self._settings()),
            column_share=self.column_share,
            distance=_checked(self.distance, "distance"),
            contrast=_checked(self.contrast, "contrast"),
        )


@dataclass(frozen=True)
class _Asked(Settings):
    """Settings of a valuer that weighs no coalitions."""

    column_share: float
    distance: bool
    contrast: bool

    def question(self, game: Game) -> dict[str, Any]:
        """All that decides what the values tend to with the number of trees."""
        asked = super().question(game)
        del asked["row_semivalue"], asked["column_semivalue"]
        return asked | {
            "column_share": float(self.column_share),
            "distance": self.distance,
            "contrast": self.contrast,
        }


def _trial(lessons: Lessons) -> Corners:
    """Train once on everything: a model that fails there ends the run before it begins."""
    rows, columns = (np.arange(n) for n in lessons.table.shape)
    began = time.perf_counter()
    try:
        with threadpool_limits(1):
            lessons.judged(lessons.trained(rows, columns, 0), rows, columns)
    except Exception as error:
        raise ValueError(
            f"the model could not be trained and judged on the whole table ({one_line(error)}); "
            "mend the data, or put the steps that it needs into a Pipeline."
        ) from error
    unknown = (math.nan,) * 4
    return Corners(lessons.problem.blocks.shape, unknown, Tally(), time.perf_counter() - began)


def _refuse_single_row(problem: Problem) -> None:
    if len(problem.target) < 2:
        raise ValueError(
            "X has n_samples=1 row, which is in every bag and never judged; give at least 2 rows."
        )


def _checked(choice: Any, called: str) -> bool:
    if not isinstance(choice, bool | np.bool_):
        raise TypeError(f"{called} is {choice!r}; give True or False.")
    return bool(choice)


def _n_used(share: Any, n_columns: int, contrast: bool) -> int:
    """How many columns each tree has."""
    if isinstance(share, bool) or not isinstance(share, int | float | np.number):
        raise TypeError(f"column_share is {share!r}; give a number above 0 and up to 1.")
    if not 0 < share <= 1:
        raise ValueError(
            f"column_share is {share}; give the part of the columns that a tree has, above 0 and "
            "up to 1."
        )
    n_used = max(round(float(share) * n_columns), 1)
    if contrast and n_used == n_columns:
        raise ValueError(
            f"contrast compares trees with and without a column, but column_share={share} of "
            f"{n_columns} columns is all of them; give more columns or a smaller share."
        )
    return n_used
