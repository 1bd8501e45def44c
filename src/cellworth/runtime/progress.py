"""The progress bar of a run: how much is done, how long the rest will take, how sure it is."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import TqdmWarning

from cellworth.runtime.stopping import Progress

with warnings.catch_warnings():
    # In a notebook without widgets the bar is text, which needs no word of warning.
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm
_SECONDS_BEFORE_BAR = 2.0
_SECONDS_BETWEEN_LOOKS = 0.2
# Errors of some estimates take seconds; looking at them may take this share of the time.
_SHARE_OF_TIME = 0.02


def make_progress_bar(title: str, n_steps: int, *, shown: bool) -> Any:
    """A bar for so many like steps, with the time left; it appears once they take long."""
    return tqdm(
        total=n_steps,
        desc=title,
        disable=not shown,
        delay=_SECONDS_BEFORE_BAR,
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left",
    )


def count_tasks(progress: Progress) -> str:
    """Tasks done so far."""
    return f"{progress.tasks} tasks"


class Bar:
    """A tqdm bar of the share done, with the time left; it appears once a run takes long.

    Parameters
    ----------
    share_done : callable
        From a Progress to how much of the way is done.
    start : Progress
    title : str
    shown : bool
    seconds_per_task : float
        A guess; a bar whose first task will take long is shown at once, and says so.
    describe : callable
        Returns the text behind the bar.
    errors_from : int or None
        Number of tasks from which the bar shows the largest standard error.
    """

    def __init__(
        self,
        share_done: Callable[[Progress], float],
        start: Progress,
        *,
        title: str,
        shown: bool,
        seconds_per_task: float = 0.0,
        describe: Callable[[Progress], str] = count_tasks,
        errors_from: int | None = None,
    ) -> None:
        """Begin where earlier sessions ended."""
        self._share_done = share_done
        self._describe = describe
        self._errors_from = math.inf if errors_from is None else errors_from
        self._errors, self._limiter = "", RateLimiter(_SHARE_OF_TIME)
        self._latest = start
        slow = seconds_per_task >= _SECONDS_BEFORE_BAR
        self._next_look = time.perf_counter() + _SECONDS_BETWEEN_LOOKS
        self._bar = tqdm(
            total=1.0,
            initial=min(share_done(start), 1.0),
            desc=title,
            disable=not shown,
            delay=0.0 if slow else _SECONDS_BEFORE_BAR,
            postfix=f"a task takes about {seconds_per_task:.0f} s" if slow else None,
            smoothing=0.0,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left{postfix}",
        )

    def show(self, progress: Progress) -> None:
        """Show where a run is, unless it was shown a moment ago."""
        self._latest = progress
        if time.perf_counter() >= self._next_look:
            self._draw()

    def close(self) -> None:
        """Show the end and leave the bar as it is."""
        self._draw()
        self._bar.close()

    def _draw(self) -> None:
        if not self._bar.disable:
            self._look_at_errors()
            self._bar.set_postfix_str(self._describe(self._latest) + self._errors, refresh=False)
            self._bar.update(min(self._share_done(self._latest), 1.0) - self._bar.n)
        self._next_look = time.perf_counter() + _SECONDS_BETWEEN_LOOKS

    def _look_at_errors(self) -> None:
        if self._latest.tasks < self._errors_from or not self._limiter.due:
            return
        with self._limiter.measure():
            error = self._latest.largest_standard_error
        self._errors = f", standard errors up to {error:.2g}" if math.isfinite(error) else ""


class RateLimiter:
    """Says when something may be done again, so that it takes no more than a share of the time."""

    def __init__(self, share_of_time: float) -> None:
        """Begin with something that is due."""
        self._share_of_time = share_of_time
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has gone since it was last done."""
        return time.monotonic() >= self._next

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Do it in here; what it takes decides when it is due again."""
        began = time.monotonic()
        yield
        self._next = began + (time.monotonic() - began) / self._share_of_time
