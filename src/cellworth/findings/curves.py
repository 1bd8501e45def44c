"""removal_curve: the score of a model as cells are removed in the order of a ranking."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    Floats,
    Mask,
    Model,
    RandomState,
    Scoring,
    check_count,
    check_random_state,
)
from cellworth.data.tables import Table, TableLike, VectorLike, frame
from cellworth.data.text import format_count
from cellworth.data.views import View
from cellworth.findings.cells import read_cell_scores
from cellworth.findings.changed_cells import clear_cells, draw_cells, find_known_cells
from cellworth.findings.held_out import (
    check_held_out_rows,
    describe_cause,
    make_held_out_game,
    name_scoring,
)
from cellworth.games.fitting import set_seeds
from cellworth.games.model import ModelGame, check_model
from cellworth.games.table_filler import TableFiller
from cellworth.runtime.progress import ProgressReporter
from cellworth.sampling.moments import student_width
from cellworth.valuation.valuation import Valuation

Order = Literal["highest", "lowest"]
Fill = Literal["draw", "mean", "missing"]
Filler = Callable[[Mask], Table]
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


class Band(NamedTuple):
    """A mean with its 95% interval; numbers, or arrays of one entry per point of a curve."""

    mean: Any
    low: Any
    high: Any

    @classmethod
    def over_seeds(cls, runs: NDArray[np.float64]) -> Band:
        """Return the mean over the first axis with Student's interval; NaN ends for one run."""
        mean, n_runs = runs.mean(axis=0), len(runs)
        if n_runs < 2:
            return cls(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
        half = student_width(n_runs - 1) * runs.std(axis=0, ddof=1) / np.sqrt(n_runs)
        return cls(mean, mean - half, mean + half)


@dataclass(frozen=True, eq=False)
class RemovalCurve:
    """Scores on held-out rows of models trained with more and more cells removed.

    Parameters
    ----------
    shares : array of shape (n_shares,)
        Shares of cells that were removed.
    scores, random_scores : arrays of shape (n_repeats, n_shares)
        Removed in the order of the ranking, and in random order.
    order : {"highest", "lowest"}
        Which cells of the ranking were removed first.
    fill : {"draw", "mean", "missing"}
        What replaced removed cells.
    scoring : str
    backend : str or None
        Data-frame library for :meth:`to_frame`.

    See Also
    --------
    removal_curve, cellworth.plots.removal

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth.findings import removal_curve
    >>> X, y = [[i, i % 3] for i in range(24)], [0] * 12 + [1] * 12
    >>> X_test, y_test = [[i + 0.4, 1] for i in range(24)], y
    >>> curve = removal_curve(DecisionTreeClassifier(random_state=0), X, y,
    ...                       ranking=[[2, 1]] * 24, X_test=X_test, y_test=y_test,
    ...                       shares=(0, 0.4), n_repeats=5)
    >>> curve
    accuracy on held-out rows, 5 seeds
    removed     highest first            random  difference
         0%  1.0000 +- 0.0000  1.0000 +- 0.0000     +0.0000
        40%  0.4250 +- 0.1692  0.7667 +- 0.1246     -0.3417
    >>> curve.difference().mean < 0
    True
    """

    shares: Floats
    scores: Floats
    random_scores: Floats
    order: Order
    fill: Fill
    scoring: str
    backend: str | None = None

    @property
    def band(self) -> Band:
        """Mean score at each share, with a 95% interval over seeds."""
        return Band.over_seeds(self.scores)

    @property
    def random_band(self) -> Band:
        """The same for random order."""
        return Band.over_seeds(self.random_scores)

    def difference(self, shares: Iterable[float] | None = None) -> Band:
        """Return the mean difference from random order over some shares, paired by seed.

        Parameters
        ----------
        shares : iterable of float, default=None
            None means all shares of the curve above 0.
        """
        wanted = self.shares[self.shares > 0] if shares is None else np.array([*shares], float)
        positions = [int(np.argmin(np.abs(self.shares - share))) for share in wanted]
        if not positions or not np.allclose(self.shares[positions], wanted):
            raise ValueError(
                f"shares must be some of {self.shares.tolist()}, the shares of the curve, got "
                f"{wanted.tolist()}."
            )
        differences = (self.scores - self.random_scores)[:, positions].mean(axis=1)
        return Band(*map(float, Band.over_seeds(differences)))

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one row per repetition and share."""
        n_repeats, n_shares = self.scores.shape
        columns = {
            "seed": np.repeat(np.arange(n_repeats), n_shares).tolist(),
            "share": np.tile(self.shares, n_repeats).tolist(),
            "score": self.scores.ravel().tolist(),
            "random_score": self.random_scores.ravel().tolist(),
        }
        return frame(columns, backend or self.backend)

    def __repr__(self) -> str:
        return self._view().text()

    def _repr_html_(self) -> str:
        """Show the scores in Jupyter, with differences as bars."""
        return self._view().html()

    def _view(self) -> View:
        ranked, random = self.band, self.random_band
        differences = ranked.mean - random.mean
        columns = {
            "removed": [f"{share:.0%}" for share in self.shares],
            f"{self.order} first": _format_with_error(ranked),
            "random": _format_with_error(random),
            "difference": [f"{gain:+.4f}" for gain in differences],
        }
        seeds = format_count(len(self.scores), "seed")
        notes = () if self.fill == "draw" else (_describe_leak(self.fill),)
        return View(f"{self.scoring} on held-out rows, {seeds}", columns, notes, differences)


def removal_curve(
    model: Model,
    X: TableLike,
    y: VectorLike,
    *,
    ranking: Valuation | TableLike,
    X_test: TableLike,
    y_test: VectorLike,
    order: Order = "highest",
    shares: Sequence[float] = SHARES,
    fill: Fill = "draw",
    scoring: Scoring = None,
    n_repeats: int = 5,
    random_state: RandomState = 0,
) -> RemovalCurve:
    """Remove cells in the order of a ranking, and as many at random, and train on the rest.

    Parameters
    ----------
    model : classifier or regressor
        Cloned for every fit. In repetition r (0, 1, ...), its integer seeds are increased by r, and
        seeds that are None become r, for any ``random_state``.
    X, y : training table, whose cells the ranking scores, and labels
    ranking : Valuation or array of shape (n_rows, n_columns)
        Scores of the cells of X. Cells of a group have the value of their block. Equal scores are
        in random order, redrawn for each repetition; cells without a score (NaN) are last.
    X_test, y_test : table and labels to score on
        Rows that neither the model nor the ranking has used. A warning names rows of X among them,
        or the validation rows of the Valuation.
    order : {"highest", "lowest"}, default="highest"
        Which scores go first.
    shares : sequence of float, default=(0, 0.05, 0.1, 0.2, 0.3, 0.5)
        Shares of all cells to remove, increasing.
    fill : {"draw", "mean", "missing"}, default="draw"
        A removed cell becomes a random draw from the remaining cells of its column (from all cells
        if none remains); the mean (or the most frequent) of these; or a missing value.
    scoring : str or callable, default=None
        A scikit-learn scoring name or scorer; None means accuracy or R squared.
    n_repeats : int, default=5
        Repetitions, each with its own draws, random order and seed of the model.
    random_state : int, Generator, RandomState or None, default=0
        Seed of draws and random orders; run r draws from (seed, r).

    Returns
    -------
    RemovalCurve

    See Also
    --------
    compare_models, cellworth.plots.removal

    Notes
    -----
    Cells that are typical of another class have low values, so *which* cells are low reveals the
    label. With ``fill="mean"`` or ``"missing"``, a model can learn which cells were removed. It
    then fails on rows with all cells. A warning reports this.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth.findings import removal_curve
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> curve = removal_curve(DecisionTreeClassifier(), X, y, ranking=[[2, 1]] * 4,
    ...                       X_test=[[0.5, 5.0], [2.5, 5.0]], y_test=[0, 1], order="lowest",
    ...                       shares=(0, 0.5), n_repeats=3)
    >>> curve.scores
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """
    table = Table.from_data(X, called="X")
    check_model(model)
    scores = read_cell_scores(ranking, table)
    _check_choice(order, Order, "order")
    _check_choice(fill, Fill, "fill")
    wanted = _check_shares(shares)
    if fill != "draw":
        warnings.warn(_describe_leak(fill), stacklevel=2)
    runs = []
    first_seed = check_random_state(random_state)
    n_fits = 2 * check_count(n_repeats, "n_repeats") * len(wanted)
    with ProgressReporter("removal curve", shown=True, n_tasks=n_fits) as reporter:
        for seed in range(n_repeats):
            rng = np.random.default_rng([first_seed, seed])
            game = make_held_out_game(
                set_seeds(model, seed), table, y, X_test, y_test, scoring=scoring
            )
            if seed == 0:
                test_fold, problem = game.problem.folds[0], game.problem
                check_held_out_rows(X_test, test_fold.target, {"X": (X, problem.target)})
                _warn_of_validation_rows(ranking, game)
            run = _Run(game, _make_filler(fill, game.problem.table, rng), wanted, reporter.advance)
            first = -scores if order == "highest" else scores
            # Equal scores are in random order, NaN is last.
            ranked = np.lexsort((rng.random(scores.size), first.ravel()))
            runs.append([run.scores(ranked), run.scores(rng.permutation(scores.size))])
    by_ranking, random = np.moveaxis(np.array(runs), 1, 0)
    named = name_scoring(scoring, game)
    return RemovalCurve(wanted, by_ranking, random, order, fill, named, table.backend)


@dataclass(frozen=True, eq=False)
class _Run:
    """One seed: the same draws and the same model for every order of removal."""

    game: ModelGame
    filler: Filler
    shares: Floats
    tick: Callable[[], Any]

    def scores(self, order: NDArray[np.intp]) -> list[float]:
        """Return the scores at all shares if cells are removed in this order."""
        return [self._score(order, share) for share in self.shares]

    def _score(self, order: NDArray[np.intp], share: float) -> float:
        shape = self.game.problem.table.shape
        mask = np.zeros(shape, dtype=bool)
        mask.ravel()[order[: round(share * len(order))]] = True
        game = self.game.on(self.filler(mask))
        everything = (np.ones(n, dtype=bool) for n in shape)
        try:
            score = float(game.value(*everything))
        except RuntimeError as error:
            raise RuntimeError(
                f"the model failed with {share:.0%} of the cells removed ({describe_cause(error)});"
                " give a model that can be trained on such a table, or another fill."
            ) from error
        self.tick()
        return score


def _warn_of_validation_rows(ranking: Any, game: ModelGame) -> None:
    """Warn if the test rows are the validation rows of the valuation."""
    if not isinstance(ranking, Valuation):
        return
    asked = ranking.provenance.problem_spec.get("data_sha256", {}).get("validation")
    if asked == game.problem.problem_spec()["data_sha256"]["validation"]:
        warnings.warn(
            "X_test and y_test are the validation rows of the valuation, which fits their noise; "
            "score on other rows that were set aside.",
            stacklevel=3,
        )


def _make_filler(fill: Fill, table: Table, rng: np.random.Generator) -> Filler:
    """Make a function from the mask of removed cells to a table."""
    if fill == "missing":
        return lambda mask: clear_cells(table, mask)
    if fill == "mean":
        return _make_mean_filler(table)
    known, uniforms = find_known_cells(table), rng.random(table.shape)

    def fill_with_draws(mask: Mask) -> Table:
        kept = known & ~mask
        # If no cell of a column is kept, all known ones are drawn from.
        source = np.where(kept.any(axis=0), kept, known)
        return draw_cells(table, mask & known.any(axis=0), source, uniforms)

    return fill_with_draws


def _make_mean_filler(table: Table) -> Filler:
    """Make a function that fills removed cells with means, and no others."""
    fillings, known = TableFiller(table), find_known_cells(table)
    everyone = np.ones(table.shape[0], dtype=bool)

    def fill_with_means(mask: Mask) -> Table:
        if not mask.any():
            return table
        missing = ~known & (~mask | ~known.any(axis=0))
        filled = clear_cells(fillings.fill(~mask, everyone), missing).data
        if isinstance(table.data, np.ndarray) or isinstance(filled, np.ndarray):
            return replace(table, data=filled)
        changed = [filled[:, position] for position in np.flatnonzero(mask.any(axis=0)).tolist()]
        return replace(table, data=table.data.with_columns(*changed))

    return fill_with_means


def _check_choice(choice: Any, choices: Any, called: str) -> None:
    if choice not in get_args(choices):
        names = ", ".join(map(repr, get_args(choices)))
        raise ValueError(f"{called} must be one of {names}, got {choice!r}.")


def _check_shares(shares: Any) -> Floats:
    try:
        wanted = np.array([*shares], dtype=np.float64)
    except (TypeError, ValueError):
        wanted = np.array([])
    inside = len(wanted) and (wanted >= 0).all() and (wanted <= 1).all()
    if not inside or (np.diff(wanted) <= 0).any():
        raise ValueError(
            "shares must be increasing numbers between 0 and 1, such as (0, 0.1, 0.2), got "
            f"{shares!r}."
        )
    return wanted


def _describe_leak(fill: Fill) -> str:
    trace = "the same number" if fill == "mean" else "a missing value"
    return (
        f"fill={fill!r} leaves {trace} where a cell was removed, so a model can recognize these "
        "cells. If the ranking depends on the labels, this reveals the label of training rows "
        "only; fill='draw' hides removed cells among the others of their column."
    )


def _format_with_error(band: Band) -> list[str]:
    halves = band.high - band.mean
    return [
        f"{mean:.4f}" if np.isnan(half) else f"{mean:.4f} +- {half:.4f}"
        for mean, half in zip(band.mean, halves, strict=True)
    ]
