"""ShardedKNNValuer: values for nearest neighbors of a table in shards."""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import ColumnTypes, Floats, Labels
from cellworth.data.blocks import Axis, Blocks, Groups, NumberedAxis
from cellworth.data.io import AnyPath, describe, get_size, make_folder, to_path
from cellworth.data.owners import Owners, check_owners
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import TableLike, VectorLike
from cellworth.data.text import format_bytes, format_count
from cellworth.findings.fit_checks import warn_of_data, warn_of_target
from cellworth.findings.levels import read_levels
from cellworth.knn.binned import BinnedRanks, Ranker, get_units, n_nearest, sample_positions
from cellworth.knn.knn_game import ShardedKNNGame, sample_rows
from cellworth.knn.shard_data import sample_shards
from cellworth.knn.shard_tasks import (
    CellCodes,
    KNNGroupAlgorithm,
    KNNShardAlgorithm,
    fold_by_code,
    fold_rounds,
)
from cellworth.knn.tasks import WeightedQueries
from cellworth.runtime.checkpoint import DirectoryCheckpoint
from cellworth.runtime.executors import Processes, Serial, Threads
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.rounds import MAX_WAITING_BYTES, run_rounds
from cellworth.runtime.shard_algorithm import MAX_KEPT_BYTES, ShardRunResult
from cellworth.sampling.moments import Counts, append_margins, append_pairs
from cellworth.sampling.passes import PassSums, QueryVariance, as_floats
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.sharded_valuation import ShardedValuation, StoredMoments
from cellworth.valuation.storage import GROUP_ROWS, ValueFile
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.identity import environment
from cellworth.valuers.knn_valuer import (
    NeighborRun,
    NeighborValuer,
    NValidation,
    Size,
    check_ranking,
)
from cellworth.valuers.settings import check_flag, check_stop

# Work of a default run: about an hour on two cores.
_MAX_WORK = 2**37
# Memory of a process with all libraries.
_BYTES_OF_PROCESS = 4.75e8
# A request to a cluster and its answer, as they are pickled.
_BYTES_OF_REQUEST = 600
# Arrow reads the end of a Parquet file when it opens it: for labels, and for the other columns.
_BYTES_OF_OPENING = 2**17


