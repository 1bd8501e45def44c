"""before_and_after: did a repair help? Asked of held-out rows, with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cellworth.applications.held_out import cause_of, held_out_game, named_scoring, refuse_own_rows
from cellworth.applications.lookups import Keep
from cellworth.applications.seeds import generator_of
from cellworth.blocks import Positions, is_missing
from cellworth.counts import checked_count
from cellworth.execution import steps_bar
from cellworth.games.model import ModelGame, checked_model, checked_scorer
from cellworth.listing import frame, table_lines
from cellworth.tables import Table

Floats = NDArray[np.float64]

# A class with fewer held-out rows tells little of how its rows differ.
FEW_ROWS = 20


@dataclass(frozen=True)
class Comparison:
    """Scores of a model trained on a table before and after it was changed.

    Parameters
    ----------
    before, after : float
        Scores on the held-out rows, in the mean over repeats.
    interval : tuple of float
        95 % interval of the change: Student's, with standard errors from a paired bootstrap of
        held-out rows and from repeats.
    scoring : str
    n_test_rows, n_repeats : int
    n_changed : int
        Cells in which the tables differ.
    fewest : int or None
        Held-out rows of the rarest class; None for numeric targets.
    backend : str or None
        Data-frame library for :meth:`to_frame`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> X_test, y_test = [[0.02 + i / 20] for i in range(60)], [0] * 30 + [1] * 30
    >>> slipped = [[0.0], [3.0], [2.0], [3.0]]
    >>> comparison = before_and_after(
    ...     LogisticRegression(), slipped, y, X, X_test=X_test, y_test=y_test, n_bootstrap=100
    ... )
    >>> print(f"{comparison.change:+.4f}", comparison.n_changed, comparison.within_noise)
    +0.1833 1 False
    """

    before: float
    after: float
    interval: tuple[float, float]
    scoring: str
    n_test_rows: int
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
        """Whether the interval of the change holds 0."""
        return self.interval[0] <= 0.0 <= self.interval[1]

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of one line."""
        figures = {
            "before": self.before,
            "after": self.after,
            "change": self.change,
            "low": self.interval[0],
            "high": self.interval[1],
            "within_noise": self.within_noise,
        }
        columns = {name: [figure] for name, figure in figures.items()}
        return frame(columns, backend or self.backend)

    def __repr__(self) -> str:
        """A table for the terminal, and what it means."""
        columns = {
            self.scoring: [f"{self.n_test_rows:,} held-out rows"],
            "before": [f"{self.before:.4f}"],
            "after": [f"{self.after:.4f}"],
            "change": [f"{self.change:+.4f}"],
            "95 % interval": [f"{self.interval[0]:+.4f} to {self.interval[1]:+.4f}"],
        }
        return "\n".join([*table_lines(columns), self._meaning()])

    def _meaning(self) -> str:
        if self.n_changed == 0:
            return "Nothing was changed: both tables are the same."
        if self.interval == (0.0, 0.0):
            return "No held-out row tells the tables apart; more rows might."
        if self.within_noise:
            meaning = "The change is within noise: these rows cannot tell whether it helped."
        else:
            verb = "helped" if self.change > 0 else "hurt"
            meaning = f"The change {verb}, beyond what the choice of held-out rows explains."
        if self.fewest is not None and self.fewest < FEW_ROWS:
            rows = f"{self.fewest} held-out row{'s' if self.fewest > 1 else ''}"
            meaning += f" One class has only {rows}: the interval is rough."
        return meaning


