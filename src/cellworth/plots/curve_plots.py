"""plots.removal and plots.convergence: curves with bands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, Literal

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.data.text import with_minus
from cellworth.findings.curves import Band, RemovalCurve
from cellworth.plots.figure_style import (
    DASHES,
    GRAY,
    LINES,
    MARKERS,
    NEGATIVE,
    POSITIVE,
    SCORE_UNITS,
    SMALL,
    Axes,
    check_type,
    fit_title,
    get_axes,
    hide_frame,
    lay_out,
    text_of,
    write_title,
)
from cellworth.runtime.progress import Progress
from cellworth.sampling.moments import Moments, widening

_SIZE = (5.6, 3.8)
_DOTS_UP_TO = 40


def removal(
    *curves: RemovalCurve, labels: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the score as cells are removed, and for comparison as random cells are removed.

    Lines are means over seeds. Bands are 95% intervals of these means (Student's t); a single seed
    has none.

    Parameters
    ----------
    *curves : RemovalCurve
        What :func:`~cellworth.findings.removal_curve` returns.
    labels : list of str, default=None
        Names of the curves; None means their order and fill.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    cellworth.findings.removal_curve

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth.findings import removal_curve
    >>> from cellworth.plots import removal
    >>> X, y = [[i, i % 3] for i in range(24)], [0] * 12 + [1] * 12
    >>> curve = removal_curve(DecisionTreeClassifier(random_state=0), X, y, ranking=[[2, 1]] * 24,
    ...                       X_test=[[i + 0.4, 1] for i in range(24)], y_test=y, shares=(0, 0.4))
    >>> ax = removal(curve, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['highest first, fill: draw', 'at random']
    """
    from matplotlib.ticker import PercentFormatter

    if not curves:
        raise ValueError("curves must not be empty; give at least one removal curve.")
    for curve in curves:
        check_type(curve, RemovalCurve, "a curve", "give removal curves, one argument each.")
    scoring = _find_common_scoring(curves)
    names = _check_labels(labels, [f"{c.order} first, fill: {c.fill}" for c in curves])
    ax = get_axes(ax, _SIZE)
    hide_frame(ax)
    for curve, name, style in zip(curves, names, _iter_line_styles(), strict=False):
        _draw_band(ax, curve.shares, curve.scores, label=name, **style)
    for i, curve in enumerate(_find_different_baselines(curves)):
        label = "at random" if i == 0 else None
        _draw_band(
            ax, curve.shares, curve.random_scores, label=label, color=GRAY, linestyle=(0, (4, 3))
        )
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, symbol="%"))
    ax.set_xlabel("share of cells removed", size=SMALL)
    ax.set_ylabel(f"score ({scoring})", size=SMALL)
    return _finish(ax, "Score as cells are removed")


def convergence(
    history: Sequence[Progress],
    *,
    against: Literal["tasks", "utilities"] = "tasks",
    ax: Axes | None = None,
) -> Axes:
    """Draw the standard errors of blocks during a run, both axes logarithmic.

    The dotted line falls with the square root of the work, as errors of independent tasks do.
    Rounds before the first known error are left out.

    Parameters
    ----------
    history : list of Progress
        What a run reported to ``on_round``: ``history = []``, then
        ``Runtime(on_round=history.append)``. Each Progress keeps about four numbers per block, or
        16 MB for 32,561 x 14 cells; keep only some rounds of long runs on large tables.
        Estimators that compute values from all utilities do so again for every round drawn.
    against : {"tasks", "utilities"}, default="tasks"
        The x axis: tasks done, or utilities that were evaluated for the first time, each a fit
        of the model. A run over few coalitions soon repeats them, which costs nothing.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    cellworth.runtime.TargetPrecision

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.plots import convergence
    >>> from cellworth.runtime import MaxTasks
    >>> from cellworth import Runtime, value_game
    >>> from cellworth.games import TableGame
    >>> history, game = [], TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> run = {"stop": MaxTasks(64), "random_state": 0}
    >>> valuation = value_game(game, (3, 3), **run, runtime=Runtime(on_round=history.append))
    >>> convergence(history, ax=Figure().subplots()).get_xlabel()
    'tasks'
    """
    rounds = _check_history(history)
    if against not in ("tasks", "utilities"):
        raise ValueError(f"against must be 'tasks' or 'utilities', got {against!r}.")
    work = np.array([getattr(progress, against) for progress, _ in rounds], dtype=np.float64)
    errors = np.array([_summarize_errors(moments) for _, moments in rounds]).reshape(-1, 2)
    known = (errors[:, 0] > 0) & (work > 0)
    if not known.any():
        raise ValueError(
            "history must have a round with a standard error above 0; exact runs have none, "
            "others need at least two tasks or passes."
        )
    work, errors = work[known], errors[known]
    ax = get_axes(ax, _SIZE)
    hide_frame(ax)
    dots = "o" if len(work) <= _DOTS_UP_TO else ""
    for column, name, color, dashes in (
        (0, "largest", NEGATIVE, "-"),
        (1, "median", POSITIVE, DASHES[1]),
    ):
        shown = np.where(errors[:, column] > 0, errors[:, column], np.nan)
        ax.plot(
            work,
            shown,
            color=color,
            linestyle=dashes,
            marker=dots,
            markersize=3.5,
            label=f"{name} block",
        )
    guide = errors[-1, 0] * np.sqrt(work[-1] / work)
    ax.plot(work, guide, color=GRAY, linestyle=":", label="falling with the square root", zorder=1)
    _make_logarithmic(ax)
    ax.set_xlabel(against, size=SMALL)
    ax.set_ylabel(f"standard error ({SCORE_UNITS})", size=SMALL)
    return _finish(ax, "Errors during the run")


