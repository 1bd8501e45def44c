"""ShardedKNNValuer: values for nearest neighbors of a table in shards."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from cellworth.data.blocks import Axis, Blocks, NumberedAxis
from cellworth.knn.algorithms import KNNShardAlgorithm
from cellworth.knn.binned import BinnedRanks, Ranker, sample_places
from cellworth.knn.knn_game import ShardedKNNGame
from cellworth.knn.shard_data import PreparedShards
from cellworth.knn.tasks import Questions
from cellworth.runtime.checkpoint import DirectoryCheckpoint
from cellworth.runtime.executors import Executor
from cellworth.runtime.rounds import run_rounds
from cellworth.runtime.shard_algorithm import ShardRunResult
from cellworth.sampling.moments import Tally
from cellworth.sampling.passes import Spread, Sweeps
from cellworth.sampling.semivalues import Semivalue
from cellworth.valuation.provenance import Provenance, Session, environment
from cellworth.valuation.sharded_valuation import ShardedValuation, StoredMoments
from cellworth.valuation.storage import ValueFile
from cellworth.valuers.run import scores_of_queries


@dataclass(frozen=True, eq=False)
class ShardedRun:
    """A run over the shards of a table.

    Parameters
    ----------
    game : ShardedKNNGame
    questions : Questions
    row_semivalue : Semivalue
    bins : BinnedRanks
    sweeps : int
    executor : Executor
    folder : path or None
        Where the run is kept, and its result; None: the result lives as long as the Valuation.
    """

    game: ShardedKNNGame
    questions: Questions
    row_semivalue: Semivalue
    bins: BinnedRanks
    sweeps: int
    executor: Executor
    folder: Path | None

    def value(
        self,
        columns: Axis,
        problem_spec: dict[str, Any],
        method: dict[str, Any],
        *,
        show_progress: bool,
    ) -> ShardedValuation:
        """Run all rounds and put the results of shards together."""
        identity = self._identity(problem_spec, method)
        if self.folder is not None:
            # That of another run is refused before rows are prepared for this one.
            DirectoryCheckpoint(self.folder / "run").open(identity)
        with _home(self.folder) as home:
            finished = run_rounds(
                self._phases(home / "rows", show_progress=show_progress),
                self.sweeps * len(self.questions.parts),
                executor=self.executor,
                into=home / "values",
                identity=identity,
                checkpoint=self.folder and self.folder / "run",
                title=f"{method['design']}, {self.game.table.n_shards} shards",
                show_progress=show_progress,
            )
            valuation = self._valuation(finished, home / "values", columns, problem_spec, method)
        if self.folder is None:
            shutil.rmtree(home / "rows")
            # Lists of rows and the like hold on to the files as well.
            valuation.moments.delete_with_last_copy(home)
        n_done = valuation.provenance.sessions[0].tasks
        warn_if_broken_off(n_done, self.questions, interrupted=finished.interrupted)
        return valuation

    def _phases(self, folder: Path, *, show_progress: bool) -> KNNShardAlgorithm:
        game, n_rows = self.game, self.game.shape[0]
        # Workers that do not see this folder raise an error instead of writing elsewhere.
        folder.mkdir(parents=True, exist_ok=True)
        shards = PreparedShards(game.table, game.layout, folder, durable=self.folder is not None)
        sample = shards.sample(sample_places(n_rows), self.executor, show_progress=show_progress)
        rulers = game.layout.rulers
        ranker = Ranker.of(
            rulers,
            game.columns.codes[rulers.positions].astype(np.int64),
            sample,
            np.array(game.layout.class_counts, dtype=np.int64),
            bins=self.bins,
            n_neighbors=game.n_neighbors,
            semivalue=self.row_semivalue,
            n_players=n_rows,
        )
        return KNNShardAlgorithm(shards, ranker, self.questions)

    def _identity(self, problem_spec: dict[str, Any], method: dict[str, Any]) -> dict[str, Any]:
        """All that decides what rounds do and tell; how many rounds there are is left out."""
        return {
            "problem_spec": problem_spec,
            "table": self.game.table.footers_sha256(),
            "design": method["design"],
            "seed": self.questions.seed,
            "parts_per_sweep": len(self.questions.parts),
            **environment(),
        }

    def _valuation(
        self,
        finished: ShardRunResult,
        folder: Path,
        columns: Axis,
        problem_spec: dict[str, Any],
        method: dict[str, Any],
    ) -> ShardedValuation:
        seen = _sweeps(finished, len(self.questions.parts))
        n_done, n_parts = len(finished.reports), len(self.questions.parts)
        complete = n_done >= n_parts and not finished.interrupted
        session = Session(self.questions.seed, n_done)
        files = [ValueFile.from_plain(entry) for entry in finished.entries]
        valuation = ShardedValuation(
            Blocks(NumberedAxis(self.game.shape[0]), columns),
            StoredMoments(folder, files, seen.moments),
            expected_total=seen.expected_total,
            empty=self.game.empty,
            status="estimated" if complete else "interrupted",
            provenance=Provenance.now(problem_spec, method, session, seen.tally, finished.seconds),
            sums_validation=seen.validation_se(),
            baseline=seen.baseline,
            scores=scores_of_queries(
                self.questions,
                self.game.scoring,
                targets=self.questions.judges.labels,
                class_counts=[np.array(self.game.layout.class_counts, dtype=np.int64)],
                n_tasks=n_done,
                seen=seen,
            ),
            column_info=self.game.column_info,
        )
        valuation.save(folder)
        return valuation


def _sweeps(finished: ShardRunResult, n_parts: int) -> Sweeps:
    """Sums of columns and the total, sweep by sweep, as if they had been seen round by round."""
    of_shards = [np.array(entry["column_sums"], dtype=np.int64) for entry in finished.entries]
    sums = np.sum(of_shards, axis=0)
    with_total = np.column_stack([sums, sums.sum(axis=1)])
    n_rounds, rounds, nothing = len(finished.reports), [], np.zeros_like(with_total[0])
    for number, told in enumerate(finished.reports):
        sweep = number // n_parts
        ends = (number + 1) % n_parts == 0 or number + 1 == n_rounds
        spread = Spread(told["n_queries"], told["counts"], told["first"], told["second"])
        rounds.append(
            Sweeps(
                parts_per_sweep=n_parts,
                parts=1,
                n_queries=int(told["n_queries"].sum()),
                # Whole numbers: it does not matter with which round of a sweep they come.
                sums=with_total[sweep] if ends and sweep < len(with_total) else nothing,
                weight=told["weight"],
                total=told["total"],
                whole=told["whole"],
                right=told["right"],
                spread=spread if sweep == 0 else None,
                tally=Tally(utilities=told["n_ranked"], new=told["n_ranked"]),
            )
        )
    return reduce(Sweeps.merge, rounds).closed()


def warn_if_broken_off(n_done: int, questions: Questions, *, interrupted: bool) -> None:
    """Tell how far a run has come that ended before its time."""
    n_parts = len(questions.parts)
    if n_done < n_parts:
        n_asked = sum(part.n_queries for part in questions.parts[:n_done])
        warnings.warn(
            f"the run was broken off after {n_asked} of {questions.judges.n_queries} validation "
            "rows; values and their total are for these alone.",
            stacklevel=2,
        )
    elif interrupted:
        n_sweeps = n_done // n_parts
        warnings.warn(
            f"the run was broken off after {n_sweeps} sweep{'s' if n_sweeps > 1 else ''}; status "
            "is 'interrupted'.",
            stacklevel=2,
        )


@contextmanager
def _home(folder: Path | None) -> Iterator[Path]:
    """Give the folder of a run; a temporary one does not outlive an error."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    home = Path(tempfile.mkdtemp(prefix="cellworth-values-"))
    try:
        yield home
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
