"""Forecast: the size of a run and how long it takes, before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cellworth.data.text import format_count

_YEAR = 31_557_600
# A shorter run has no first line.
_MIN_SECONDS_OF_FIRST_LINE = 3.0


@dataclass(frozen=True)
class Forecast:
    """Size and expected time of a run; ``Runtime(on_start=...)`` receives it before the first task.

    Parameters
    ----------
    sampler : str
        How coalitions are chosen.
    shape : tuple of int
        Row players and column players.
    utilities : float
        Largest number of utilities; infinite if the stopping rule does not limit it.
    core_seconds : float
        Expected time of one core; infinite if nothing is known of it.
    n_cores : int
        Cores of this machine that the run uses. Workers of a cluster are not counted.
    most_seconds : float
        Time that the stopping rule allows.
    size : str
        Players, validation rows and the like, in words.
    unit : str
        What one utility is.
    advice : str
        How to ask for more or less.
    """

    sampler: str
    shape: tuple[int, int]
    utilities: float
    core_seconds: float
    n_cores: int = 1
    most_seconds: float = math.inf
    size: str = ""
    unit: str = "utilities"
    advice: str = ""

    @property
    def seconds(self) -> float:
        """Expected time of the whole run."""
        return min(self.core_seconds / self.n_cores, self.most_seconds)

    @property
    def is_long(self) -> bool:
        """Whether the run is worth a first line."""
        return _MIN_SECONDS_OF_FIRST_LINE <= self.seconds < math.inf

    def __str__(self) -> str:
        number = "any number of"
        if math.isfinite(self.utilities):
            number = f"at most {int(self.utilities):,}"
        duration = "until its stopping rule is met"
        if math.isfinite(self.seconds):
            cores = format_count(self.n_cores, "core")
            duration = f"about {format_seconds(self.seconds)} on {cores}"
        text = f"{self.size}, {number} {self.unit}, {duration}"
        return f"{text}; {self.advice}" if self.advice else text


def format_seconds(seconds: float) -> str:
    """Return a duration in its largest unit: 35 s, 2.5 min, 3 h."""
    for unit, length in (("years", _YEAR), ("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s"
