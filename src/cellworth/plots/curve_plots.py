"""plots.convergence: standard errors during a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from cellworth.data.text import with_minus
from cellworth.plots.figure_style import (
    DASHES,
    GRAY,
    NEGATIVE,
    POSITIVE,
    SCORE_UNITS,
    SMALL,
    Axes,
    fit_title,
    get_axes,
    hide_frame,
    lay_out,
    write_title,
)
from cellworth.runtime.progress import Progress
from cellworth.sampling.moments import Moments, widening

_SIZE = (5.6, 3.8)
_DOTS_UP_TO = 40


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
    ax.tick_params(which="both", labelsize=SMALL)
    # Lines may run behind the legend.
    ax.legend(edgecolor="none", framealpha=0.85, fontsize=SMALL)
    write_title(ax, "Errors during the run")
    lay_out(ax)
    fit_title(ax)
    return ax


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


def _make_logarithmic(ax: Axes) -> None:
    """Make both axes logarithmic, with ticks at 1, 2, 5, 10, 20, 50, ... as far as they fit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda number, _: with_minus(f"{number:g}")))
        axis.set_minor_formatter(NullFormatter())