def before_and_after(
    model: Any,
    X: Any,
    y: Any,
    X_repaired: Any,
    *,
    X_test: Any,
    y_test: Any,
    scoring: Any = None,
    n_repeats: int = 1,
    n_bootstrap: int = 1000,
    random_state: Any = 0,
    progress: bool = True,
) -> Comparison:
    """Train a model on a table before and after a repair and score both on held-out rows.

    Parameters
    ----------
    model : classifier or regressor
        Cloned for every fit.
    X, y : table and labels before the repair
    X_repaired : table
        The same rows and columns after it.
    X_test, y_test : table and labels to score on
        Rows that were set aside before anything was valued or changed. The rows of X or X_repaired
        themselves are refused, and there is no cross-validation: a table that was changed in the
        light of its labels looks good to itself.
    scoring : str or callable, default=None
        A scikit-learn scoring name or scorer that looks at predictions only; None means accuracy or
        R squared.
    n_repeats : int, default=1
        Fits of each table, with other seeds, for models that draw random numbers.
    n_bootstrap : int, default=1000
        How often held-out rows are drawn again, all classes together.
    random_state : int, Generator or None, default=0
        Seed of the bootstrap.
    progress : bool, default=True
        Whether a bootstrap longer than two seconds shows a bar.

    Returns
    -------
    Comparison

    Notes
    -----
    Each model predicts once; resampled rows look their predictions up. Both tables get the same
    resampled rows. One class is resampled at a time, as many rows as it has, which gives its part
    of the variance; times n / (n - 1), because the rows at hand are nearer to each other than to
    new ones. K repeats add the variance among them over K. The interval is Student's, with
    Satterthwaite's degrees of freedom, so that few rows of a class or few repeats make it wide. It
    says what other held-out rows (with several repeats, and other seeds) would have told, not what
    other training rows would have.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> X_test = [[0.02 + i / 20] for i in range(60)]
    >>> before_and_after(LogisticRegression(), [[0.0], [3.0], [2.0], [3.0]], y, X, X_test=X_test,
    ...                  y_test=[0] * 30 + [1] * 30, n_bootstrap=100)
            accuracy  before   after   change       95 % interval
    60 held-out rows  0.8167  1.0000  +0.1833  +0.0988 to +0.2678
    The change helped, beyond what the choice of held-out rows explains.
    """
    n_bootstrap = checked_count(n_bootstrap, "n_bootstrap")
    rng = generator_of(random_state)
    scorer = checked_scorer(scoring, checked_model(model))
    kept = Keep()
    game = held_out_game(model, X, y, X_test, y_test, scoring=kept, n_repeats=n_repeats)
    table, fold = game.problem.table, game.problem.folds[0]
    repaired = _checked_repaired(X_repaired, table)
    tables = {"X": X, "X_repaired": X_repaired}
    refuse_own_rows(X_test, tables, fold.target, game.problem.target)
    pairs = _Pairs(
        tuple(_trained(game.on(side), kept) for side in (table, repaired)),
        scorer,
        fold.target,
    )
    everyone = np.arange(len(fold.target))
    before, after = (pairs.scores(side, everyone) for side in (0, 1))
    strata = _strata(fold.target, classes=game.problem.classes is not None)
    noise = [_of_repeats(after - before)] if n_repeats > 1 else []
    n_draws = max(n_bootstrap // len(strata), 2)
    with steps_bar("bootstrap", n_draws * len(strata), shown=progress) as bar:
        noise += [_of_rows(pairs, own, n_draws, rng, bar.update) for own in strata]
    half = _half_width(noise)
    change = float(after.mean()) - float(before.mean())
    return Comparison(
        float(before.mean()),
        float(after.mean()),
        (change - half, change + half),
        named_scoring(scoring, game),
        len(everyone),
        n_repeats,
        _n_changed(table, repaired),
        None if game.problem.classes is None else min(map(len, strata)),
        table.backend,
    )


def _trained(game: ModelGame, kept: Keep) -> list[Any]:
    """Train on the whole table, once per repeat; return what was predicted."""
    kept.seen.clear()
    try:
        game.value(*(np.ones(n, dtype=bool) for n in game.shape))
    except RuntimeError as error:
        raise RuntimeError(
            f"the model failed on the table ({cause_of(error)}); give a model "
            "that can be trained on both tables."
        ) from error
    return list(kept.seen)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Predictions of models before and after, one pair per repeat, and how to score them."""

    sides: tuple[list[Any], ...]
    scorer: Any
    target: NDArray[Any]

    def scores(self, side: int, rows: Positions) -> Floats:
        """Scores on some of the held-out rows, one for each repeat."""
        models, target = self.sides[side], self.target[rows]
        return np.array([float(self.scorer(model, rows[:, None], target)) for model in models])

    def change(self, rows: Positions) -> float:
        """Mean change over repeats."""
        return float((self.scores(1, rows) - self.scores(0, rows)).mean())


class _Noise(NamedTuple):
    """A part of the variance of the change, and how many degrees of freedom tell it."""

    variance: float
    freedom: int


def _strata(target: NDArray[Any], *, classes: bool) -> list[Positions]:
    """Rows of each class, so that no resample loses a class; all rows for numeric targets."""
    if not classes:
        return [np.arange(len(target))]
    return [np.flatnonzero(target == label) for label in np.unique(target)]


def _of_repeats(changes: Floats) -> _Noise:
    return _Noise(float(np.var(changes, ddof=1)) / len(changes), len(changes) - 1)


def _of_rows(
    pairs: _Pairs, own: Positions, n_draws: int, rng: np.random.Generator, tick: Callable[[], Any]
) -> _Noise:
    """What the choice of the rows of one class adds, by drawing these again and no others."""
    changes = []
    for _ in range(n_draws):
        rows = np.arange(len(pairs.target))
        rows[own] = rng.choice(own, len(own))
        changes.append(pairs.change(rows))
        tick()
    freedom = max(len(own) - 1, 1)
    return _Noise(float(np.var(changes, ddof=1)) * len(own) / freedom, freedom)


def _half_width(noise: list[_Noise]) -> float:
    """Half of Student's 95 % interval, with Satterthwaite's degrees of freedom."""
    variance = sum(part.variance for part in noise)
    if variance == 0:
        return 0.0
    # Shares, because squares of tiny variances would be 0.
    freedom = 1 / sum((part.variance / variance) ** 2 / part.freedom for part in noise)
    return float(stats.t.ppf(0.975, freedom) * math.sqrt(variance))


def _n_changed(table: Table, repaired: Table) -> int:
    """Count the cells in which two tables differ; gaps are alike."""
    changed = 0
    for place in range(table.shape[1]):
        cells = (side.column(place).tolist() for side in (table, repaired))
        changed += sum(
            not (is_missing(one) and is_missing(other)) and one != other
            for one, other in zip(*cells, strict=True)
        )
    return changed


def _checked_repaired(X_repaired: Any, table: Table) -> Table:
    repaired = Table.of(X_repaired, called="X_repaired").aligned_to(table, called="X_repaired")
    if repaired.shape[0] != table.shape[0]:
        raise ValueError(
            f"X_repaired has {repaired.shape[0]} rows but X has {table.shape[0]}; give the same "
            "rows, so that y belongs to both."
        )
    if None not in (repaired.backend, table.backend) and not np.array_equal(
        repaired.row_ids, table.row_ids
    ):
        raise ValueError(
            "X_repaired has other row ids than X, or another order of them; give the same rows in "
            "the same order, so that y belongs to both."
        )
    return repaired
