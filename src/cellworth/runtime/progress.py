"""How far a run is: Progress, the bar in a terminal, lines in the log, the file in a checkpoint."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from tqdm import TqdmWarning

from cellworth.data.io import AnyPath, read_json, write_atomically
from cellworth.runtime.forecast import Forecast, format_seconds
from cellworth.sampling.moments import Addition, Moments, Tally, widening

with warnings.catch_warnings():
    # In a notebook without widgets tqdm warns that it falls back to text.
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm
_SECONDS_BEFORE_BAR = 2.0
_CELLS_AT_ONCE = 2**16
_SECONDS_BETWEEN_UPDATES = 0.2
_SECONDS_BETWEEN_LINES = 30.0
# Some standard errors take seconds to compute; the bar spends at most this share of the time.
_SHARE_OF_TIME = 0.02
# File of a checkpoint that holds the latest line of progress.
PROGRESS = "progress.json"
# Workers that start together finish their first tasks within this factor of the time.
_FIRST_ANSWERS = 1.1
_log = logging.getLogger(__name__)
# Runs of this process, the latest last.
_reporters: list[ProgressReporter] = []


@dataclass(frozen=True)
class BlockErrors:
    """Statistics of the errors of all blocks."""

    # The fewest observations of a block.
    fewest: int
    # The largest standard error, wider for few observations; infinite while any is unknown.
    largest: float
    # Mean of the squared standard errors.
    mean_square: float
    # Mean of the squared validation errors; NaN if they are not known.
    validation: float = math.nan
    # Share of the finished tasks that they include.
    share: float = 1.0

    @classmethod
    def of(cls, moments: Moments, validation: float = math.nan, share: float = 1.0) -> BlockErrors:
        """Compute the statistics of moments with sums of rows and columns."""
        n_rows, n_columns = (size - 1 for size in moments.mean.shape)
        fewest, largest, squares = math.inf, 0.0, 0.0
        # Some rows at a time: the moments of all blocks may be most of the memory.
        step = max(_CELLS_AT_ONCE // n_columns, 1)
        for start in range(0, n_rows, step):
            rows = slice(start, min(start + step, n_rows)), slice(n_columns)
            some = Moments(moments.count[rows], moments.mean[rows], moments.sum_sq[rows])
            errors = some.sampling_se
            fewest = min(fewest, int(some.count.min()))
            # A maximum with NaN is NaN.
            largest = float(np.maximum(largest, (errors * widening(some.count)).max()))
            squares += float((errors**2).sum())
        n_blocks = n_rows * n_columns
        return cls(
            int(fewest),
            math.inf if math.isnan(largest) else largest,
            squares / n_blocks,
            validation,
            share,
        )


# What is known of a run over shards, whose values stay in files: counts of utilities, and errors of
# blocks, which are None while a pass over all validation rows is unfinished.
ShardSummary = tuple[Tally, BlockErrors | None]


@dataclass(frozen=True)
class Progress:
    """The state of a run between two tasks.

    Parameters
    ----------
    tasks : int
        Finished tasks, earlier sessions included.
    seconds : float
        Seconds since this session began.
    contribution : Addition or None
        Folded contributions of all finished tasks; None before the first, and for a table in
        shards.
    shards : tuple or None
        Of a run over shards: counts of utilities, and statistics of errors if they are known.

    See Also
    --------
    cellworth.Runtime, StoppingRule

    Examples
    --------
    >>> from cellworth import Runtime, value_game
    >>> from cellworth.games import TableGame
    >>> from cellworth.runtime import MaxTasks
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> history, rule = [], MaxTasks(64)
    >>> runtime = Runtime(on_round=history.append)
    >>> valuation = value_game(game, (3, 3), stop=rule, random_state=0, runtime=runtime)
    >>> [progress.tasks for progress in history]
    [16, 32, 48, 64]
    >>> [round(rule.share_done(progress), 2) for progress in history]
    [0.25, 0.5, 0.75, 1.0]
    """

    tasks: int
    seconds: float
    contribution: Addition | None
    shards: ShardSummary | None = None

    def after(self, contribution: Addition, seconds: float) -> Progress:
        """Return the progress after one more task is folded."""
        before = self.contribution
        folded = contribution if before is None else before.merge(contribution)
        return Progress(self.tasks + 1, seconds, folded)

    @property
    def tally(self) -> Tally:
        """Counts of utilities."""
        if self.shards is not None:
            return self.shards[0]
        return Tally() if self.contribution is None else self.contribution.tally

    @property
    def utilities(self) -> int:
        """Number of distinct utilities that the run has evaluated."""
        return self.tally.new

    @property
    def moments(self) -> Moments | None:
        """Moments per block, including the sums of rows and columns; None for shards."""
        return None if self.contribution is None else self.contribution.moments

    @property
    def errors(self) -> BlockErrors | None:
        """Statistics of the errors of blocks; None while nothing is known."""
        if self.shards is not None:
            return self.shards[1]
        return None if self.moments is None else BlockErrors.of(self.moments)

    @property
    def latest_errors(self) -> BlockErrors | None:
        """Statistics with validation errors, maybe of fewer tasks; None while nothing is known."""
        if self.shards is not None:
            return self.shards[1]
        if self.contribution is None:
            return None
        return BlockErrors.of(*self.contribution.latest_errors())

    @property
    def largest_standard_error(self) -> float:
        """Largest standard error of a block; infinite while any is unknown."""
        return math.inf if self.errors is None else self.errors.largest


def count_tasks(progress: Progress) -> str:
    """Return the number of finished tasks as text."""
    return f"{progress.tasks} tasks"


class ProgressReporter:
    """Reports how far a run is: a bar in a terminal or notebook, and lines in the log.

    The log (logger ``cellworth``) gets a line at the start, every 30 seconds and at the end. Its
    records have the fields event, title and those of a _Snapshot. Without a terminal and without a
    log, the lines of every 30 seconds go to stderr.

    Progress is a number of tasks out of ``n_tasks``, or a share that ``share_done`` computes.
    ``describe`` returns the text behind the bar. From ``errors_from`` tasks on, the largest
    standard error is reported. ``before`` is what earlier sessions have done. The first line shows
    ``where`` the run is executed and recorded. The latest line is kept in ``file`` (see
    :func:`read_progress`). ``forecast`` is shown before the first task if the run is long, and is
    the time left until tasks have been timed.
    """

    def __init__(
        self,
        title: str,
        *,
        shown: bool,
        n_tasks: int = 0,
        share_done: Callable[[Progress], float] | None = None,
        before: Progress | None = None,
        describe: Callable[[Progress], str] = count_tasks,
        errors_from: int | None = None,
        where: Mapping[str, object] | None = None,
        file: AnyPath | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        self._n_tasks, self._forecast = n_tasks, forecast
        self._file, self._title, self._where = file, title, where or {}
        self._share_done, self._describe = share_done or self._count_share, describe
        self._errors_from = math.inf if errors_from is None else errors_from
        self._error, self._limiter = math.inf, RateLimiter(_SHARE_OF_TIME)
        self._began = self._updated = time.perf_counter()
        self._latest = self._before = before or Progress(0, 0.0, None)
        self._share_before = min(self._share_done(self._latest), 1.0)
        self._has_estimate, self._closed = False, threading.Event()
        self._thread: threading.Thread | None = None
        # When the first tasks of all workers were done, from which the time left is measured.
        self._first_done: float | None = None
        self._base = 0.0, self._share_before
        self._snapshot = self._take_snapshot()
        has_bar = shown and _is_interactive()
        self._prints = shown and not has_bar and sys.stderr is not None
        is_long = forecast is not None and forecast.is_long
        self._bar = tqdm(
            total=1.0,
            initial=self._share_before,
            desc=title,
            disable=not has_bar,
            delay=0.0 if is_long else _SECONDS_BEFORE_BAR,
            postfix=", ".join(self._snapshot.texts()) if is_long else None,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}",
        )

    def advance(self, n_tasks: int = 1) -> None:
        """Report that more tasks are done."""
        seconds = time.perf_counter() - self._began
        self.show(Progress(self._latest.tasks + n_tasks, seconds, None))

    def show(self, progress: Progress) -> None:
        """Report the progress, unless it was reported a moment ago."""
        self._latest = progress
        if time.perf_counter() - self._updated >= _SECONDS_BETWEEN_UPDATES:
            self._update()

    def announce(self, event: str, text: str) -> None:
        """Log something that happens during the run; show it to those who see the progress."""
        self.log(event, text)
        if not self._bar.disable:
            tqdm.write(f"{self._title}: {text}", file=sys.stderr)
        else:
            self._print(text)

    def __enter__(self) -> Self:
        _reporters.append(self)
        where = {name: str(value) for name, value in self._where.items() if value is not None}
        texts = [f"{name} {value}" for name, value in where.items()]
        self.log("start", ", ".join(["started", *texts]), **where)
        self._record("start")
        if self._forecast is not None and self._forecast.is_long:
            self.announce("forecast", str(self._forecast))
        if self._before.tasks:
            found = f"resumed after {self._describe(self._before)} ({self._share_before:.0%})"
            self.log("resume", found, tasks=self._before.tasks, done=self._share_before)
        if self._prints or self._file is not None or _log.isEnabledFor(logging.INFO):
            self._thread = threading.Thread(
                target=self._repeat, name="cellworth-progress", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        _reporters.remove(self)
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._update(last=True)
        self._bar.close()
        state = self._snapshot
        spent = f"{', '.join(state.texts())}, {format_seconds(state.seconds)}"
        self._record("end" if error is None else "failed")
        if error is None:
            self.log("end", f"ended: {spent}", **asdict(state))
        else:
            reason = f"{type(error).__name__}: {error}"
            self.log("failed", f"failed: {reason} ({spent})", reason=reason, **asdict(state))

    def log(self, event: str, text: str, **fields: object) -> None:
        """Write a line to the log."""
        extra = {"event": event, "title": self._title, **fields}
        _log.info("%s: %s", self._title, text, extra=extra)

    def _record(self, event: str) -> None:
        """Keep the latest state in the file."""
        if self._file is None:
            return
        state = self._snapshot.move_to(time.perf_counter() - self._began)
        content = {
            "event": event,
            "title": self._title,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            **asdict(state),
        }
        # The run does not need it: a full disk shows elsewhere.
        with suppress(OSError), write_atomically(self._file, durable=False) as file:
            file.write(json.dumps(content, indent=1).encode())

    def _repeat(self) -> None:
        """Report the latest state every 30 seconds, even if the first task takes longer."""
        while not self._closed.wait(_SECONDS_BETWEEN_LINES):
            state = self._snapshot.move_to(time.perf_counter() - self._began)
            self.log("progress", str(state), **asdict(state))
            self._record("progress")
            self._print(str(state))

    def _print(self, text: str) -> None:
        if self._prints and not _has_listener():
            sys.stderr.write(f"{self._title}: {text}\n")
            sys.stderr.flush()

    def _update(self, *, last: bool = False) -> None:
        self._updated = time.perf_counter()
        is_logged, is_due = _log.isEnabledFor(logging.INFO), self._limiter.due
        is_heard = is_logged or self._prints or self._file is not None or not self._bar.disable
        if not is_heard or not (is_due or last):
            return
        with self._limiter.measure():
            if self._latest.tasks >= self._errors_from and (is_due or is_logged):
                self._error = self._latest.largest_standard_error
            self._snapshot = state = self._take_snapshot()
        if not self._bar.disable:
            self._bar.set_postfix_str(", ".join(state.texts()), refresh=False)
            self._bar.update(state.done - self._bar.n)
        if not self._has_estimate and state.seconds_left and state.seconds >= _SECONDS_BEFORE_BAR:
            # The time left is news that need not wait for 30 seconds.
            self._has_estimate = True
            self.log("progress", str(state), **asdict(state))

    def _count_share(self, progress: Progress) -> float:
        return progress.tasks / self._n_tasks if self._n_tasks else 0.0

    def _take_snapshot(self) -> _Snapshot:
        progress, seconds = self._latest, time.perf_counter() - self._began
        share = min(self._share_done(progress), 1.0)
        return _Snapshot(
            seconds,
            share,
            progress.tasks,
            self._describe(progress),
            self._estimate_seconds_left(seconds, share),
            self._error if math.isfinite(self._error) else None,
        )

    def _estimate_seconds_left(self, seconds: float, share: float) -> float | None:
        """Estimate the time left; workers that start and compile kernels do not enter it."""
        if share > self._share_before and self._first_done is None:
            self._first_done = seconds
        if self._first_done is not None and seconds <= _FIRST_ANSWERS * self._first_done:
            # The other workers, which began at the same time, finish their first tasks, too.
            self._base = seconds, share
        if share > self._base[1]:
            return (seconds - self._base[0]) * (1.0 - share) / (share - self._base[1])
        if self._forecast is None or not self._forecast.is_long:
            return None
        return max(self._forecast.seconds * (1.0 - self._share_before) - seconds, 0.0) or None


@dataclass(frozen=True)
class _Snapshot:
    """What is known of a run at a moment: the main thread computes it, another one reports it."""

    seconds: float
    done: float
    tasks: int
    count: str
    seconds_left: float | None
    error: float | None

    def move_to(self, seconds: float) -> _Snapshot:
        """Return what is known some seconds later, if nothing else has happened."""
        left = self.seconds_left
        left = None if left is None else max(left - (seconds - self.seconds), 0.0)
        return replace(self, seconds=seconds, seconds_left=left)

    def texts(self) -> Iterator[str]:
        """Yield the time left, the finished tasks and the errors, as far as they are known."""
        if self.seconds_left:
            yield f"{format_seconds(self.seconds_left)} left"
        yield self.count
        if self.error is not None:
            yield f"standard errors up to {self.error:.2g}"

    def __str__(self) -> str:
        spent = f"{self.done:.0%} done after {format_seconds(self.seconds)}"
        return ", ".join([spent, *self.texts()])


def _is_interactive() -> bool:
    """Return whether stderr is a terminal, or a notebook shows it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is not None:
        return True
    return sys.stderr is not None and sys.stderr.isatty()


