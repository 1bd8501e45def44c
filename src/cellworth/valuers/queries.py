"""The tasks of KNNValuer on a table in memory: parts of a pass over all queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats, Mask
from cellworth.fixed import UNITS, as_floats
from cellworth.games import KNNGame
from cellworth.holdings import Holdings
from cellworth.moments import Tally, with_margins
from cellworth.neighbours.bins import RankBins, sample_places
from cellworth.neighbours.chances import RankChances
from cellworth.neighbours.rounds import Ranker, Shard
from cellworth.neighbours.sorting import SortedRows, coalitions_at_once
from cellworth.neighbours.training import CoalitionBatches, Query, Training
from cellworth.neighbours.votes import votes_of_rows, votes_of_summary
from cellworth.runtime import leave_if_cancelled
from cellworth.semivalues import Semivalue, inside_chances
from cellworth.subsets import SubsetDesign
from cellworth.sweeps import Sweeps
from cellworth.valuers.questions import Judged, Judges, Piece, Questions, Task, judged, kept
from cellworth.valuers.watching import Owned, Watch


class QueryTasks:
    """Values all cells for the queries of a task.

    Parameters
    ----------
    game : KNNGame
    design : SubsetDesign
        Coalitions of columns for each query.
    row_semivalue, column_semivalue : Semivalue
    with_label : bool
        Whether the label column plays.
    ranking : RankBins or None
        How far rows are ranked; None: exactly.
    seed : int or None
        None where nothing is drawn.
    holdings : Holdings or None
        Whose sums are watched.
    """

    def __init__(
        self,
        *,
        game: KNNGame,
        design: SubsetDesign,
        row_semivalue: Semivalue,
        column_semivalue: Semivalue,
        with_label: bool,
        ranking: RankBins | None,
        seed: int | None,
        holdings: Holdings | None = None,
    ) -> None:
        self.game = game
        self.questions = Questions(
            Judges.of(game.distances.queries, game.query_labels, game.scoring),
            (len(game.labels), game.shape[1]),
            design=design,
            column_semivalue=column_semivalue,
            with_label=with_label,
            empty=game.empty,
            seed=seed,
        )
        self.row_semivalue = row_semivalue
        self.ranking = ranking
        self.holdings = holdings
        self._plans: dict[int, list[tuple[CoalitionBatches, Floats]]] = {}
        self._trainings: dict[int, Training] = {}
        self._rankers: dict[int, tuple[Ranker, Shard]] = {}
        self._owned: dict[int, Owned] = {}

    def __call__(self, number: int) -> Task:
        """Name task number t."""
        return self.questions(number)

    def contribution(self, task: Task) -> Sweeps:
        """Value all cells for the queries of a task."""
        questions, watch = self.questions, None
        n_owners = 0 if self.holdings is None else len(self.holdings.names)
        if task.part.observed and task.sweep == 0:
            n_strata = questions.judges.n_strata
            watch = Watch(questions.n_results, self.game.shape[0], n_strata, n_owners)
        # Bins count in units, which are whole numbers.
        dtype: type[Any] = float if self.ranking is None else np.int64
        sums = np.zeros((self.game.shape[0], questions.n_results), dtype=dtype)
        owned_sums, added = np.zeros(n_owners), []
        orders = questions.orders(task)
        for piece in task.part.pieces:
            cells, of_piece = self._valued(piece, task.sweep, orders, watch)
            self._add_by_player(cells, piece.fold, sums)
            if self.holdings is not None:
                owned_sums += self._owned_in(piece.fold).sums(as_floats(cells))
            added.append(of_piece)
        n_ranked = questions.n_ranked(task)
        seen = Sweeps(
            parts_per_sweep=len(questions.parts),
            parts=1,
            n_queries=task.part.n_queries,
            sums=with_margins(sums),
            **Judged.of_all(added)._asdict(),
            spread=None if watch is None else watch.spread(),
            tally=Tally(utilities=n_ranked, new=n_ranked),
        )
        if self.holdings is None:
            return seen
        spread = None if watch is None else watch.owned_spread()
        return replace(seen, owned=replace(seen, sums=owned_sums, spread=spread))

    def never_valued(self, n_tasks: int) -> Mask:
        """Row players that no query of the first tasks could value, but others can."""
        folds = self.game.problem.folds
        done = self.questions.parts[:n_tasks]
        asked = {piece.fold for part in done for piece in part.pieces}
        everyone = self._players_in(range(len(folds)))
        return everyone & ~self._players_in(asked)

    def _players_in(self, folds: Iterable[int]) -> Mask:
        """Row players of which some row may be learned from in one of these folds."""
        there = np.zeros(self.game.shape[0], dtype=bool)
        for fold in folds:
            there[self.game.blocks.rows.codes[self.game.problem.folds[fold].may_train]] = True
        return there

    def _valued(
        self,
        piece: Piece,
        sweep: int,
        orders: Iterator[NDArray[np.int64]],
        watch: Watch | None,
    ) -> tuple[NDArray[Any], Judged]:
        """Values of the cells that may be learned from in a fold, for queries of that fold."""
        if watch is not None:
            rows = np.flatnonzero(self.game.problem.folds[piece.fold].may_train)
            owned = None if self.holdings is None else self._owned_in(piece.fold)
            watch.turn_to(self.game.blocks.rows.codes[rows], owned)
        if self.ranking is None:
            return self._sorted(piece, sweep, orders, watch)
        return self._binned(piece, sweep, orders, self.ranking, watch)

    def _sorted(
        self,
        piece: Piece,
        sweep: int,
        orders: Iterator[NDArray[np.int64]],
        watch: Watch | None,
    ) -> tuple[NDArray[Any], Judged]:
        """Rank rows by sorting them."""
        questions, judges = self.questions, self.questions.judges
        training = kept(self._trainings, piece.fold, self._training)
        plans = kept(self._plans, sweep, self._planned)
        ranked = SortedRows(training, max(plan.most_at_once for plan, _ in plans))
        without_columns = self._without_columns(training)
        cells = np.zeros((questions.n_results, training.n_rows))
        counted, wholes, bases, votes = [], [], [], []
        # Queries come first: an order that is taken must not be lost for the next piece.
        for place, order in zip(piece.queries.tolist(), orders, strict=False):
            leave_if_cancelled()
            counts = float(judges.weights[piece.fold][place])
            query = judges.query(training.rulers, piece.fold, place)
            plan, weights = plans[place % len(plans)]
            if questions.draws:
                weights = weights[:, np.argsort(order)]
            nothing, base = without_columns(query)
            into = cells if watch is None else watch.cleared()
            whole, vote = ranked.add(
                query,
                plan,
                order=order,
                weights=weights,
                count=counts if watch is None else 1.0,
                nothing=nothing,
                into=into,
            )
            if watch is not None:
                cells += counts * into
                squared = (counts * judges.n_queries) ** 2
                watch.note(squared, int(judges.strata[piece.fold][place]))
            counted.append(counts)
            wholes.append(whole)
            bases.append(base)
            votes.append(vote)
        return cells, judged(counted, wholes, bases, votes)

    def _binned(
        self,
        piece: Piece,
        sweep: int,
        orders: Iterator[NDArray[np.int64]],
        bins: RankBins,
        watch: Watch | None,
    ) -> tuple[NDArray[Any], Judged]:
        """Rank rows by bins: one shard, which holds them all."""
        questions, judges = self.questions, self.questions.judges
        ranker, shard = kept(self._rankers, piece.fold, partial(self._ranker, bins))
        prepared = questions.prepared(piece, sweep, orders, ranker)
        asked = prepared.asked
        leave_if_cancelled()
        summary = ranker.look(0, shard, prepared)
        worths = ranker.resolve(summary)
        grouped = np.zeros((questions.n_results, shard.n_rows), dtype=np.int64)
        n_queries = len(asked.labels)
        steps = [(0, n_queries)] if watch is None else [(q, q + 1) for q in range(n_queries)]
        for some in steps:
            leave_if_cancelled()
            into = grouped if watch is None else np.zeros_like(grouped)
            ranker.settle(shard, prepared, worths.far, worths.near[0], into=into, queries=some)
            if watch is not None:
                grouped += into
                count = float(asked.counts[some[0]])
                watch.cleared()[:, shard.places] = into / (count * UNITS)
                stratum = judges.strata[piece.fold][piece.queries[some[0]]]
                watch.note((count * judges.n_queries) ** 2, int(stratum))
        cells = np.empty_like(grouped)
        cells[:, shard.places] = grouped
        votes = votes_of_summary(ranker, asked, summary)
        if votes is None:
            votes = votes_of_rows(ranker, asked, shard)
        return cells, judged(asked.counts, worths.of_everyone(asked), prepared.bases, votes)

    def _planned(self, sweep: int) -> list[tuple[CoalitionBatches, Floats]]:
        """Designs of a sweep, ready to be ranked on, each with the weights of its coalitions."""
        at_once = coalitions_at_once(len(self.game.labels))
        return [
            (CoalitionBatches.of(coalitions, at_once), weights)
            for coalitions, weights in self.questions.drawn(sweep)
        ]

    def _training(self, fold: int) -> Training:
        game = self.game
        may_train = game.problem.folds[fold].may_train
        rows = np.flatnonzero(may_train)
        rulers = game.distances.rulers
        return Training(
            game.distances.rows if may_train.all() else game.distances.rows.take(rows),
            rulers,
            game.blocks.columns.codes[rulers.places].astype(np.int64),
            game.labels_in(fold),
            game.is_class,
            game.n_neighbors,
            RankChances.of(self.row_semivalue, len(game.labels), len(rows), game.n_neighbors),
        )

    def _ranker(self, bins: RankBins, fold: int) -> tuple[Ranker, Shard]:
        game = self.game
        places = np.flatnonzero(game.problem.folds[fold].may_train)
        rows, labels = game.distances.rows.take(places), game.labels_in(fold)
        rulers = game.distances.fine
        shard = Shard.of(rows, labels, int(game.labels.max()) + 1)
        ranker = Ranker.of(
            rulers,
            game.blocks.columns.codes[rulers.places].astype(np.int64),
            rows.take(sample_places(len(places))),
            np.diff(shard.starts),
            bins=bins,
            n_neighbors=game.n_neighbors,
            semivalue=self.row_semivalue,
            n_players=len(game.labels),
        )
        return ranker, shard

    def _owned_in(self, fold: int) -> Owned:
        return kept(self._owned, fold, self._held)

    def _held(self, fold: int) -> Owned:
        assert self.holdings is not None  # noqa: S101 (only asked for where there are owners)
        rows = np.flatnonzero(self.game.problem.folds[fold].may_train)
        return Owned.of(self.holdings, self.game.blocks.rows.codes[rows])

    def _without_columns(self, training: Training) -> Callable[[Query], tuple[Floats, float]]:
        """Values of rows that the last line of weights counts, and what the total leaves out."""
        if self.game.empty == "prior":
            known: dict[float, tuple[Floats, float]] = {}

            def prior(query: Query) -> tuple[Floats, float]:
                values, utility = kept(
                    known, query.label, lambda _: training.without_columns(query)
                )
                if not self.questions.with_label:
                    return values, utility
                return values, 0.0 if training.is_class else -(query.label**2)

            return prior
        nobody = float(
            inside_chances(self.row_semivalue, len(self.game.labels), training.n_rows - 1, 0)
        )

        def zero(query: Query) -> tuple[Floats, float]:
            # The closed form has a numeric target met by the mean where there are no rows.
            level = 0.0 if training.is_class else -nobody * query.label**2
            return np.full(training.n_rows, level), 0.0

        return zero

    def _add_by_player(self, cells: NDArray[Any], fold: int, into: NDArray[Any]) -> None:
        axis = self.game.blocks.rows
        players = axis.codes[self.game.problem.folds[fold].may_train]
        if axis.grouped:
            np.add.at(into, players, cells.T)
        else:
            into[players] += cells.T
