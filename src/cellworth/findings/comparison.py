"""compare_models: test on held-out rows whether a change of the data helped the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cellworth.data.arguments import (
    Floats,
    Mask,
    Model,
    RandomState,
    Scoring,
    check_count,
    check_random_state,
)
from cellworth.data.problem import read_changed_labels
from cellworth.data.tables import Table, TableLike, VectorLike, frame
from cellworth.data.text import format_count
from cellworth.data.views import heading, html_table, paragraph, table_lines, view
from cellworth.findings.held_out import (
    HeldOutRows,
    check_held_out_rows,
    compute_half_width,
    estimate_training_variance,
    find_strata,
    make_held_out_game,
    split_in_halves,
)
from cellworth.games.game import one_line
from cellworth.games.model import ModelGame, check_model, check_scorer, scoring_name
from cellworth.games.scoring import Recorded
from cellworth.runtime.progress import ProgressReporter

Effect = Literal["helped", "hurt", "not distinguishable"]
# With fewer held-out rows of a class, the variance within the class is uncertain.
FEW_ROWS = 20


@dataclass(frozen=True)
class Comparison:
    """Scores of a model trained on a table before and after it was changed.

    Parameters
    ----------
    before, after : float
        Scores on the held-out rows, mean over models trained on random halves of the rows.
    interval : tuple of float
        95% interval of the difference. It accounts for the choice of held-out rows, of training
        rows and of the model's seeds.
    on_all_rows : tuple of float
        Scores before and after of models that were trained once, on all rows.
    scoring : str
    n_test_rows, n_rows : int
        Held-out rows and training rows.
    n_repeats : int
        How often the training rows were split into halves.
    n_changed : int
        Cells and labels that differ; a row that is left out counts once.
    fewest : int or None
        Held-out rows of the rarest class; None for numeric targets.
    backend : str or None
        Data-frame library for :meth:`to_frame`.

    See Also
    --------
    compare_models

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from cellworth.findings import compare_models
    >>> X, y = [[float(i)] for i in range(40)], [0] * 20 + [1] * 20
    >>> X_test, y_test = [[0.25 + i / 2] for i in range(80)], [0] * 40 + [1] * 40
    >>> slipped = [[1000.0], *X[1:]]
    >>> comparison = compare_models(
    ...     LogisticRegression(), slipped, y, X_repaired=X, X_test=X_test,
    ...     y_test=y_test, n_repeats=5, progress=False,
    ... )
    >>> print(comparison.verdict, comparison.n_changed, comparison.within_noise)
    helped 1 False
    """

    before: float
    after: float
    interval: tuple[float, float]
    on_all_rows: tuple[float, float]
    scoring: str
    n_test_rows: int
    n_rows: int
    n_repeats: int
    n_changed: int
    fewest: int | None = None
    backend: str | None = None

    @property
    def change(self) -> float:
        """Score after minus score before; above 0 is better."""
        return self.after - self.before

    @property
    def within_noise(self) -> bool:
        """Whether the interval of the difference contains 0."""
        return self.interval[0] <= 0.0 <= self.interval[1]

    @property
    def verdict(self) -> Effect:
        """Whether the change helped, hurt, or cannot be distinguished from no effect."""
        if self.within_noise:
            return "not distinguishable"
        return "helped" if self.change > 0 else "hurt"

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one row."""
        columns = {
            "before": [self.before],
            "after": [self.after],
            "change": [self.change],
            "low": [self.interval[0]],
            "high": [self.interval[1]],
            "within_noise": [self.within_noise],
            "verdict": [self.verdict],
            "before_on_all_rows": [self.on_all_rows[0]],
            "after_on_all_rows": [self.on_all_rows[1]],
        }
        return frame(columns, backend or self.backend)

    def __repr__(self) -> str:
        return "\n".join([*table_lines(self._columns()), self._meaning(), *self._basis()])

    def _repr_html_(self) -> str:
        """Show the scores in Jupyter."""
        notes = paragraph(" ".join(self._basis()))
        return view(heading(self._meaning()), html_table(self._columns()), notes)

    def _columns(self) -> dict[str, list[str]]:
        pairs = [(self.before, self.after), self.on_all_rows]
        return {
            f"{self.scoring}, {self.n_test_rows:,} held-out rows": [
                f"{2 * self.n_repeats} trainings on half the rows",
                "1 training on all rows",
            ],
            "before": [f"{before:.4f}" for before, _ in pairs],
            "after": [f"{after:.4f}" for _, after in pairs],
            "difference": [f"{after - before:+.4f}" for before, after in pairs],
            "95% interval": [f"{self.interval[0]:+.4f} to {self.interval[1]:+.4f}", ""],
        }

    def _meaning(self) -> str:
        if self.n_changed == 0:
            return "Nothing was changed: both tables are the same."
        if self.interval == (0.0, 0.0):
            return "All held-out rows score alike on both tables; more rows may show a difference."
        if self.within_noise:
            return "Verdict: not distinguishable from no effect."
        return f"Verdict: the change {self.verdict}."

    def _basis(self) -> Iterator[str]:
        if self.n_changed == 0:
            return
        splits = format_count(self.n_repeats, "random split")
        yield "The interval accounts for the choice of held-out rows, of training rows and of seeds"
        yield f"({splits} of {self.n_rows:,} training rows into halves)."
        if self.fewest is not None and self.fewest < FEW_ROWS:
            rows = format_count(self.fewest, "held-out row")
            yield f"One class has only {rows}: the interval is rough."


