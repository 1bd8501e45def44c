"""The tasks of KNNValuer on a table in memory: parts of a pass over all queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Positions
from cellworth.execution import leave_if_cancelled
from cellworth.fixed import UNITS, as_floats
from cellworth.games import KNNGame
from cellworth.moments import Tally, with_margins
from cellworth.neighbours.bins import RankBins, n_nearest, sample_places
from cellworth.neighbours.chances import RankChances
from cellworth.neighbours.rounds import Ranker, Shard
from cellworth.neighbours.sorting import SortedRows, coalitions_at_once
from cellworth.neighbours.training import Plan, Query, Training
from cellworth.neighbours.votes import votes_of_rows, votes_of_summary
from cellworth.owners import Holdings
from cellworth.semivalues import Semivalue, inside_chances
from cellworth.subsets import SubsetDesign
from cellworth.sweeps import Sweeps
from cellworth.valuers.questions import Judged, Judges, Questions, Task, judged, kept
from cellworth.valuers.watching import Owned, Watch

Floats = NDArray[np.float64]


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
            Judges(game.distances.queries, game.query_labels, game.query_weights),
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
        self._plans: dict[int, list[tuple[Plan, Floats]]] = {}
        self._trainings: dict[int, Training] = {}
        self._rankers: dict[int, tuple[Ranker, Shard]] = {}
        self._owned: dict[int, Owned] = {}

    def __call__(self, number: int) -> Task:
        """Name task number t."""
        return self.questions(number)

    def contribution(self, task: Task) -> Sweeps:
        """Value all cells for the queries of a task."""
        rows = np.flatnonzero(self.game.problem.folds[task.part.fold].may_train)
        owned = None
        if self.holdings is not None:
            owned = kept(self._owned, task.part.fold, partial(self._owned_in, self.holdings))
        watch = None
        if task.part.observed and task.sweep == 0:
            shape = self.questions.n_results, len(rows)
            watch = Watch(shape, self.game.blocks.rows.codes[rows], self.game.shape[0], owned)
        # Bins are for the rows beyond the nearest; a small fold may have none.
        bins, n_neighbors = self.ranking, self.game.n_neighbors
        if bins is None or 2 * n_nearest(bins, len(rows), n_neighbors) > len(rows):
            cells, added = self._sorted(task, watch)
        else:
            cells, added = self._binned(task, bins, watch)
        n_ranked, n_queries = self.questions.n_ranked(task), len(task.part.queries)
        seen = Sweeps(
            parts_per_sweep=len(self.questions.parts),
            parts=1,
            sums=with_margins(self._by_row_player(cells, rows)),
            **added._asdict(),
            spread=None if watch is None else watch.spread(n_queries),
            tally=Tally(utilities=n_ranked, new=n_ranked),
        )
        if owned is None:
            return seen
        spread = None if watch is None else watch.owned_spread(n_queries)
        sums = owned.sums(as_floats(cells))
        return replace(seen, owned=replace(seen, sums=sums, spread=spread))

    def _sorted(self, task: Task, watch: Watch | None) -> tuple[NDArray[Any], Judged]:
        """Rank rows by sorting them."""
        questions, part = self.questions, task.part
        training = kept(self._trainings, part.fold, self._training)
        plans = kept(self._plans, task.sweep, self._planned)
        ranked = SortedRows(training, max(plan.most_at_once for plan, _ in plans))
        without_columns = self._without_columns(training)
        cells = np.zeros((questions.n_results, training.n_rows))
        counted, wholes, bases, votes = [], [], [], []
        for order, place in zip(questions.orders(task), part.queries.tolist(), strict=True):
            leave_if_cancelled()
            counts = float(questions.judges.weights[part.fold][place])
            query = questions.judges.query(training.rulers, part.fold, place)
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
                watch.note((counts * questions.judges.n_queries) ** 2)
            counted.append(counts)
            wholes.append(whole)
            bases.append(base)
            votes.append(vote)
        return cells, judged(counted, wholes, bases, votes)

    def _binned(
        self, task: Task, bins: RankBins, watch: Watch | None
    ) -> tuple[NDArray[Any], Judged]:
        """Rank rows by bins: one shard, which holds them all."""
        questions = self.questions
        ranker, shard = kept(self._rankers, task.part.fold, partial(self._ranker, bins))
        prepared = questions.prepared(task, ranker)
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
                watch.note((count * questions.judges.n_queries) ** 2)
        cells = np.empty_like(grouped)
        cells[:, shard.places] = grouped
        votes = votes_of_summary(ranker, asked, summary)
        if votes is None:
            votes = votes_of_rows(ranker, asked, shard)
        return cells, judged(asked.counts, worths.of_everyone(asked), prepared.bases, votes)

    def _planned(self, sweep: int) -> list[tuple[Plan, Floats]]:
        """Designs of a sweep, ready to be ranked on, each with the weights of its coalitions."""
        at_once = coalitions_at_once(len(self.game.labels))
        return [
            (Plan.of(coalitions, at_once), weights)
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
            game.labels[rows],
            game.is_class,
            game.n_neighbors,
            RankChances.of(self.row_semivalue, len(game.labels), len(rows), game.n_neighbors),
        )

    def _ranker(self, bins: RankBins, fold: int) -> tuple[Ranker, Shard]:
        game = self.game
        places = np.flatnonzero(game.problem.folds[fold].may_train)
        rows, labels = game.distances.rows.take(places), game.labels[places]
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

    def _owned_in(self, holdings: Holdings, fold: int) -> Owned:
        rows = np.flatnonzero(self.game.problem.folds[fold].may_train)
        return Owned.of(holdings, self.game.blocks.rows.codes[rows])

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

    def _by_row_player(self, cells: NDArray[Any], rows: Positions) -> NDArray[Any]:
        values = np.zeros((self.game.shape[0], self.questions.n_results), dtype=cells.dtype)
        axis = self.game.blocks.rows
        if axis.grouped:
            np.add.at(values, axis.codes[rows], cells.T)
        else:
            values[axis.codes[rows]] = cells.T
        return values