def _has_listener() -> bool:
    """Return whether a handler other than NullHandler gets the lines of the log."""
    logger: logging.Logger | None = _log if _log.isEnabledFor(logging.INFO) else None
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


class RateLimiter:
    """Limits an action to a share of the time."""

    def __init__(self, share_of_time: float) -> None:
        self._share_of_time = share_of_time
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the last action."""
        return time.monotonic() >= self._next

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure the action in this context; its duration decides when it is due again."""
        began = time.monotonic()
        yield
        self._next = began + (time.monotonic() - began) / self._share_of_time


def announce(event: str, text: str) -> None:
    """Announce something through the run of this process that began last; else only log it."""
    if _reporters:
        _reporters[-1].announce(event, text)
    else:
        _log.info(text, extra={"event": event})


def read_progress(folder: AnyPath) -> dict[str, Any] | None:
    """Return the progress that a run has left in its checkpoint, if any."""
    path = folder / PROGRESS
    return read_json(path) if path.exists() else None


class CheckpointLog:
    """Logs that a checkpoint is written: the first time, and then every 30 seconds at most."""

    def __init__(self) -> None:
        self._next = 0.0

    def record(self, checkpoint: object, **done: int) -> None:
        """Log that the checkpoint contains so many tasks or rounds."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
        contents = ", ".join(f"{number} {name}" for name, number in done.items())
        fields = {"event": "checkpoint", "checkpoint": str(checkpoint), **done}
        _log.info("%s: %s written", checkpoint, contents, extra=fields)
