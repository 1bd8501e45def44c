"""Plan: what a run would cost, told before it is paid."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

from cellworth.blocks import Mask
from cellworth.column_info import ColumnTable
from cellworth.designs import Design, generator
from cellworth.games import Game
from cellworth.games.base import checked_utility
from cellworth.runtime import StoppingRule
from cellworth.scores import Scores

_TIMED_UTILITIES = 20
_TIMED_SECONDS = 2.0
_YEAR = 31_557_600
_LONGEST_WRITTEN_OUT = 60


@dataclass(frozen=True)
class Plan:
    """What a run would cost.

    Parameters
    ----------
    design : str
        How coalitions are chosen.
    shape : tuple of int
        Row players and column players.
    utilities : float
        Utilities to look at, at most; infinite where the stopping rule sets no number. With a model
        each is a fit, or one for each fold and repeat.
    utilities_per_task : float
        How many a task needs, about: nothing can be told before the first task is done.
    seconds_per_utility : float
        Mean of a few that were timed.
    most_seconds : float
        Time that the stopping rule allows.
    limit : float
        Utilities beyond which the run is refused.
    scores : Scores or None
        What the table will be scored by, and on which rows.
    columns : ColumnTable or None
        What each raw column is taken for.
    """

    design: str
    shape: tuple[int, int]
    utilities: float
    utilities_per_task: float
    seconds_per_utility: float
    most_seconds: float = math.inf
    limit: float = math.inf
    scores: Scores | None = None
    columns: ColumnTable | None = None

    @classmethod
    def of_run(cls, name: str, game: Any, design: Design, rule: StoppingRule) -> Plan:
        """Plan a run until a rule is met; some utilities of its first task are timed."""
        pairs = list(design(0))
        order = generator(0, 0).permutation(len(pairs))
        return cls(
            name,
            game.shape,
            min(rule.most_utilities, rule.most_tasks * design.utilities_per_task),
            design.utilities_per_task,
            seconds_per_utility(game, (pairs[place] for place in order)),
            rule.most_seconds,
        )

    @property
    def seconds(self) -> float:
        """Estimated time of the whole run on one worker; infinite beyond all measure."""
        try:
            return min(self.most_seconds, self.seconds_per_utility * self.utilities)
        except OverflowError:
            return self.most_seconds

    @property
    def allowed(self) -> bool:
        """Whether the run is within the limit."""
        return self.utilities <= self.limit

    def __repr__(self) -> str:
        """Return one readable line."""
        verdict = "within" if self.allowed else "beyond"
        limit = "" if self.limit == math.inf else f"; {verdict} the limit of {self.limit:,}"
        if self.utilities < self.utilities_per_task:
            limit += "; too few for a first task, and so for any value"
        return (
            f"{self.shape[0]} x {self.shape[1]} blocks, {self.design}: {self.count} utilities, "
            f"{self.duration} ({self.seconds_per_utility * 1e3:.2g} ms each on one worker, about "
            f"{self.utilities_per_task:.0f} a task){limit}"
        )

    @property
    def count(self) -> str:
        """Number of utilities in words that stay short."""
        if self.utilities == math.inf:
            return "any number of"
        number = int(self.utilities)
        power = number.bit_length() - 1
        short = f"{number:,}" if power <= _LONGEST_WRITTEN_OUT else ""
        is_power = number == 1 << power and power > 1
        return " = ".join(filter(None, [f"2^{power}" if is_power else "", short]))

    @property
    def duration(self) -> str:
        """Estimated time in words."""
        if self.utilities == self.most_seconds == math.inf:
            return "until its stopping rule is met"
        if self.seconds >= 1e10 * _YEAR:
            return "longer than the age of the universe"
        for unit, length in (("years", _YEAR), ("days", 86_400), ("h", 3600), ("min", 60)):
            if self.seconds >= length:
                return f"about {self.seconds / length:.3g} {unit}"
        return f"about {self.seconds:.2g} s"


def seconds_per_utility(game: Game, pairs: Iterable[tuple[Mask, Mask]]) -> float:
    """Mean time of the first few of these pairs of coalitions, those that need a fit."""
    n_timed, began = 0, time.perf_counter()
    with threadpool_limits(1):
        for rows, columns in pairs:
            if rows.any() and columns.any():
                checked_utility(game, rows, columns)
                n_timed += 1
            if n_timed >= _TIMED_UTILITIES or time.perf_counter() - began > _TIMED_SECONDS:
                break
    return (time.perf_counter() - began) / max(n_timed, 1)