def compare_models(
    model: Model,
    X: TableLike,
    y: VectorLike,
    *,
    X_repaired: TableLike | None = None,
    y_repaired: VectorLike | None = None,
    X_test: TableLike,
    y_test: VectorLike,
    scoring: Scoring = None,
    n_repeats: int = 10,
    random_state: RandomState = 0,
    progress: bool = True,
) -> Comparison:
    """Train a model on a table before and after a change and score both on held-out rows.

    Parameters
    ----------
    model : classifier or regressor
        Cloned for every fit. There are 4 * n_repeats trainings on half of the rows, half of them
        before and half of them after the change, and two on all rows.
    X, y : table and labels before the change
    X_repaired : table, default=None
        The same rows and columns after it; None means X.
    y_repaired : array-like of shape (n_rows,), default=None
        The labels after it; None means y. A row without a label (None or NaN) is left out, so
        ``y.mask(doubtful)`` of a Series tells whether doubtful rows should be dropped.
    X_test, y_test : table and labels to score on
        Rows that were set aside before anything was valued or changed, none of X or X_repaired.
        There is no cross-validation, because it overrates a table that was changed with the help
        of its labels.
    scoring : str or callable, default=None
        A scikit-learn scoring name or scorer of predictions; None means accuracy or R squared.
    n_repeats : int, default=10
        How often the training rows are split into two random halves. More splits give narrower
        intervals for models whose predictions depend a lot on a few rows, such as trees.
    random_state : int, Generator, RandomState or None, default=0
        Seed of the splits.
    progress : bool, default=True
        Whether trainings that take longer than two seconds show a bar.

    Returns
    -------
    Comparison

    See Also
    --------
    cellworth.audit

    Notes
    -----
    The verdict is about models trained on tables like this one and scored on rows like the held-out
    ones, not only about these models and rows. Each split trains the model on both halves of the
    rows, before and after the change, each half with its own seeds. Halves have no row in common,
    so their differences in score vary like those of two independent tables. That variance, reduced
    by averaging over splits, is added to the variance over held-out rows. The interval is
    Student's, with Satterthwaite's degrees of freedom. See ``docs/evidence/removal.md`` for the
    rate of false verdicts and the power.

    Halves have the same share of every class and of changed rows. Fewer than ten changed rows (and
    less than a quarter of all) are in both halves, as is the only row of a class. The verdict is
    then about these changes; with more changed rows, it is about changes like these.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from cellworth.findings import compare_models
    >>> X, y = [[float(i)] for i in range(40)], [0] * 20 + [1] * 20
    >>> X_test = [[0.25 + i / 2] for i in range(80)]
    >>> compare_models(LogisticRegression(), [[1000.0], *X[1:]], y, X_repaired=X, X_test=X_test,
    ...                y_test=[0] * 40 + [1] * 40, progress=False)
       accuracy, 80 held-out rows  before   after  difference        95% interval
    20 trainings on half the rows  0.3631  0.9800     +0.6169  +0.2752 to +0.9585
           1 training on all rows  0.5000  0.9875     +0.4875
    Verdict: the change helped.
    The interval accounts for the choice of held-out rows, of training rows and of seeds
    (10 random splits of 40 training rows into halves).
    """
    n_repeats = check_count(n_repeats, "n_repeats")
    rng = np.random.default_rng(check_random_state(random_state))
    scorer = check_scorer(scoring, check_model(model))
    recorded: list[Recorded] = []

    def record(fitted: Any, X: TableLike, y: VectorLike) -> float:
        if recorded:
            raise ValueError("resamples of the held-out rows are not scored")
        recorded.append(Recorded(fitted, X))
        return 0.0

    game = make_held_out_game(model, X, y, X_test, y_test, scoring=record)
    table, classes = game.problem.table, game.problem.classes
    target, labels = game.problem.target, game.problem.folds[0].target
    training = _Training(game, X_repaired, y_repaired, recorded)
    given = X if X_repaired is None else X_repaired
    tables = {"X": (X, target), "X_repaired": (given, training.target)}
    check_held_out_rows(X_test, labels, tables)
    changed = training.find_changes()
    groups = np.zeros(len(labels)) if classes is None else labels
    strata = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    rows_changed = np.flatnonzero(changed.any(axis=1))
    codes = np.zeros(len(target), int) if classes is None else np.searchsorted(classes, target)
    row_strata = find_strata(codes, rows_changed)
    with ProgressReporter("training", shown=progress, n_tasks=4 * n_repeats + 2) as reporter:
        with _name_failed_rows("the table"):
            on_table = training.pair(np.ones(len(target), dtype=bool), 0)
            held_out = HeldOutRows(scorer, labels, strata, on_table[0], rng)
            on_all_rows = held_out.score(on_table[0]), held_out.score(on_table[1])
        reporter.advance(2)
        sides = [[*split_in_halves(row_strata, rng)] for _ in range(n_repeats)]
        scores, replicates = _score_splits(training, sides, held_out, reporter.advance)
    differences = scores[..., 1] - scores[..., 0]
    half = compute_half_width(
        [estimate_training_variance(differences), *held_out.estimate_variance(replicates)]
    )
    before, after = (float(side) for side in scores.mean(axis=(0, 1)))
    change = after - before
    return Comparison(
        before,
        after,
        (change - half, change + half),
        on_all_rows,
        scoring_name(scoring, classes is not None),
        len(labels),
        len(target),
        n_repeats,
        int(changed.sum()),
        None if classes is None else min(map(len, strata)),
        table.backend,
    )


