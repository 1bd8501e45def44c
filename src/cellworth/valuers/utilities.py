"""Utilities of a run: known ones are reused, missing ones are requested once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Mask
from cellworth.data.io import Plain, add_prefix, pack, remove_prefix, unpack
from cellworth.games.game import FailedUtility, Game, compute_utility
from cellworth.runtime.checkpoint import Loader
from cellworth.runtime.stopping import LOOKUPS_PER_UTILITY, StoppingRule
from cellworth.runtime.workers import leave_if_cancelled
from cellworth.sampling.designed_tasks import DesignedTasks
from cellworth.sampling.estimators import GaussianProcess, Semivalues, Shape
from cellworth.sampling.moments import (
    Deviations,
    Estimate,
    Tally,
    pool_deviations,
)
from cellworth.sampling.samplers import CoalitionPairs, TaskSampler
from cellworth.valuation.known_utilities import Utilities
from cellworth.valuers.utility_log import UtilityLog

# A request is about this much work: little is lost if a worker dies, and a run ends soon. Its size
# does not depend on the number of workers.
_SECONDS_PER_REQUEST = 1.0
_UTILITIES_PER_REQUEST = 64
# A task, its coalitions, and its tally without failures.
_OpenTask = tuple[Any, list[bytes], Tally]
# A task, the utilities of its coalitions, and their deviations.
LogEntry = tuple[Any, NDArray[np.float64], list[Deviations | None]]


class Known(NamedTuple):
    """A known utility, its deviations if it has any, and the message if it failed."""

    utility: float
    deviations: Deviations | None = None
    message: str | None = None

    @classmethod
    def of(cls, utility: float) -> Known:
        """Convert a utility of a game."""
        message = utility.message if isinstance(utility, FailedUtility) else None
        return cls(float(utility), getattr(utility, "deviations", None), message)


# Utilities in the order of the request; fewer if the deadline came first.
Answer = tuple[Known, ...]


# A task, and pairs of coalitions of it whose utilities are not yet known.
UtilityRequest = tuple[int, tuple[bytes, ...]]


def look_up(
    game: Game,
    shape: tuple[int, int],
    most_deviations: int,
    deadline: float,
    request: UtilityRequest,
) -> Answer:
    """Compute one utility of a request after the other until the deadline."""
    found = []
    for coalition in request[1]:
        if time.time() >= deadline:
            break
        leave_if_cancelled()
        bits = np.unpackbits(np.frombuffer(coalition, dtype=np.uint8)).astype(bool)
        known = Known.of(compute_utility(game, bits[: shape[0]], bits[shape[0] : sum(shape)]))
        if known.deviations is not None:
            pooled = pool_deviations(known.deviations, most_deviations)
            known = known._replace(deviations=pooled)
        found.append(known)
    return tuple(found)


class UtilityPlanner:
    """The planner of a run of utilities: known ones are reused, others are requested once.

    A utility is not requested again while another task waits for it: tasks are folded in order, so
    that the answer is there when it is needed. Which utilities a run uses, and so where its budget
    ends, does not depend on the number of workers. The limits of ``stop`` on utilities and seconds
    hold within a task. A utility takes about ``seconds``. ``known`` are the utilities of full and
    empty coalitions.
    """

    keeps_deadlines: ClassVar[bool] = True

    def __init__(
        self,
        sampler: TaskSampler,
        estimate: Estimate,
        stop: StoppingRule,
        *,
        seconds: float = 0.0,
        known: Mapping[bytes, Known],
    ) -> None:
        self._sampler = sampler
        # Its pairs were chosen by floats, which may differ between processors.
        self._designed = sampler if isinstance(sampler, DesignedTasks) else None
        self._estimate = estimate
        self._most_utilities = stop.most_utilities
        # Workers elsewhere only share the time of day; here it may be set while a run goes on.
        self.deadline: float = time.time() + stop.most_seconds
        self._ends: float = time.monotonic() + stop.most_seconds
        self._known = dict(known)
        self._met = set(self._known)
        self._kept: dict[bytes, Known] = {}
        self._open: dict[int, _OpenTask] = {}
        # Requests of each open task that are not answered.
        self._n_waiting: dict[int, int] = {}
        # The whole table has been paid for.
        self._tally = Tally(new=1)
        self._ended, self._came_short = False, False
        most = _SECONDS_PER_REQUEST / seconds if seconds > 0 else math.inf
        self._per_request = int(max(1, min(_UTILITIES_PER_REQUEST, most)))

    def resume(
        self, state: Plain | None, answers: Iterable[tuple[int, Loader]]
    ) -> UtilityLog | None:
        """Load the utilities of finished tasks, and answers of others."""
        for _, load in answers:
            part = load()
            if part is not None:
                self._kept |= self._unpack(part)
        if state is None:
            return None
        known, tally = self._unpack(state), unpack(Tally, remove_prefix("tally", state))
        self._known |= known
        self._met.update(known)
        self._tally = Tally(new=1).merge(tally)
        if self._designed:
            self._designed.restore(state["pairs"])
        tasks = map(self._sampler, range(state["tasks"]))
        entries = [self._complete(task, pack_coalitions(task)) for task in tasks]
        return UtilityLog(entries, len(entries), self._estimate, tally)

    def make_requests(self, number: int) -> Iterable[tuple[UtilityRequest, Any]] | None:
        """Return requests for the unknown utilities of a task; None if the budget is spent."""
        met = self._meet(number)
        if met is None:
            return None
        task, coalitions, tally, missing = met
        n_requests = -(-len(missing) // self._per_request)
        self._open[number] = task, coalitions, tally
        self._n_waiting[number] = max(n_requests, 1)
        if not missing:
            return [((number, ()), ())]
        return self._requests(number, missing)

    def add_answer(self, request: UtilityRequest, answer: Answer) -> UtilityLog | None:
        """Store utilities; once a task has all of its utilities, return its contribution."""
        number, wanted = request
        found = dict(zip(wanted, answer, strict=False))
        self._known |= found
        # Tasks are folded in order: after an incomplete one, none can be.
        self._came_short |= len(found) < len(wanted)
        self._ended |= self._came_short
        self._n_waiting[number] -= 1
        if self._came_short or self._n_waiting[number]:
            return None
        del self._n_waiting[number]
        task, coalitions, tally = self._open.pop(number)
        tally = tally.merge(self._count_failures(coalitions))
        return UtilityLog([self._complete(task, coalitions)], 1, self._estimate, tally)

    def pack_state(self, log: UtilityLog) -> Plain:
        """Return the distinct utilities of all tasks; the sampler knows which tasks these are."""
        return {
            **_pack_known(read_log(log)),
            "tasks": log.n_tasks,
            "pairs": self._designed.pack() if self._designed else np.zeros((0, 0), np.uint8),
            **add_prefix("tally", pack(log.tally)),
        }

    def pack_answer(self, request: UtilityRequest, answer: Answer) -> tuple[int, Plain]:
        """Return coalitions with their utilities, and messages of failures."""
        task, wanted = request
        # The deadline may have come before all utilities were computed.
        return task, _pack_known(dict(zip(wanted, answer, strict=False)))

    def unpack_answer(self, content: Plain) -> Answer:
        """Read utilities and messages."""
        rows = content["deviations"]
        deviations = list(rows) if rows.shape[1] else [None] * len(rows)
        messages = (content["messages"].get(str(position)) for position in range(len(rows)))
        return tuple(map(Known, content["utilities"].tolist(), deviations, messages))

    def _unpack(self, content: Plain) -> dict[bytes, Known]:
        names = map(bytes, content["coalitions"])
        return dict(zip(names, self.unpack_answer(content), strict=True))

    def _complete(self, task: Any, coalitions: list[bytes]) -> LogEntry:
        """Return a task with the utilities and deviations of its coalitions."""
        known = [self._known[coalition] for coalition in coalitions]
        return task, np.array([each.utility for each in known]), [each.deviations for each in known]

    def _meet(self, number: int) -> tuple[Any, list[bytes], Tally, list[bytes]] | None:
        """Return a task, its coalitions, its tally, and the coalitions to be requested."""
        task = self._sampler(number)
        pairs = list(task)
        coalitions = pack_coalitions(pairs)
        # Neither known nor requested.
        missing = [
            c for c in dict.fromkeys(coalitions) if c not in self._known and c not in self._met
        ]
        new = {
            coalition
            for coalition, (rows, columns) in zip(coalitions, pairs, strict=True)
            if coalition not in self._met and rows.any() and columns.any()
        }
        tally = Tally(len(pairs), new=len(new), reused=len(pairs) - len(missing))
        self._tally = self._tally.merge(tally)
        spent = max(self._tally.new, self._tally.utilities / LOOKUPS_PER_UTILITY)
        if self._ended or spent > self._most_utilities or time.monotonic() >= self._ends:
            return None
        self._met.update(coalitions)
        kept = {
            coalition: self._kept.pop(coalition) for coalition in missing if coalition in self._kept
        }
        self._known |= kept
        return task, coalitions, tally, [c for c in missing if c not in kept]

    def _requests(self, number: int, missing: list[bytes]) -> Iterator[tuple[UtilityRequest, Any]]:
        for start in range(0, len(missing), self._per_request):
            if self._ended or time.monotonic() >= self._ends:
                self._ended = True
                return
            wanted = tuple(missing[start : start + self._per_request])
            yield (number, wanted), None

    def _count_failures(self, coalitions: list[bytes]) -> Tally:
        """Return the tally of failures that no earlier task has reported."""
        failed = []
        for coalition in dict.fromkeys(coalitions):
            known = self._known[coalition]
            if known.message is not None:
                failed.append(known.message)
                self._known[coalition] = known._replace(message=None)
        return Tally(failed=len(failed), messages=tuple(failed))


def read_log(log: UtilityLog) -> dict[bytes, Known]:
    """Return the utility of each coalition of the log's tasks, in order."""
    known: dict[bytes, Known] = {}
    for task, utilities, deviations in log.entries[: log.n_tasks]:
        found = (Known(*each) for each in zip(utilities.tolist(), deviations, strict=True))
        known |= dict(zip(pack_coalitions(task), found, strict=True))
    return known


