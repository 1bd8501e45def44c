"""How a run converged: one line of plain figures for each round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cellworth.moments import Moments
from cellworth.runtime import Progress

_KEYS = ("tasks", "seconds", "error", "total")


def round_line(progress: Progress) -> dict[str, Any]:
    """Figures of one round: small, and they can be written as JSON while a run goes on.

    Parameters
    ----------
    progress : Progress
        What ``on_round`` is called with.

    Returns
    -------
    dict
        ``tasks`` done, ``seconds`` since the session began, ``error`` (the root mean square of the
        blocks' standard errors, as far as they are known) and ``total`` (the sum of all values);
        the last two are None while they are not known.

    Examples
    --------
    >>> from cellworth import AfterTasks, TableGame, report, value_game
    >>> rounds = []
    >>> game = TableGame(np.arange(16.0).reshape(4, 4) ** 2)
    >>> valuation = value_game(game, (2, 2), stop=AfterTasks(64), random_state=0,
    ...                        on_round=lambda progress: rounds.append(report.round_line(progress)))
    >>> rounds[-1]["tasks"], rounds[-1]["total"]
    (64, 72.0)
    """
    moments = progress.moments
    return {
        "tasks": int(progress.tasks),
        "seconds": float(progress.seconds),
        "error": None if moments is None else _root_mean_square_error(moments),
        "total": None if moments is None else _total(moments),
    }


def checked_rounds(rounds: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Lines of a run's rounds, or a sentence that says what else came."""
    lines = []
    for line in () if rounds is None else rounds:
        if not isinstance(line, Mapping) or not set(_KEYS) <= set(line):
            raise TypeError(
                f"rounds holds a {type(line).__name__} without {', '.join(_KEYS)}; give a list of "
                "what round_line makes of each Progress."
            )
        lines.append({key: line[key] for key in _KEYS})
    return lines


def _root_mean_square_error(moments: Moments) -> float | None:
    errors = moments.standard_errors[:-1, :-1]
    known = errors[~np.isnan(errors)]
    return math.sqrt(float(np.mean(known**2))) if len(known) else None


def _total(moments: Moments) -> float | None:
    values = moments.values
    total = float(values[-1, -1])
    # Where no task sees all blocks together, the sum of their values stands in.
    total = float(values[:-1, :-1].sum()) if math.isnan(total) else total
    return None if math.isnan(total) else total
