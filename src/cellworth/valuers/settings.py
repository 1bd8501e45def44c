"""Settings: how to value a game, checked once; every mistake in them gets its one sentence."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from cellworth.caches import Cache
from cellworth.counts import is_whole
from cellworth.games import Game
from cellworth.provenance import content_hash, described
from cellworth.runtime import (
    Checkpoint,
    DirectoryJournal,
    Executor,
    Outcome,
    Planner,
    Progress,
    StoppingRule,
    run,
    run_shard,
)
from cellworth.semivalues import Semivalue, Shapley


@dataclass(frozen=True)
class Settings:
    """How to value a game, checked: semivalues, where tasks run and are kept, what is shown."""

    row_semivalue: Semivalue
    column_semivalue: Semivalue
    executor: Executor | None
    checkpoint: Checkpoint | None
    shard: tuple[int, int] | None
    progress: bool
    on_round: Callable[[Progress], Any] | None
    cache: Cache | None

    @classmethod
    def checked(
        cls,
        row_semivalue: Any = None,
        column_semivalue: Any = None,
        *,
        executor: Any = None,
        checkpoint: Any = None,
        shard: Any = None,
        progress: bool = True,
        on_round: Any = None,
        cache: Any = None,
    ) -> Settings:
        """Fill in defaults and refuse what does not fit."""
        checkpoint = _checked_checkpoint(checkpoint)
        if on_round is not None and not callable(on_round):
            raise TypeError(f"on_round is {on_round!r}; give a function of a Progress.")
        if shard is not None and cache is not None:
            raise ValueError(
                "a shard leaves its utilities in the checkpoint, where the others find them; give "
                "no cache."
            )
        return cls(
            _checked_semivalue(row_semivalue, "row"),
            _checked_semivalue(column_semivalue, "column"),
            _checked(
                executor, Executor, "executor", "Serial(), Threads(2), Processes(2), Dask(client)"
            ),
            checkpoint,
            None if shard is None else _checked_shard(shard, checkpoint),
            progress,
            on_round,
            _checked(cache, Cache, "cache", "MemoryCache(), FileCache(path)"),
        )

    @property
    def semivalues(self) -> tuple[Semivalue, Semivalue]:
        """Of rows and of columns."""
        return self.row_semivalue, self.column_semivalue

    def question(self, game: Game) -> dict[str, Any]:
        """All that decides the true values."""
        return {
            "row_semivalue": described(self.row_semivalue),
            "column_semivalue": described(self.column_semivalue),
            **_described_game(game),
        }

    def run(
        self,
        work: Callable[[Any], Any],
        *,
        planner: Planner,
        stop: StoppingRule,
        executor: Executor,
        identity: Mapping[str, Any],
        title: str,
        **given: Any,
    ) -> Outcome | None:
        """Run a piece of work as the settings say; a shard of it has no outcome of its own."""
        if self.shard is None:
            return run(
                work, planner=planner, stop=stop, executor=executor, checkpoint=self.checkpoint,
                identity=identity, title=title, show_progress=self.progress,
                on_round=self.on_round, **given,
            )  # fmt: skip
        _refuse_endless_shard(stop, planner)
        assert self.checkpoint is not None  # noqa: S101 (checked with the shard)
        run_shard(
            work, shard=self.shard, planner=planner, stop=stop, executor=executor,
            checkpoint=self.checkpoint, identity=identity, title=title, show_progress=self.progress,
        )  # fmt: skip
        return None


def _refuse_endless_shard(stop: StoppingRule, planner: Planner) -> None:
    limits, rules = [stop.most_tasks], "AfterTasks(n)"
    if planner.counts_utilities:
        limits, rules = [*limits, stop.most_utilities], f"{rules} or AfterUtilities(n)"
    if math.isinf(min(limits)):
        raise ValueError(
            f"{stop!r} depends on what all shards find, so that one of them cannot know where to "
            f"end; join it with {rules}."
        )


def checked_stop(stop: Any) -> StoppingRule:
    """Refuse what is no stopping rule."""
    if not isinstance(stop, StoppingRule):
        raise TypeError(
            f"stop is {stop!r}; give a rule such as AfterTasks(200) or AfterSeconds(60), "
            "joined with | or &."
        )
    return stop


def checked_seed(random_state: Any, checkpoint: Any) -> int:
    """Turn a random_state into the seed that names every task of the run."""
    if checkpoint is not None and not is_whole(random_state):
        raise ValueError(
            "a checkpoint needs random_state to be a whole number, so that a later session draws "
            "the same tasks."
        )
    refuse_other_seed(random_state)
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def refuse_other_seed(random_state: Any) -> None:
    """Refuse what no seed can be had from, also where nothing is drawn."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return
    if not is_whole(random_state):
        raise TypeError(
            f"random_state is {random_state!r}; give a whole number, None or a RandomState."
        )
    if random_state < 0:
        raise ValueError(f"random_state is {random_state}; give a whole number of at least 0.")


def _checked_semivalue(semivalue: Any, side: str) -> Semivalue:
    if semivalue is None:
        return Shapley()
    if isinstance(semivalue, type) or not isinstance(semivalue, Semivalue):
        raise TypeError(
            f"{side}_semivalue is {semivalue!r}; give Shapley(), Banzhaf(), Beta(a, b) "
            "or LeaveOneOut()."
        )
    return semivalue


def _checked_checkpoint(checkpoint: Any) -> Checkpoint | None:
    if isinstance(checkpoint, str | os.PathLike):
        return DirectoryJournal(checkpoint)
    return cast(
        Checkpoint | None,
        _checked(checkpoint, Checkpoint, "checkpoint", '"run1/", MemoryJournal()'),
    )


def _checked_shard(shard: Any, checkpoint: Checkpoint | None) -> tuple[int, int]:
    if not isinstance(shard, tuple | list) or len(shard) != 2 or not all(map(is_whole, shard)):
        raise TypeError(f"shard is {shard!r}; give (i, n), such as (0, 10) for the first of ten.")
    place, n_shards = shard
    if not 0 <= place < n_shards:
        raise ValueError(
            f"shard is {(place, n_shards)}; give (i, n) with i from 0 to n - 1, such as (0, 10) "
            "for the first of ten."
        )
    if not isinstance(checkpoint, DirectoryJournal):
        raise ValueError("a shard leaves its share in a folder; give one as checkpoint.")
    return int(place), int(n_shards)


def _checked(given: Any, protocol: type, called: str, examples: str) -> Any:
    if given is None:
        return None
    if isinstance(given, type) or not isinstance(given, protocol):
        raise TypeError(f"{called} is {given!r}; give one of {examples}.")
    return given


def _described_game(game: Game) -> dict[str, Any]:
    if hasattr(game, "question"):
        # As it will be read from a file, so that a loaded answer can be compared with a new one.
        question: dict[str, Any] = json.loads(json.dumps(game.question(), default=described))
        return question
    name = f"{type(game).__module__}.{type(game).__qualname__}"
    return {"game": name, "content": content_hash(game)}
