"""Utilities of a run: known ones are reused, missing ones are requested once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Mask
from cellworth.data.io import Plain, add_prefix, pack, remove_prefix, unpack
from cellworth.games.game import FailedUtility, Game, compute_utility
from cellworth.runtime.checkpoint import Loader
from cellworth.runtime.stopping import LOOKUPS_PER_UTILITY, StoppingRule
from cellworth.runtime.workers import leave_if_cancelled
from cellworth.sampling.moments import (
    Deviations,
    Estimate,
    Tally,
    UtilityLog,
    pool_deviations,
)
from cellworth.sampling.samplers import TaskSampler

# A request is about this much work: little is lost if a worker dies, and a run ends soon. Its size
# does not depend on the number of workers.
_SECONDS_PER_REQUEST = 1.0
_UTILITIES_PER_REQUEST = 64
# A task, its coalitions, and its tally without failures.
_OpenTask = tuple[Any, list[bytes], Tally]


class Known(NamedTuple):
    """A known utility, the message if it failed, and its deviations if it has any."""

    utility: float
    message: str | None = None
    deviations: Deviations | None = None

    @classmethod
    def of(cls, utility: float) -> Known:
        """Convert a utility of a game."""
        message = utility.message if isinstance(utility, FailedUtility) else None
        return cls(float(utility), message, getattr(utility, "deviations", None))


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
    _, coalitions = request
    for coalition in coalitions:
        if time.time() >= deadline:
            break
        leave_if_cancelled()
        known = Known.of(compute_utility(game, *_members(coalition, shape)))
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
        self._estimate = estimate
        self._most_utilities = stop.most_utilities
        self.deadline: float = time.time() + stop.most_seconds
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
                names = map(bytes, part["coalitions"])
                self._kept |= dict(zip(names, self.unpack_answer(part), strict=True))
        if state is None:
            return None
        log = self._restore_log(state)
        for task, utilities, deviations in log.entries:
            coalitions = pack_coalitions(task)
            self._met.update(coalitions)
            for coalition, utility, own in zip(
                coalitions, utilities.tolist(), deviations, strict=True
            ):
                self._known[coalition] = Known(utility, None, own)
        self._tally = Tally(new=1).merge(log.tally)
        return log

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
        known = [self._known[coalition] for coalition in coalitions]
        utilities = np.array([each.utility for each in known])
        tally = tally.merge(self._count_failures(coalitions))
        entry = task, utilities, [each.deviations for each in known]
        return UtilityLog([entry], 1, self._estimate, tally)

    def pack_state(self, log: UtilityLog) -> Plain:
        """Return the utilities of all tasks in order; the sampler knows their coalitions."""
        utilities = log.utilities
        deviations, positions = _distinct(log.deviations)
        return {
            "utilities": np.concatenate(utilities),
            "lengths": np.array([len(some) for some in utilities]),
            "deviations": deviations,
            "places": positions,
            **add_prefix("tally", pack(log.tally)),
        }

    def pack_answer(self, request: UtilityRequest, answer: Answer) -> tuple[int, Plain]:
        """Return coalitions as rows of bytes, their utilities, and messages of failures."""
        task, wanted = request
        # The deadline may have come before all utilities were computed.
        coalitions = b"".join(wanted[: len(answer)])
        messages = {str(position): known.message for position, known in enumerate(answer)}
        return task, {
            "coalitions": np.frombuffer(coalitions, np.uint8).reshape(len(answer), len(wanted[0])),
            "utilities": np.array([known.utility for known in answer]),
            "deviations": _stack([known.deviations for known in answer]),
            "messages": {position: text for position, text in messages.items() if text is not None},
        }

    def unpack_answer(self, content: Plain) -> Answer:
        """Read utilities and messages."""
        utilities, messages = content["utilities"].tolist(), content["messages"]
        deviations = _unstack(content["deviations"])
        return tuple(
            Known(each, messages.get(str(position)), deviations[position] if deviations else None)
            for position, each in enumerate(utilities)
        )

    def _restore_log(self, state: Plain) -> UtilityLog:
        lengths = state["lengths"]
        tasks = [self._sampler(number) for number in range(len(lengths))]
        utilities = np.split(state["utilities"], np.cumsum(lengths)[:-1])
        tally = unpack(Tally, remove_prefix("tally", state))
        distinct = _unstack(state["deviations"])
        deviations = [
            [distinct[position] if distinct else None for position in some.tolist()]
            for some in np.split(state["places"], np.cumsum(lengths)[:-1])
        ]
        entries = list(zip(tasks, utilities, deviations, strict=True))
        return UtilityLog(entries, len(entries), self._estimate, tally)

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
        if self._ended or spent > self._most_utilities or time.time() >= self.deadline:
            return None
        self._met.update(coalitions)
        kept = {
            coalition: self._kept.pop(coalition) for coalition in missing if coalition in self._kept
        }
        self._known |= kept
        return task, coalitions, tally, [c for c in missing if c not in kept]

    def _requests(self, number: int, missing: list[bytes]) -> Iterator[tuple[UtilityRequest, Any]]:
        for start in range(0, len(missing), self._per_request):
            if self._ended or time.time() >= self.deadline:
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


def pack_coalitions(pairs: Iterable[tuple[Mask, Mask]]) -> list[bytes]:
    """Return each pair of coalitions as packed bits."""
    sides = [np.array(side) for side in zip(*pairs, strict=True)]
    if not sides:
        return []
    bits: NDArray[np.uint8] = np.packbits(np.concatenate(sides, axis=1), axis=1)
    return [line.tobytes() for line in bits]


def _members(coalition: bytes, shape: tuple[int, int]) -> tuple[Mask, Mask]:
    bits = np.unpackbits(np.frombuffer(coalition, dtype=np.uint8)).astype(bool)
    return bits[: shape[0]], bits[shape[0] : sum(shape)]


def _stack(deviations: list[Deviations | None]) -> Deviations:
    """Return deviations as rows; without columns if some are not known."""
    known = [each for each in deviations if each is not None]
    if len(known) < len(deviations) or not known:
        return np.zeros((len(deviations), 0), dtype=np.float32)
    # The corners have more of them than other utilities of a large run.
    least = min(map(len, known))
    return np.array([pool_deviations(each, least) for each in known])


def _unstack(rows: Deviations) -> list[Deviations]:
    return list(rows) if rows.shape[1] else []


def _distinct(looked_at: list[list[Deviations | None]]) -> tuple[Deviations, NDArray[np.int32]]:
    """Return deviations without repetition, and the position of those of each lookup."""
    own = [each for task in looked_at for each in task]
    # Tasks that use the same utility hold the same array.
    first = {id(each): position for position, each in reversed(list(enumerate(own)))}
    order = {position: number for number, position in enumerate(sorted(first.values()))}
    positions = np.array([order[first[id(each)]] for each in own], dtype=np.int32)
    return _stack([own[position] for position in order]), positions
