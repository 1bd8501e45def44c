"""Settings of a run, checked once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellworth.data.arguments import RandomState, check_random_state, is_integer
from cellworth.data.io import content_hash, describe
from cellworth.games.game import Game
from cellworth.runtime.checkpoint import DirectoryCheckpoint
from cellworth.runtime.executors import Executor
from cellworth.runtime.run_settings import Runtime, check_runtime, choose_thread_executor
from cellworth.runtime.stopping import StoppingRule
from cellworth.sampling.semivalues import Semivalue, Shapley

# One semivalue for rows and columns, or a pair for each; None means Shapley().
Semivalues = Semivalue | tuple[Semivalue | None, Semivalue | None] | None


@dataclass(frozen=True)
class Settings:
    """How to value a game, checked: semivalues, and where and how the run is executed."""

    row_semivalue: Semivalue
    column_semivalue: Semivalue
    n_jobs: int | None
    runtime: Runtime
    checkpoint: DirectoryCheckpoint | None
    # Name and parameters of the valuer as text; None for a game without one.
    valuer: dict[str, str] | None = None

    @classmethod
    def of(
        cls,
        semivalue: Any = None,
        *,
        n_jobs: Any = None,
        runtime: Any = None,
        valuer: dict[str, str] | None = None,
    ) -> Settings:
        """Fill in defaults and check all parameters."""
        where = check_runtime(runtime, n_jobs)
        return cls(*_check_semivalues(semivalue), n_jobs, where, where.open_checkpoint(), valuer)

    @property
    def semivalues(self) -> tuple[Semivalue, Semivalue]:
        """Semivalues of rows and of columns."""
        return self.row_semivalue, self.column_semivalue

    @property
    def threads(self) -> Executor:
        """The user's executor, or the default one of tasks that need no processes."""
        return self.runtime.executor or choose_thread_executor(self.n_jobs)

    def problem_spec(self, game: Game) -> dict[str, Any]:
        """Return everything that determines the true values."""
        return {
            "row_semivalue": describe(self.row_semivalue),
            "column_semivalue": describe(self.column_semivalue),
            **_make_game_spec(game),
        }


def check_flag(flag: Any, called: str) -> bool:
    """Return a parameter that must be True or False."""
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{called} must be True or False, got {flag!r}.")
    return bool(flag)


def check_stop(stop: Any) -> StoppingRule:
    """Return the stopping rule, or raise TypeError."""
    if not isinstance(stop, StoppingRule):
        raise TypeError(
            f"stop must be a rule such as MaxTasks(200) or MaxSeconds(60), or rules combined with "
            f"| or &, got {stop!r}."
        )
    return stop


def draw_seed(random_state: RandomState, runtime: Runtime | None) -> int:
    """Return the seed of the run."""
    if runtime is not None and runtime.checkpoint is not None and not is_integer(random_state):
        raise ValueError(
            f"random_state must be an integer with a checkpoint, got {random_state!r}; a later "
            "session then draws the same tasks."
        )
    return check_random_state(random_state)


def _check_semivalues(semivalue: Any) -> tuple[Semivalue, Semivalue]:
    """Return the semivalues of rows and of columns."""
    pair = semivalue if isinstance(semivalue, tuple) else (semivalue, semivalue)
    pair = tuple(Shapley() if side is None else side for side in pair)
    # A class has the methods of its instances, too.
    are_semivalues = all(
        isinstance(side, Semivalue) and not isinstance(side, type) for side in pair
    )
    if len(pair) != 2 or not are_semivalues:
        raise TypeError(
            "semivalue must be Shapley(), Banzhaf(), Beta(a, b), LeaveOneOut() or a pair of them "
            f"for rows and columns, got {semivalue!r}."
        )
    return pair


def _make_game_spec(game: Game) -> dict[str, Any]:
    if hasattr(game, "problem_spec"):
        # As it will be read from a file, so that loaded specs can be compared with new ones.
        problem_spec: dict[str, Any] = json.loads(json.dumps(game.problem_spec(), default=describe))
        return problem_spec
    name = f"{type(game).__module__}.{type(game).__qualname__}"
    return {"game": name, "content": content_hash(game)}
