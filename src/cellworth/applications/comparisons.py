"""before_and_after: did a repair help? Asked of held-out rows, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.applications.held_out import cause_of, held_out_game, named_scoring, refuse_own_rows
from cellworth.applications.lookups import Keep
from cellworth.blocks import Positions
from cellworth.counts import checked_count
from cellworth.execution import steps_bar
from cellworth.games.model import ModelGame, checked_model, checked_scorer
from cellworth.listing import frame, table_lines
from cellworth.tables import Table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Scores of a model trained on a table before and after it was changed.

    Parameters
    ----------
    before, after : float
        Scores on the held-out rows, in the mean over repeats.
    interval : tuple of float
        Where the change lies with a probability of 95 %, by a paired bootstrap.
    scoring : str
    n_test_rows, n_repeats : int
    backend : str or None
        Data-frame library for :meth:`to_frame`.
    """

    before: float
    after: float
    interval: tuple[float, float]
    scoring: str
    n_test_rows: int
    n_repeats: int
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
        if self.within_noise:
            return "The change is within noise: these rows cannot tell whether it helped."
        verb = "helped" if self.change > 0 else "hurt"
        return f"The change {verb}, beyond what the choice of held-out rows explains."


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
        How often held-out rows, and repeats, are drawn again.
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
    resampled rows, and the same repeats. Rows with class labels are resampled class by class, so
    that no score loses a class. The interval says what other held-out rows would have told, not
    what other training rows would have.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> before_and_after(LogisticRegression(), [[0.0], [3.0], [2.0], [3.0]], y, X,
    ...                  X_test=[[0.5], [1.2], [1.8], [2.5]], y_test=y)
           accuracy  before   after   change       95 % interval
    4 held-out rows  0.7500  1.0000  +0.2500  +0.0000 to +0.5000
    The change is within noise: these rows cannot tell whether it helped.
    """
    n_bootstrap = checked_count(n_bootstrap, "n_bootstrap")
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
    before, after = (
        float(np.mean([pairs.score(side, repeat, everyone) for repeat in range(n_repeats)]))
        for side in (0, 1)
    )
    rng = np.random.default_rng(random_state)
    strata = None if game.problem.classes is None else fold.target
    changes = []
    with steps_bar("bootstrap", n_bootstrap, shown=progress) as bar:
        for _ in range(n_bootstrap):
            changes.append(pairs.change(_resampled(strata, rng, len(everyone)), rng))
            bar.update()
    low, high = np.quantile(changes, (0.025, 0.975))
    return Comparison(
        before,
        after,
        (float(low), float(high)),
        named_scoring(scoring, game),
        len(everyone),
        n_repeats,
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

    def score(self, side: int, repeat: int, rows: Positions) -> float:
        """Score one model on some of the held-out rows."""
        return float(self.scorer(self.sides[side][repeat], rows[:, None], self.target[rows]))

    def change(self, rows: Positions, rng: np.random.Generator) -> float:
        """Mean change on resampled rows over resampled repeats."""
        n_repeats = len(self.sides[0])
        times = np.bincount(rng.integers(n_repeats, size=n_repeats), minlength=n_repeats)
        changes = [
            times[repeat] * (self.score(1, repeat, rows) - self.score(0, repeat, rows))
            for repeat in np.flatnonzero(times).tolist()
        ]
        return float(sum(changes) / n_repeats)


def _resampled(strata: NDArray[Any] | None, rng: np.random.Generator, n_rows: int) -> Positions:
    """Rows drawn with replacement, as many of each class as there are."""
    if strata is None:
        return rng.integers(n_rows, size=n_rows)
    rows = np.empty(n_rows, dtype=np.intp)
    for label in np.unique(strata):
        own = np.flatnonzero(strata == label)
        rows[own] = rng.choice(own, len(own))
    return rows


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