class ShardedKNNValuer(NeighborValuer):
    """Values of all cells of a table in shards to a K-nearest-neighbor model.

    The table is read shard by shard and is never held in memory as a whole. The values stay in
    files; ``valuation_`` reads what is asked for. Values equal those of
    :class:`~cellworth.KNNValuer` with the
    same ``ranking`` to the bit, however the table is cut and however many workers there are. The
    table needs a validation set; its rows are always ranked in bins.

    Ctrl-C ends a run early: the finished rounds are kept, with a warning.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of nearest rows that vote.
    scoring : {"neighbor_agreement", "balanced_neighbor_agreement", "neg_mean_squared_error"} or \
            NeighborAgreement, default=None
        See :class:`~cellworth.KNNValuer`; None means neighbor agreement for classes and the squared
        error for a numeric target. Of :class:`~cellworth.knn.NeighborAgreement`, shards have the
        radius and equal weights of classes.
    sampler : ColumnSampler, default=None
        Coalitions of columns; see :class:`~cellworth.KNNValuer`.
    ranking : BinnedRanks, default=None
        How finely rows are ranked by distance; None means ``BinnedRanks()``.
    scale : {"robust", "std"} or None, default="robust"
        What numeric columns are divided by: interquartile range, standard deviation, nothing.
    empty : {"prior", "zero"}, default="prior"
        With no columns all rows tie, or the utility is 0.
    semivalue : Semivalue or (Semivalue, Semivalue), default=None
        Weights of coalitions by size; a pair has one for rows and one for columns. None means
        ``Shapley()``.
    n_passes : int, default=None
        Most passes over the validation rows; see :class:`~cellworth.KNNValuer`.
    stop : StoppingRule, default=None
        Ends the run, as in :class:`~cellworth.KNNValuer`; a task is one round over all shards.
        Rules are checked after every pass, limits of time after every round.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the coalitions; None draws one, which the provenance records.
    n_jobs : int, default=None
        Number of threads, -1 for all cores; None as in :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Executor, checkpoint and progress. The checkpoint is a folder or the address of one.

    Attributes
    ----------
    valuation_ : ShardedValuation
    values_, standard_errors_ : arrays of shape (n_rows, n_column_groups)
        They are read from files at each access, as are ``row_values_`` and ``column_values_``.

    See Also
    --------
    ShardedTable, KNNValuer

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from cellworth import ShardedKNNValuer, ShardedTable
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rows = pa.table({"age": [20, 40, 21, 41], "old": [0, 1, 0, 1]})
    >>> pq.write_table(rows, folder / "0.parquet")
    >>> table = ShardedTable.from_files(folder, target="old")
    >>> valuer = ShardedKNNValuer(n_neighbors=1, random_state=0)
    >>> valuer.fit(table, X_val=pa.table({"age": [22, 39]}), y_val=[0, 1]).valuation_.shape
    (4, 1)
    """

    def fit(
        self,
        X: ShardedTable,
        *,
        X_val: TableLike,
        y_val: VectorLike,
        row_groups: Groups = None,
        column_groups: Groups = None,
        column_types: ColumnTypes | None = None,
        value_labels: bool = False,
        owners: Owners | None = None,
        n_validation: NValidation = "auto",
    ) -> Self:
        """Value the cells of a training table in shards.

        Parameters
        ----------
        X : ShardedTable
            Training table, which holds its own labels.
        X_val, y_val : table and labels
            Validation rows, in memory.
        row_groups : array-like or mapping, default=None
            One group per row or ``{group: [row positions]}``. ``valuation_`` is then a Valuation of
            groups in memory. None: every row for itself.
        column_groups : array-like or mapping, default=None
            One group per column or ``{group: [column names]}``. None: every column for itself.
        column_types : mapping, default=None
            ``{"postcode": "categorical"}`` where the guess from the type is wrong.
        value_labels : bool, default=False
            Whether the label column plays too, as the column ``(label)`` of the result.
        owners : Owners, default=None
            Who holds which cells: ``Owners(X).assign(...)``. ``valuation_.owners()`` then has the
            errors of each owner's sum, which do not follow from the errors of single cells.
        n_validation : int, "auto" or None, default="auto"
            Number of validation rows that are used, drawn from those given; None means all. "auto"
            draws as many as about an hour of work on two cores allows.

        Returns
        -------
        self
        """
        self._forget()
        run = self._prepare(
            X, X_val=X_val, y_val=y_val, row_groups=row_groups, column_groups=column_groups,
            column_types=column_types, value_labels=value_labels, owners=owners,
            n_validation=n_validation,
        )  # fmt: skip
        return self._keep(run.game, run.value(self._inspect_columns(run.game)))

    def _prepare(
        self,
        X: Any,
        y: None = None,
        *,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        row_groups: Groups = None,
        column_groups: Groups = None,
        column_types: ColumnTypes | None = None,
        value_labels: bool = False,
        owners: Owners | None = None,
        n_validation: NValidation = "auto",
    ) -> ShardedRun:
        # What can be checked before the table is read.
        if not isinstance(X, ShardedTable):
            raise TypeError(
                f"X must be a ShardedTable, got {type(X).__name__}; use KNNValuer for a table "
                "in memory."
            )
        with_label = check_flag(value_labels, "value_labels")
        if owners is not None:
            check_owners(owners)
        settings = self._settings(self.semivalue)
        ranking = check_ranking(self.ranking, in_bins=True)
        if self.stop is not None:
            check_stop(self.stop)
        if y is not None:
            raise ValueError("y must be None for a ShardedTable, which holds its own labels.")
        if X_val is None or y_val is None:
            raise ValueError(
                "X_val and y_val must be given for a ShardedTable, got None; pass validation rows."
            )
        X.check_files_unchanged()
        folder = None
        if settings.checkpoint is not None:
            # Workers elsewhere may have another working directory.
            folder = make_folder(settings.checkpoint.folder, "checkpoint").absolute()
        game = ShardedKNNGame.from_table(
            X, X_val, y_val, n_neighbors=self.n_neighbors,
            scoring=self.scoring, scale=self.scale, column_types=column_types,
            column_groups=column_groups, empty=self.empty, executor=settings.threads,
            show_progress=settings.runtime.progress,
        )  # fmt: skip
        size = Size(
            *game.shape,
            game.n_queries,
            with_label,
            n_targets=int(game.class_counts is None),
            in_bins=True,
            most_work=_MAX_WORK,
        )
        rows: Axis = NumberedAxis(X.shape[0])
        if row_groups is not None:
            rows = Axis.from_groups(rows.ids, row_groups, what="row")
        blocks = Blocks(rows, game.columns)
        blocks = blocks.with_labels() if with_label else blocks
        holdings = None if owners is None else owners.project(blocks)
        return ShardedRun(
            self, settings, game, blocks, holdings, size, ranking, n_validation, folder
        )

    def _inspect_columns(self, game: ShardedKNNGame) -> ColumnTable:
        """Warn as for a table in memory, except for checks that need all rows."""
        advice, is_class = self._advice(game), game.class_counts is not None
        if self.scoring is None and game.label_counts:
            labels = game.layout.classes or sorted(game.label_counts)
            counts = np.array([game.label_counts[label] for label in labels])
            warn_of_target(np.array(labels), counts, advice, are_classes=is_class)
        problem = sample_rows(game.table, is_class=is_class)
        warn_of_data(problem, read_levels(problem.table, parse=False), advice, sampled=True)
        self.columns_: ColumnTable = game.column_info
        return self.columns_

    def _keep_names(self, game: ShardedKNNGame) -> None:
        self.n_features_in_: int = len(game.table.names)
        self.feature_names_in_: Labels = game.table.names