class KnownCoalitions(GaussianProcess):
    """Estimate values from coalitions that were evaluated before, as many as a process can read."""

    most_utilities: ClassVar[float] = math.inf

    def __init__(self, utilities: Utilities) -> None:
        rows, columns = utilities.rows, utilities.columns
        no_rows, no_columns = ~rows.any(axis=1), ~columns.any(axis=1)
        # The process reads interactions, which need both coalitions of a pair alone.
        alone = set(map(bytes, rows[no_columns])), set(map(bytes, columns[no_rows]))
        pairs = zip(map(bytes, rows), map(bytes, columns), strict=True)
        both = np.asarray(~no_rows & ~no_columns)
        usable = both & [one in alone[0] and other in alone[1] for one, other in pairs]
        if 2 * usable.sum() < both.sum():
            raise ValueError(
                f"for {both.sum() - usable.sum():,} of {both.sum():,} coalitions it is not known "
                "what their rows and their columns are worth alone; value the game itself once "
                "more, with estimator=GaussianProcess(), whose runs evaluate this, too."
            )
        kept = ~both | (usable & (np.cumsum(usable) <= super().most_utilities))
        self._pairs = CoalitionPairs(rows[kept], columns[kept])

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Return a sampler whose only task has all pairs; raise an error if players are many."""
        super().make_sampler(shape, semivalues, seed)
        return OneTask(self._pairs, len(self._pairs.rows))


def check_sampler(sampler: Any) -> TaskSampler:
    """Return the sampler of an estimator; raise TypeError if it is none."""
    if not callable(sampler) or not hasattr(sampler, "utilities_per_task"):
        raise TypeError(
            "make_sampler must return an object with utilities_per_task whose call with the number "
            f"of a task returns its pairs of coalitions, got {sampler!r}."
        )
    return cast(TaskSampler, sampler)


class OneTask(NamedTuple):
    """A single task of given pairs."""

    pairs: CoalitionPairs
    utilities_per_task: float

    def __call__(self, task: int) -> CoalitionPairs:
        """Return all pairs."""
        return self.pairs


def _pack_known(known: Mapping[bytes, Known]) -> Plain:
    messages = enumerate(each.message for each in known.values())
    return {
        **dict(zip(("coalitions", "utilities", "deviations"), pack_utilities(known), strict=True)),
        "messages": {str(position): text for position, text in messages if text is not None},
    }


def pack_utilities(
    known: Mapping[bytes, Known],
) -> tuple[NDArray[np.uint8], NDArray[np.float64], Deviations]:
    """Return coalitions as rows of bytes, their utilities, and deviations."""
    n_bytes = len(next(iter(known), b""))
    return (
        np.frombuffer(b"".join(known), np.uint8).reshape(len(known), n_bytes),
        np.array([each.utility for each in known.values()]),
        _stack([each.deviations for each in known.values()]),
    )


def pack_coalitions(pairs: Iterable[tuple[Mask, Mask]]) -> list[bytes]:
    """Return each pair of coalitions as packed bits."""
    sides = [np.array(side) for side in zip(*pairs, strict=True)]
    if not sides:
        return []
    bits: NDArray[np.uint8] = np.packbits(np.concatenate(sides, axis=1), axis=1)
    return [line.tobytes() for line in bits]


def _stack(deviations: list[Deviations | None]) -> Deviations:
    """Return deviations as rows; without columns if some are not known."""
    known = [each for each in deviations if each is not None]
    if len(known) < len(deviations) or not known:
        return np.zeros((len(deviations), 0), dtype=np.float32)
    # The corners have more of them than other utilities of a large run.
    least = min(map(len, known))
    return np.array([pool_deviations(each, least) for each in known])