def _check_history(history: Any) -> list[tuple[Progress, Moments]]:
    """Return the rounds that have values, with them."""
    advice = "collect it with history = [] and Runtime(on_round=history.append)."
    if not isinstance(history, Sequence) or not all(isinstance(p, Progress) for p in history):
        raise TypeError(
            f"history must be a list of Progress, got {type(history).__name__}; {advice}"
        )
    if not history:
        raise ValueError(f"history must not be empty; {advice}")
    return [(each, each.moments) for each in history if each.moments is not None]


def _summarize_errors(moments: Moments) -> tuple[float, float]:
    """Return the largest and the median known standard error of the blocks, or zeros."""
    errors = (moments.sampling_se * widening(moments.count))[:-1, :-1]
    known = errors[~np.isnan(errors)]
    return (float(known.max()), float(np.median(known))) if len(known) else (0.0, 0.0)


def _check_labels(labels: Any, usual: list[str]) -> list[str]:
    if labels is None:
        return [text_of(name, 60) for name in usual]
    if isinstance(labels, str) or len(labels) != len(usual):
        raise ValueError(
            f"labels must have one string for each of the {len(usual)} curves, got {labels!r}."
        )
    return [text_of(label, 60) for label in labels]


def _find_common_scoring(curves: Sequence[RemovalCurve]) -> str:
    names = dict.fromkeys(text_of(curve.scoring.replace("_", " "), 60) for curve in curves)
    if len(names) > 1:
        raise ValueError(
            f"curves must share one scoring, got {' and '.join(names)}; draw one figure for each."
        )
    return next(iter(names))


def _find_different_baselines(curves: Sequence[RemovalCurve]) -> list[RemovalCurve]:
    """Return the curves whose random baselines differ from those before them."""
    found: list[RemovalCurve] = []
    for curve in curves:
        if not any(
            np.array_equal(curve.random_scores, other.random_scores)
            and np.array_equal(curve.shares, other.shares)
            for other in found
        ):
            found.append(curve)
    return found


def _iter_line_styles() -> Iterator[dict[str, Any]]:
    """Yield a color, dashes and a marker for each line, so that color alone never matters."""
    return (
        {"color": color, "linestyle": dashes, "marker": marker}
        for color, dashes, marker in zip(cycle(LINES), cycle(DASHES), cycle(MARKERS), strict=False)
    )


def _draw_band(ax: Axes, shares: Floats, scores: Floats, *, color: str, **style: Any) -> None:
    """Draw the mean over seeds and its 95% interval."""
    band = Band.over_seeds(scores)
    ax.plot(shares, band.mean, color=color, markersize=3.5, **style)
    if len(scores) > 1:
        ax.fill_between(shares, band.low, band.high, color=color, alpha=0.18, linewidth=0)


def _make_logarithmic(ax: Axes) -> None:
    """Make both axes logarithmic, with ticks at 1, 2, 5, 10, 20, 50, ... as far as they fit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda number, _: with_minus(f"{number:g}")))
        axis.set_minor_formatter(NullFormatter())


def _finish(ax: Axes, title: str) -> Axes:
    ax.tick_params(which="both", labelsize=SMALL)
    # Lines may run behind the legend.
    ax.legend(edgecolor="none", framealpha=0.85, fontsize=SMALL)
    write_title(ax, title)
    lay_out(ax)
    fit_title(ax)
    return ax