@dataclass(frozen=True, eq=False)
class ShardedRun(NeighborRun):
    """A run over the shards of a table."""

    # Where the run and its result are kept. None: the files live as long as the Valuation.
    folder: AnyPath | None

    @property
    def queries(self) -> WeightedQueries:
        """Validation rows that are used."""
        game = self.game
        return WeightedQueries.weigh(
            (game.queries.columns,), game.query_labels, game.scoring, self.effort.n_validation
        )

    @cached_property
    def problem_spec(self) -> dict[str, Any]:
        """Everything that determines the true values."""
        spec, rows = super().problem_spec, self.blocks.rows
        if not rows.grouped:
            return spec
        groups = hashlib.sha256(rows.codes.astype("<i8").tobytes()).hexdigest()
        return spec | {"data_sha256": spec["data_sha256"] | {"rows": groups}}

    def _value(self, columns: ColumnTable) -> Valuation:
        runtime, forecast = self.settings.runtime, self.forecast()
        n_parts = len(self.schedule.parts)
        runtime.announce(forecast)
        identity = {
            "problem_spec": self.problem_spec,
            "table": self.game.table.files_sha256(),
            **self._describe_tasks(),
            **environment(),
        }
        if self.folder is not None:
            # Raises an error for the checkpoint of another run, before rows are prepared.
            DirectoryCheckpoint(self.folder / "run").open(identity)
        with ExitStack() as temporary:
            home = self.folder
            if home is None:
                home = Path(tempfile.mkdtemp(prefix="cellworth-values-"))
                temporary.callback(shutil.rmtree, home, ignore_errors=True)
            finished = run_rounds(
                self._phases(),
                self.effort.make_stop(n_parts),
                rounds_per_pass=n_parts,
                on_round=runtime.on_round,
                executor=self.settings.threads,
                into=home / "values",
                identity=identity,
                checkpoint=self.folder and self.folder / "run",
                title=f"{describe(self.effort.sampler)}, {self.game.table.n_shards} shards",
                show_progress=runtime.progress,
                forecast=forecast,
            )
            valuation = self._valuation(finished, home / "values", columns)
            valuation.save(home / "values")
            if self.folder is None and isinstance(valuation.moments, StoredMoments):
                # Lists of rows and the like use these files, too.
                temporary.pop_all()
                valuation.moments.delete_with_last_copy(Path(str(home)))
        return valuation

    def forecast(self) -> Forecast:
        """Return the size and the expected time of the run, with bytes and memory in words."""
        schedule, table, executor = self.schedule, self.game.table, self.settings.threads
        known = self.effort.forecast(schedule, self.game.shape, executor)
        (n_rows, n_columns), n_shards, n_parts = table.shape, table.n_shards, len(schedule.parts)
        stop = self.effort.make_stop(n_parts)
        # Sampling errors are mostly small after the first pass.
        is_open = stop.needs_errors or math.isinf(stop.most_tasks)
        n_rounds = n_parts if is_open else stop.most_tasks
        result = schedule.queries.n_queries * schedule.n_coalitions / n_parts * self._bytes_of_pair
        prepared, held, values = self._bytes_of_row
        kept = min(n_rows * prepared, MAX_KEPT_BYTES)
        # One pass for a sample, one for the first round; then what is not kept is read again.
        n_reads = 2 + n_rounds * (1 - kept / (n_rows * prepared))
        files = (to_path(file.address, "address", table.storage_options) for file in table.files)
        read = n_reads * (sum(map(get_size, files)) + n_shards * _BYTES_OF_OPENING)
        written = n_rows * values + n_rounds * result * (self.folder is not None)
        # Of a cluster: the sample comes from shards, and goes to workers.
        sent = (8 + self.game.layout.dtype.itemsize) * n_columns * len(sample_positions(n_rows))
        sent += n_shards * (n_rounds + 2) * _BYTES_OF_REQUEST
        sent *= not isinstance(executor, Serial | Threads | Processes)
        memory = _BYTES_OF_PROCESS + kept + 2 * min(n_rounds * result, MAX_WAITING_BYTES)
        n_own = math.ceil(n_rows / n_shards)
        of_thread = n_own * (prepared + held) + result
        # While they are written, there are three copies of values.
        memory += known.n_cores * (of_thread + 3 * min(n_own, GROUP_ROWS) * values)
        # What is written is read once for its hash, or to be added up.
        counts = {"read": read + written, "written": written, "sent": sent, "of memory": memory}
        needs = ", ".join(f"{format_bytes(count)} {what}" for what, count in counts.items())
        return replace(known, size=f"{known.size}, {format_count(n_shards, 'shard')}, {needs}")

    @property
    def _bytes_of_pair(self) -> float:
        """Bytes that the result of a round has for a pair of query and coalition."""
        bins, n_rows = self.ranking or BinnedRanks(), self.game.shape[0]
        nearest = n_nearest(bins, n_rows, self.game.n_neighbors)
        is_target = self.game.layout.target_scale is not None
        return 8 * ((2 + is_target) * bins.n_bins(n_rows) + (1 + is_target) * nearest)

    @property
    def _bytes_of_row(self) -> tuple[int, int, int]:
        """Bytes of a row as kernels take it, of its largest state, and of its values in files."""
        schedule, layout = self.schedule, self.game.layout
        n_columns = self.game.table.shape[1]
        prepared = n_columns * layout.dtype.itemsize + 8 + 8 * (layout.target_scale is not None)
        if self.blocks.rows.grouped:
            return prepared, 0, 0
        # A pass has sums and, for two draws, squares of their differences; the values of a round
        # are kept by draw. The first pass also has sums and squares by stratum, from which the
        # variances between queries follow. Of finished passes there are means and variances.
        n_strata, n_draws = schedule.n_kept_strata, schedule(0).n_draws
        finished = 2 * (self.effort.n_passes != 1) + n_strata
        held = max(n_draws + (2 + n_draws) * n_strata, 2 * n_draws + finished)
        n_written = 2 + (n_strata > 0)
        return prepared, 8 * schedule.n_results * held, 8 * (schedule.n_results + 1) * n_written

    def _phases(self) -> KNNShardAlgorithm:
        game, n_rows = self.game, self.game.shape[0]
        sample = sample_shards(
            game.table,
            game.layout,
            sample_positions(n_rows),
            self.settings.threads,
            show_progress=self.settings.runtime.progress,
        )
        scales = game.layout.scales
        ranker = Ranker(
            scales,
            game.columns.codes[scales.positions].astype(np.int64),
            sample,
            np.array(game.layout.class_counts, dtype=np.int64),
            self.ranking or BinnedRanks(),
            game.n_neighbors,
            self.settings.row_semivalue,
            n_rows,
            game.layout.target_scale,
            game.radius,
        )
        kind = KNNGroupAlgorithm if self.blocks.rows.grouped else KNNShardAlgorithm
        durable = self.folder is not None
        return kind(game.table, game.layout, ranker, self.schedule, self._codes(), durable)

    def _codes(self) -> CellCodes | None:
        """Return codes of cells that are added up: those of row groups, or of owners."""
        rows, held = self.blocks.rows, self.holdings
        if rows.grouped:
            names = np.arange(math.prod(self.blocks.shape))
            lines = names.astype(np.int32).reshape(self.blocks.shape)
            return CellCodes(rows.codes.astype(np.int32), lines, names)
        if held is None:
            return None
        return CellCodes(held.row_lines, held.lines, np.arange(len(held.claims)))

    def _valuation(
        self, finished: ShardRunResult, folder: AnyPath, columns: ColumnTable
    ) -> Valuation:
        seen = self._fold(finished)
        fields: dict[str, Any] = {"validation": seen.latest.validation_se(), "column_info": columns}
        fields |= self._summarize(
            seen, len(finished.reports), finished.seconds, interrupted=finished.interrupted
        )
        if self.blocks.rows.grouped:
            return Valuation(moments=seen.moments, **fields)
        files = [ValueFile.from_plain(entry) for entry in finished.entries]
        return ShardedValuation(moments=StoredMoments(folder, files, seen.moments), **fields)

    def _list_scored(self) -> tuple[str, list[Floats], list[Counts] | None]:
        game, counts = self.game, self.game.class_counts
        if counts is None:
            return game.scoring, [game.queries.target], None
        return game.scoring, game.query_labels, [counts]

    def _fold(self, finished: ShardRunResult) -> PassSums:
        """Return sums by pass and their variances, as a run in memory has them."""
        held, codes, shape = self.holdings, self._codes(), self.blocks.shape
        fold = partial(
            fold_by_code,
            finished.entries,
            finished.reports,
            schedule=self.schedule,
            n_codes=0 if codes is None else len(codes.names),
            units=self._units,
        )
        if self.blocks.rows.grouped:
            seen = fold(lambda sums: append_margins(sums.reshape(shape)))
        else:
            sums = (
                np.sum([entry[name] for entry in finished.entries], axis=0)
                for name in ("column_sums", "column_differences")
            )
            columns, differences = (np.column_stack([each, each.sum(axis=1)]) for each in sums)
            names = [field.name for field in fields(QueryVariance)]
            variances = [
                QueryVariance(*(report[name].copy() for name in names))
                for report in finished.reports[: len(self.schedule.parts)]
            ]
            seen = fold_rounds(
                self.schedule,
                finished.reports,
                passes=columns,
                differences=differences,
                variances=variances,
                units=self._units,
            )
        if held is None:
            return seen
        grouped = self.blocks.rows.grouped

        def share(sums: NDArray[Any]) -> NDArray[np.float64]:
            if grouped:
                # Of blocks, by their line of claims.
                blocks, sums = sums, np.zeros(len(held.claims), dtype=sums.dtype)
                np.add.at(sums, held.codes().ravel(), blocks)
            return append_pairs(as_floats(sums, self._units) @ held.shares)

        return replace(seen, owned=fold(share))

    @property
    def _units(self) -> float:
        return get_units(self.game.layout.target_scale)