class _Training:
    """A model to train before and after a change, with the same seeds.

    ``table`` and ``target`` are those after the change; rows that are not ``known`` are left out.
    """

    def __init__(
        self, game: ModelGame, X_repaired: TableLike | None, y_repaired: VectorLike | None,
        recorded: list[Recorded],
    ) -> None:  # fmt: skip
        if X_repaired is None and y_repaired is None:
            raise ValueError(
                "X_repaired and y_repaired must not both be None; pass the table or the labels "
                "after the change."
            )
        self.game, self.recorded = game, recorded
        self.table, self.target = game.problem.table, game.problem.target
        self.known: Mask = np.ones(self.table.shape[0], dtype=bool)
        if y_repaired is not None:
            self.target, self.known = read_changed_labels(y_repaired, game.problem, "y_repaired")
        if X_repaired is not None:
            self.table = _read_repaired(X_repaired, self.table)

    def find_changes(self) -> Mask:
        """Mark the cells and, in the last column, the labels that differ; rows left out, once."""
        table = self.game.problem.table
        pairs = ((table.read(j).objects, self.table.read(j).objects) for j in range(table.shape[1]))
        # Missing values are None, so they are equal.
        cells = [[one != other for one, other in zip(*pair, strict=True)] for pair in pairs]
        labels = ~self.known | (self.target != self.game.problem.target)
        return np.column_stack([np.array(cells, dtype=bool).T & self.known[:, None], labels])

    def pair(self, rows: Mask, repeat: int) -> tuple[Recorded, Recorded]:
        """Return predictions before and after the change, with the seeds of this repeat."""
        game = self.game.with_seeds(repeat)
        changed = game.on(self.table, self.target)
        return self._train(game, rows), self._train(changed, rows & self.known)

    def _train(self, game: ModelGame, rows: Mask) -> Recorded:
        self.recorded.clear()
        game.value(rows, np.ones(game.shape[1], dtype=bool))
        return self.recorded.pop()


@contextmanager
def _name_failed_rows(rows: str) -> Iterator[None]:
    """Report on which rows training or prediction failed, and why."""
    try:
        yield
    except Exception as error:
        own = error.__cause__ if isinstance(error, RuntimeError) else None
        why = one_line(own if isinstance(own, Exception) else error)
        raise RuntimeError(
            f"the model failed on {rows} ({why}); pass a model that can be trained and scored on "
            "both tables and on half of their rows."
        ) from error


def _score_splits(
    training: _Training, splits: list[list[Mask]], held_out: HeldOutRows, tick: Callable[[int], Any]
) -> tuple[Floats, Floats]:
    """Return scores by split, half and table, and the mean difference of the replicates."""
    scores = np.empty((len(splits), 2, 2))
    replicates = []
    for split, sides in enumerate(splits):
        for side, rows in enumerate(sides):
            # Each half has its own seeds, as independent tables would.
            with _name_failed_rows("half of its rows"):
                before, after = training.pair(rows, 2 * split + side)
                scores[split, side] = held_out.score(before), held_out.score(after)
                replicates.append(
                    held_out.compute_replicates(after) - held_out.compute_replicates(before)
                )
            tick(2)
    return scores, np.mean(replicates, axis=0)


def _read_repaired(X_repaired: TableLike, table: Table) -> Table:
    repaired = table.align(X_repaired, called="X_repaired")
    if repaired.shape[0] != table.shape[0]:
        raise ValueError(
            f"X_repaired must have the {table.shape[0]} rows of X, got {repaired.shape[0]}; y "
            "belongs to both."
        )
    if None not in (repaired.backend, table.backend) and not np.array_equal(
        repaired.row_ids, table.row_ids
    ):
        raise ValueError(
            "X_repaired must have the row ids of X in the same order, got others; y belongs to "
            "both."
        )
    return repaired
