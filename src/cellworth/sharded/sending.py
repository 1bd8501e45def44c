"""Tasks on their way to a Dask cluster: under which keys, to whom, and which of them are done."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from cellworth.execution.cluster import Memory, gathered, lost_cluster_explained, sent
from cellworth.execution.crews import Lost, sound, taken
from cellworth.execution.signals import Interrupts
from cellworth.sharded.benches import Bench
from cellworth.sharded.states import Setback
from cellworth.sharded.stations import assigned, stations

# What all others wait for comes before any look at a shard.
_FIRST = 1_000_000
_SECONDS_BETWEEN_COUNTS = 2.0
_SECONDS_TO_WAIT = 1.0

# Name of a task, number of its round, and shard.
Watched = tuple[str, int, int]


class LostOnCluster(Setback):
    """Dask has lost patience with tasks whose workers died, or has dropped them."""


class Sender:
    """Sends the tasks of one attempt, under keys of their own, and hears of those that are done.

    Parameters
    ----------
    client : distributed.Client
    bench : Bench
        Travels once to each worker.
    interrupts : Interrupts
        Signals are let in while others work.
    """

    def __init__(self, client: Any, bench: Bench, interrupts: Interrupts) -> None:
        """Send the bench."""
        self._client, self._interrupts = client, interrupts
        self._run = uuid4().hex
        self._done: queue.SimpleQueue[tuple[Watched, Any]] = queue.SimpleQueue()
        self._flying: dict[Watched, Any] = {}
        self._workers: dict[int, str] = {}
        self._counted = -_SECONDS_BETWEEN_COUNTS
        self._n_shards = bench.phases.n_shards
        parts, self.bench, n_bytes = sent(client, bench, self._run)
        self._memory = Memory(client, n_bytes)
        # Futures may be held by the traceback of an error, so that they must be released by name.
        self._made: WeakSet[Any] = WeakSet([*parts, self.bench])

    def one(
        self, function: Callable[..., Any], name: str, place: str, worker: str, *given: Any
    ) -> Any:
        """Future of a single task, before any look; where it is told to be, if that is there.

        Dask would choose by size, and does not see that of our messages.
        """
        with lost_cluster_explained(self._client):
            future = self._client.submit(
                function,
                *given,
                key=f"{name}-{self._run}-{place}",
                priority=_FIRST,
                workers=[worker],
                allow_other_workers=True,
                pure=False,
            )
        self._made.add(future)
        return future

    def for_shards(
        self,
        function: Callable[..., Any],
        name: str,
        number: int,
        shards: list[int],
        /,
        **given: Any,
    ) -> dict[int, Any]:
        """Futures of the same task for several shards, each where its shard lies."""
        found: dict[int, Any] = {}
        places = {shard: self.workers[shard] for shard in shards}
        for worker, mine in stations(places).items():
            with lost_cluster_explained(self._client):
                futures = self._client.map(
                    function,
                    mine,
                    bench=self.bench,
                    key=[f"{name}-{self._run}-{number}-{shard}" for shard in mine],
                    # Earlier rounds first, and in a round what was looked at before.
                    priority=-2 * number - (name == "settle"),
                    workers=[worker],
                    allow_other_workers=True,
                    pure=False,
                    **given,
                )
            self._made.update(futures)
            found |= dict(zip(mine, futures, strict=True))
        for shard, future in found.items():
            self.watch((name, number, shard), future)
        return found

    def watch(self, what: Watched, future: Any) -> None:
        """Hear of a task when it is done."""
        self._flying[what] = future
        future.add_done_callback(lambda done: self._done.put((what, done)))

    def done(self) -> list[tuple[Watched, Any]]:
        """Wait for watched tasks, if only for a moment; one that failed raises its error."""
        with self._interrupts.allowed():
            found = taken(self._done, _SECONDS_TO_WAIT)
            self._memory.look(waiting=not found)
        # Others have been dropped.
        found = [(what, future) for what, future in found if self._flying.pop(what, None)]
        for _, future in found:
            if future.status != "finished":
                self.answer_of(future)
        return found

    def drop_after(self, number: int) -> None:
        """Let go of all that is not done of later rounds."""
        for what in [what for what in self._flying if what[1] > number]:
            self._flying.pop(what).release()

    @property
    def workers(self) -> dict[int, str]:
        """The worker of each shard; now and then it is seen who is still there."""
        if time.monotonic() - self._counted >= _SECONDS_BETWEEN_COUNTS or not self._workers:
            while not (n_threads := self._n_threads()):
                with self._interrupts.allowed():
                    self._memory.look(waiting=True)
                    time.sleep(_SECONDS_TO_WAIT)
            self._workers = assigned(self._n_shards, n_threads, self._workers)
            self._counted = time.monotonic()
        return self._workers

    def _n_threads(self) -> dict[str, int]:
        with lost_cluster_explained(self._client):
            return dict(self._client.nthreads())

    def close(self) -> None:
        """Let go of everything: what has not begun will not, and what runs is not waited for."""
        # Not cancelled: Dask trips over tasks that nobody but other tasks waits for.
        if self._client.status == "running":
            for future in list(self._made):
                future.release()

    def answer_of(self, future: Any) -> Any:
        """Return what a task answered, or raise what became of it."""
        answer = gathered(future, self._memory)
        if isinstance(answer, Lost):
            raise LostOnCluster(f"workers died ({answer.error})") from answer.error
        return sound(answer)
