"""OwnerValuer: owners as players, each with all of its cells or with none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    MISSING,
    ColumnTypes,
    CrossValidation,
    Floats,
    Integers,
    Mask,
    RandomState,
    check_random_state,
)
from cellworth.data.blocks import Blocks
from cellworth.data.holdings import Holdings
from cellworth.data.owners import CELLS, UNASSIGNED, Owners, check_owners
from cellworth.data.problem import Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import Table, TableLike, VectorLike, frame
from cellworth.data.views import View
from cellworth.findings.interactions import PairInteractions, measure_interactions
from cellworth.games.model import FoldScore, ModelGame
from cellworth.games.scoring import MAX_GROUPS
from cellworth.games.table_filler import TableFiller
from cellworth.knn.distances import Distances
from cellworth.knn.exact import find_targets
from cellworth.knn.knn_game import KNNGame, stratify_queries
from cellworth.runtime.run_settings import Runtime
from cellworth.runtime.stopping import StoppingRule
from cellworth.sampling.moments import WIDTH_95, DetailedUtility, pool_deviations, widening
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.valuation import Valuation, name_of_score
from cellworth.valuers.knn_valuer import KNNValuer
from cellworth.valuers.model_valuer import ModelValuer, value_coalitions
from cellworth.valuers.settings import Settings
from cellworth.valuers.valuer import Valuer

# Up to this many players all coalitions are evaluated.
_MAX_EXACT_PLAYERS = 12
# Distances of a fold that are kept; more are computed again for each coalition.
_MAX_DISTANCES = 2**26
_PLAYERS, _BASE, _HOLDINGS = "players", "base", "holdings"
_WITH_CELLS = np.array([True])


@dataclass(frozen=True, eq=False)
class Fragments:
    """Cells and labels that are there for a coalition of owners; others always are."""

    # Players, in an order that does not depend on names or on the order of assignment.
    names: tuple[str, ...]
    # Whether each player, or the base, has a claim; shapes (n_sets, n_players) and (n_sets,).
    claims: Mask
    always: Mask
    # Set of each cell, and of each label; shape (n_rows, n_columns + 1).
    codes: Integers
    # Whether labels have owners. Otherwise each comes with the first cell of its row.
    labels_owned: bool

    @classmethod
    def from_owners(cls, owners: Owners, base: Sequence[str]) -> Fragments:
        """Return the fragments of all owners outside the base, and of cells without an owner."""
        holdings = owners.holdings
        unknown = [name for name in base if name not in holdings.names]
        if unknown:
            raise ValueError(
                f"base must name owners, got {unknown[0]!r}; owners are "
                f"{', '.join(holdings.names)}."
            )
        labels_owned = bool(owners.share_of_labels())
        codes = holdings.codes().astype(np.int64)
        relevant = codes if labels_owned else codes[:, :-1]
        free = (holdings.claims.sum(axis=1) == 0) & np.isin(
            np.arange(len(holdings.claims)), relevant
        )
        order = sorted(range(len(holdings.names)), key=lambda i: (holdings.keys[i], i))
        players = [i for i in order if holdings.names[i] not in base]
        claims = holdings.claims[:, players]
        names = [holdings.names[i] for i in players]
        if free.any():
            names, claims = [*names, UNASSIGNED], np.column_stack([claims, free])
        if not players:
            raise ValueError("base must leave an owner to be valued, got all of them.")
        in_base = [i for i in order if holdings.names[i] in base]
        always = np.asarray(holdings.claims[:, in_base].any(axis=1))
        return cls(tuple(names), claims, always, codes, labels_owned)

    def find_present(self, members: Mask) -> tuple[Mask, Mask]:
        """Return the cells that are there, shape (n_rows, n_columns), and the labels."""
        there = np.asarray(self.claims[:, members].any(axis=1)) | self.always
        present = there[self.codes]
        cells, labels = present[:, :-1], present[:, -1]
        return cells, labels if self.labels_owned else np.ones(len(cells), dtype=bool)


class OwnerGame:
    """Game of owners: a coalition has all cells of its members, and no others.

    Row players are the owners, and cells without an owner are one more. There is a single column
    player, the cells: without it, the utility is that of the labels of the same rows alone, so that
    the value of an owner is what its cells add, as for values of cells. If labels have owners, or
    if a base is always there, all of the utility is shared.

    A row is there if its label and at least one of its cells are. Nearest neighbors treat an absent
    cell as a missing value. A model gets the columns of which a cell is there; their absent cells
    are filled with the mean, or the most frequent category, of the cells that are there. So the
    utility of a rectangle of rows and columns is that of the game of cells.
    """

    def __init__(self, game: KNNGame | ModelGame, owners: Owners, base: Sequence[str] = ()) -> None:
        self.inner = game
        self.problem: Problem = game.problem
        self.scoring: str = game.scoring
        self.base: tuple[str, ...] = tuple(base)
        self.empty: str = "base" if self.base else game.empty
        self.fragments: Fragments = Fragments.from_owners(owners, self.base)
        self._plain = _to_plain(owners.holdings)
        self._scorer: _NeighborScorer | _ModelScorer = (
            _NeighborScorer(game) if isinstance(game, KNNGame) else _ModelScorer(game)
        )
        # Rows whose labels were scored last, and their utility.
        self._latest: tuple[bytes, float] = b"", 0.0
        self.blocks: Blocks = Blocks.cut(self.fragments.names, [CELLS])

    @property
    def shape(self) -> tuple[int, int]:
        """Number of players, and 1."""
        return self.blocks.shape

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the values of this game."""
        return {**self.inner.problem_spec(), **_describe_players(self.base), _HOLDINGS: self._plain}

    def parts(self) -> list[Any]:
        """Return the objects whose code determines the utilities."""
        parts = self.inner.parts() if isinstance(self.inner, ModelGame) else [self.inner]
        return [self, *parts]

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the utility of a coalition of owners."""
        return float(self.detailed_value(rows, columns))

    def detailed_value(self, rows: Mask, columns: Mask) -> float:
        """Return the same utility with its deviations over validation rows."""
        cells, labels = self.fragments.find_present(rows)
        there = labels & cells.any(axis=1)
        if columns.any():
            # Labels alone tell how frequent classes are.
            return self._scorer(cells, there if there.any() else self._labels_alone(labels))
        if self.fragments.labels_owned or self.base:
            return self._scorer.nothing()
        return self._score_labels(there)

    def _score_labels(self, rows: Mask) -> float:
        """Return the utility of the labels of some rows, which many coalitions share."""
        key, latest = rows.tobytes(), self._latest
        if latest[0] != key:
            nothing = np.zeros(self.problem.table.shape, dtype=bool)
            self._latest = latest = key, self._scorer(nothing, rows)
        return latest[1]

    def _labels_alone(self, labels: Mask) -> Mask:
        return labels if self.fragments.labels_owned else np.zeros_like(labels)


class _NeighborScorer:
    """Utility of nearest neighbors among the cells that are there."""

    def __init__(self, game: KNNGame) -> None:
        if game.limit is not None or game.agreement.weights is not None:
            raise ValueError("owners as players need equal votes; leave radius and weights out.")
        self._game = game
        self._weights = np.concatenate(game.query_weights)
        self._strata = np.concatenate(stratify_queries(game.query_groups, game.scoring))
        self._known: dict[int, Integers] = {}
        # Before the first utility is timed.
        for fold in range(len(game.problem.folds)):
            next(self._iter_relative(fold))

    def __getstate__(self) -> dict[str, Any]:
        # Each worker measures distances itself.
        return self.__dict__ | {"_known": {}}

    def __call__(self, cells: Mask, rows: Mask) -> float:
        folds = range(len(self._game.problem.folds))
        return self._combine(np.concatenate([self._score(fold, cells, rows) for fold in folds]))

    def nothing(self) -> float:
        return self._combine(np.zeros(len(self._weights)))

    def _combine(self, scores: Floats) -> float:
        """Return the weighted mean of the scores of validation rows, with its deviations."""
        deviations = np.empty(len(scores))
        for stratum in np.unique(self._strata):
            here = self._strata == stratum
            weights, n = self._weights[here], int(here.sum())
            mean = weights @ scores[here] / weights.sum()
            scale = widening(n) * math.sqrt(n / max(n - 1, 1))
            deviations[here] = (scores[here] - mean) * weights * scale
        shuffled = deviations[self._order]
        return DetailedUtility(float(self._weights @ scores), pool_deviations(shuffled, MAX_GROUPS))

    @cached_property
    def _order(self) -> Integers:
        # Neighbors in the table may be alike, and would be pooled.
        return np.random.default_rng(0).permutation(len(self._weights))

    def _score(self, fold: int, cells: Mask, rows: Mask) -> Floats:
        game, may_train = self._game, self._game.problem.folds[fold].may_train
        asked, here = game.query_labels[fold], rows[may_train]
        labels, train = game.labels_in(fold)[here], np.flatnonzero(rows & may_train)
        numbers, numbers_asked = (
            find_targets(some, game.class_targets(fold)) for some in (labels, asked)
        )

        def score(distances: NDArray[Any], queries: slice) -> Floats:
            if game.has_votes:
                return _score_votes(distances, game.find_gains(train, asked[queries]), game)
            pairs = zip(numbers, numbers_asked[:, queries], strict=True)
            errors = [_score_numbers(distances, *pair, game) for pair in pairs]
            return np.asarray(np.sum(errors, axis=0))

        if game.empty == "zero" and not cells[rows & may_train].any():
            return np.zeros(len(asked))
        if len(labels) == 0:
            return np.zeros(len(asked)) if game.has_votes else -(numbers_asked**2).sum(axis=0)
        if not cells[rows].any():
            # All rows tie.
            return score(np.zeros((len(asked), len(labels))), slice(None))
        scores = []
        for queries, relative in self._iter_relative(fold):
            distances = _add_columns(relative, cells[may_train])[:, here]
            scores.append(score(distances, queries))
        return np.concatenate(scores)

    def _iter_relative(self, fold: int) -> Iterator[tuple[slice, Integers]]:
        """Yield some queries and their distances minus those of missing values.

        Their shape is (n_columns, n_queries, n_rows).
        """
        n_rows, n_columns = self._game.problem.table.shape
        n_queries, at_once = len(self._game.query_labels[fold]), _MAX_DISTANCES // n_rows
        at_once = max(at_once // n_columns, 1)
        for start in range(0, n_queries, at_once):
            queries = slice(start, min(start + at_once, n_queries))
            if at_once < n_queries:
                yield queries, self._measure(fold, queries)
            else:
                if fold not in self._known:
                    self._known[fold] = self._measure(fold, queries)
                yield queries, self._known[fold]

    def _measure(self, fold: int, queries: slice) -> Integers:
        may_train = self._game.problem.folds[fold].may_train
        lines = [
            self._game.distances.measure(fold, query)[:, may_train]
            - self._blank.measure(fold, query)
            for query in range(queries.start, queries.stop)
        ]
        return np.ascontiguousarray(np.array(lines).swapaxes(0, 1))

    @cached_property
    def _blank(self) -> Distances:
        return _make_blank(self._game.distances)


def _add_columns(relative: Integers, present: Mask) -> Integers:
    """Return the distances over the cells that are there, shape (n_queries, n_rows)."""
    distances = np.zeros(relative.shape[1:], dtype=np.int64)
    for column, cells in zip(relative, present.T, strict=True):
        if cells.any():
            distances += column * cells
    return distances


def _make_blank(distances: Distances) -> Distances:
    """Return distances to a single row whose cells are all missing."""
    rows = distances.rows
    blank = rows._replace(
        numbers=np.full((len(rows.numbers), 1), np.nan),
        categories=np.full((len(rows.categories), 1), MISSING, dtype=rows.categories.dtype),
    )
    return replace(distances, rows=blank)


def _find_nearest(distances: NDArray[Any], n_neighbors: int) -> tuple[Mask, Mask, Integers]:
    """Return the rows that certainly vote, the rows that tie, and how many of these vote."""
    n_nearest = min(n_neighbors, distances.shape[1])
    farthest = np.partition(distances, n_nearest - 1, axis=1)[:, n_nearest - 1, np.newaxis]
    nearer = distances < farthest
    return nearer, distances == farthest, n_nearest - nearer.sum(axis=1)


def _score_votes(distances: NDArray[Any], gains: NDArray[Any], game: KNNGame) -> Floats:
    """Return the mean gain of the votes of K neighbors, averaged over orders of ties."""
    nearer, tied, n_left = _find_nearest(distances, game.n_neighbors)
    share = (gains * tied).sum(axis=1) / tied.sum(axis=1)
    total = (gains * nearer).sum(axis=1) + share * n_left
    return np.asarray(total / game.count_votes(gains.shape[1]))


def _score_numbers(distances: NDArray[Any], labels: Floats, asked: Floats, game: KNNGame) -> Floats:
    """Return minus the squared error of the mean of K targets, averaged over orders of ties."""
    n_neighbors = game.n_neighbors
    nearer, tied, n_left = _find_nearest(distances, n_neighbors)
    n_tied = tied.sum(axis=1)
    mean = tied @ labels / n_tied
    variance = (tied * (labels - mean[:, np.newaxis]) ** 2).sum(axis=1) / n_tied
    # Of a sum of n_left tied targets, drawn without replacement.
    variance = variance * n_left * (n_tied - n_left) / np.maximum(n_tied - 1, 1)
    total = nearer @ labels + n_left * mean
    return np.asarray(-((total / n_neighbors - asked) ** 2 + variance / n_neighbors**2))


class _ModelScorer:
    """Score of a model that is trained on the cells that are there."""

    def __init__(self, game: ModelGame) -> None:
        self._game = game

    def __call__(self, cells: Mask, rows: Mask) -> float:
        folds = range(len(self._game.problem.folds))
        return self._game.mean_utility([self._score(fold, cells, rows) for fold in folds])

    def nothing(self) -> float:
        return self._game.no_utility(detailed=True)

    def _score(self, fold: int, cells: Mask, rows: Mask) -> FoldScore:
        train = rows & self._game.problem.folds[fold].may_train
        some, every = cells[train].any(axis=0), cells[train].all(axis=0)
        known = (cells & self._filler.known)[train].any(axis=0)
        # A column with absent cells can be filled only from cells that are there and known.
        columns = np.asarray((every | (some & known)) & train.any())
        game, holes = self._game, np.flatnonzero(columns & ~every)
        if len(holes):
            game = game.on(self._filler.fill(cells, train, columns=holes))
        return game.fold_score(fold, rows, columns, detailed=True)

    @cached_property
    def _filler(self) -> TableFiller:
        return TableFiller(self._game.problem.table)


class OwnerValuer(Valuer):
    """Value owners as players: each joins a coalition with all of its cells, or not at all.

    Cells may be held in any shape. ``split_revenue`` takes the valuation with
    ``Policy(game="owners")``. Values of owners differ from sums of the values of their cells: they
    depend on who the owners are, not only on what each cell is worth; see
    ``docs/explanation/owners.md``.

    Up to 12 players values are exact; beyond, they are estimated from random orders of the owners,
    with sampling errors. An owner of labels is a player, too: rows without a label do not count.
    Cells without an owner are one more player, called "unassigned".

    Parameters
    ----------
    valuer : KNNValuer or ModelValuer
        Nearest neighbors or a model, with scoring, empty policy and semivalue. Its sampler, passes
        and stopping rule are not used.
    base : sequence of str, default=()
        Owners whose cells are always there. The values of the others are then what they add to the
        score of the base.
    stop : StoppingRule, default=None
        Rule that ends the run; None means exact values up to 12 players, and beyond the default of
        :class:`~cellworth.ModelValuer`.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the orders; exact values need none.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed.

    Attributes
    ----------
    valuation_ : Valuation
        One row for each owner, and one column.

    See Also
    --------
    split_revenue, compare_sources

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import OwnerValuer, split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuer = OwnerValuer(KNNValuer(1)).fit(X, y, X_val=X_val, y_val=y, owners=owners)
    >>> payout = split_revenue(valuer.valuation_, owners, amount="100.00")
    >>> dict(zip(payout.owners, map(str, payout.amounts), strict=True))
    {'ann': '75.00', 'bob': '25.00'}
    """

    def __init__(
        self,
        valuer: KNNValuer | ModelValuer | None = None,
        *,
        base: Sequence[str] = (),
        stop: StoppingRule | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.valuer = valuer
        self.base = base
        self.stop = stop
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime

    # Groups of rows and columns are not players here.
    def fit(
        self,
        X: TableLike,
        y: VectorLike,
        *,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        cv: CrossValidation = 5,
        groups: VectorLike | None = None,
        column_types: ColumnTypes | None = None,
        owners: Owners | None = None,
    ) -> Self:
        """Value the owners of a training table.

        Parameters
        ----------
        X : pandas, polars or Arrow table, or array, of shape (n_rows, n_columns)
            The table of the owners, without columns that only name them.
        y : array-like of shape (n_rows,)
            Labels.
        X_val, y_val : table and labels, default=None
            Validation rows; all of their cells are there. Without them, utilities are means over
            the folds of ``cv``.
        cv, groups : default=5 and None
            As in the valuer.
        column_types : mapping, default=None
            As in :class:`~cellworth.KNNValuer`.
        owners : Owners
            Who holds which cells and labels.

        Returns
        -------
        self
        """
        self._forget()
        inner = self._make_game(
            X, y, X_val=X_val, y_val=y_val, cv=cv, groups=groups, column_types=column_types
        )
        owners = check_owners(owners)
        owners.check_cells(inner.problem.table.sha256())
        game = OwnerGame(inner, owners, self._list_base())
        self._owners = owners
        return self._keep(inner, self._value(game, self._inspect_columns(inner)))

    def problem_spec(self, X: TableLike, y: VectorLike, **data: Any) -> dict[str, Any]:
        """Describe the problem that ``fit`` with these arguments solves, without its owners."""
        return super().problem_spec(X, y, **data) | _describe_players(self._list_base())

    def describe(self) -> dict[str, str]:
        """Return the name and the parameters of the valuer and of the one inside, as text."""
        own = {name: text for name, text in super().describe().items() if name != "valuer"}
        inner = self._check_valuer().describe()
        return own | {f"valuer_{name}": text for name, text in inner.items()}

    @property
    def semivalue(self) -> Any:
        """The semivalue of the valuer inside."""
        return self._check_valuer().semivalue

    def _check_valuer(self) -> KNNValuer | ModelValuer:
        if not isinstance(self.valuer, KNNValuer | ModelValuer):
            raise TypeError(
                "valuer must be a KNNValuer or a ModelValuer, got "
                f"{self.valuer!r}; pass one such as KNNValuer(5)."
            )
        return self.valuer

    def _list_base(self) -> tuple[str, ...]:
        return (self.base,) if isinstance(self.base, str) else tuple(self.base)

    def _make_game(
        self, X: Any, y: VectorLike, *, column_types: ColumnTypes | None = None, **data: Any
    ) -> KNNGame | ModelGame:
        if isinstance(X, ShardedTable):
            raise TypeError(
                "X must be a table in memory if owners are players, got a ShardedTable; value its "
                "cells with ShardedKNNValuer and split by their sums, or pass some of its rows."
            )
        valuer = self._check_valuer()
        if isinstance(valuer, KNNValuer):
            return valuer._make_game(X, y, column_types=column_types, **data)
        return valuer._make_game(X, y, **data)

    def _value(self, game: OwnerGame, columns: ColumnTable) -> Valuation:
        blocks, settings = game.blocks, self._settings(self.semivalue)
        holdings = self._owners.project(blocks)
        if self.stop is None and blocks.shape[0] <= _MAX_EXACT_PLAYERS:
            if self.random_state is not None:
                check_random_state(self.random_state)
            return value_coalitions(
                game, blocks, settings, estimator="exact", holdings=holdings, columns=columns
            )
        return value_coalitions(
            game, blocks, settings, stop=self.stop, random_state=self.random_state,
            holdings=holdings, columns=columns,
        )  # fmt: skip


def _describe_players(base: Sequence[str]) -> dict[str, Any]:
    return {_PLAYERS: "owners", _BASE: list(base)}


def _to_plain(holdings: Holdings) -> dict[str, Any]:
    return {
        "names": list(holdings.names),
        "rows": np.asarray(holdings.row_lines[:]).tolist(),
        "lines": holdings.lines.tolist(),
        "claims": holdings.claims.astype(int).tolist(),
    }


def read_players(valuation: Valuation) -> Holdings:
    """Return who holds which cells and labels in a valuation in which owners are players."""
    plain: Mapping[str, Any] = valuation.provenance.problem_spec[_HOLDINGS]
    rows, lines = (np.array(plain[name], dtype=np.int32) for name in ("rows", "lines"))
    return Holdings(tuple(plain["names"]), rows, lines, np.array(plain["claims"], dtype=bool))


def restore_players(table: Table, valuation: Valuation) -> Owners:
    """Restore the owners of a table from a valuation in which they are players."""
    holdings = read_players(valuation)
    codes, owners = holdings.codes(), Owners(table, overlaps="equal")
    for position, name in enumerate(holdings.names):
        held = holdings.claims[:, position][codes]
        if held[:, :-1].any():
            owners = owners.assign(name, cells=held[:, :-1])
        if held[:, -1].any():
            owners = owners.assign(name, rows=held[:, -1], columns="(label)")
    return owners


@dataclass(frozen=True, eq=False)
class SourceComparison:
    """What each source would add to the score of a base, from ``compare_sources``.

    Parameters
    ----------
    owners : tuple of str
        Owners outside the base.
    alone : array of shape (n_owners,)
        Gain in score if this source alone is added to the base.
    shared : array of shape (n_owners,)
        Its share of the gain if all sources are added.
    alone_se, shared_se : arrays of shape (n_owners,)
        Standard errors; NaN if unknown.
    base_score, full_score : float
        Score of the base, and with all sources.
    scored : str
        Name of the score, and the rows it was measured on.

    See Also
    --------
    compare_sources

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import compare_sources
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("me", columns="x1").assign("shop", columns="x0")
    >>> compare_sources(KNNValuer(1), owners, X, y, base=["me"], X_val=X_val, y_val=y)
    Base 0.7500, with all sources 1.0000 neighbor agreement (K = 1) on 4 validation rows
    owner   alone       95% interval  shared      95% interval
     shop  0.2500  -0.2093 to 0.7093  0.2500  -0.2093 to 0.7093
    """

    owners: tuple[str, ...]
    alone: Floats
    shared: Floats
    alone_se: Floats = field(repr=False)
    shared_se: Floats = field(repr=False)
    base_score: float
    full_score: float
    scored: str

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one row per source; intervals are 95%."""
        columns: dict[str, Any] = {"owner": list(self.owners)}
        for name, added, errors in self._iter_additions():
            half = WIDTH_95 * errors
            columns[name] = added.tolist()
            columns[f"{name}_low"] = (added - half).tolist()
            columns[f"{name}_high"] = (added + half).tolist()
        return frame(columns, backend)

    def __repr__(self) -> str:
        return self._view().text()

    def _repr_html_(self) -> str:
        """Show the sources in Jupyter; bars are what each adds alone."""
        return self._view().html()

    def _view(self) -> View:
        columns = {"owner": list(self.owners)}
        for name, added, errors in self._iter_additions():
            columns[name] = [f"{gain:.4f}" for gain in added]
            ends = np.column_stack([added - WIDTH_95 * errors, added + WIDTH_95 * errors])
            # Two columns of one table must have different names.
            title = f"95% interval{' ' if name == 'shared' else ''}"
            columns[title] = [
                "not known" if np.isnan(a) else f"{a:.4f} to {b:.4f}" for a, b in ends
            ]
        first = f"Base {self.base_score:.4f}, with all sources {self.full_score:.4f} {self.scored}"
        return View(first, columns, numbers=self.alone)

    def _iter_additions(self) -> Iterator[tuple[str, Floats, Floats]]:
        yield "alone", self.alone, self.alone_se
        yield "shared", self.shared, self.shared_se


def compare_sources(
    valuer: KNNValuer | ModelValuer,
    owners: Owners,
    X: TableLike,
    y: VectorLike,
    *,
    base: Sequence[str],
    X_val: TableLike | None = None,
    y_val: VectorLike | None = None,
    cv: CrossValidation = 5,
    column_types: ColumnTypes | None = None,
    random_state: RandomState = None,
) -> SourceComparison:
    """Estimate what each source would add to what a buyer has.

    Parameters
    ----------
    valuer : KNNValuer or ModelValuer
        Nearest neighbors or a model, with its scoring.
    owners : Owners
        Who holds which cells of X.
    X, y : table and labels
        All rows and columns: those of the buyer and those on offer.
    base : sequence of str
        Owners whose cells the buyer has.
    X_val, y_val : table and labels, default=None
        Validation rows of the buyer; without them, scores are means over the folds of ``cv``.
    cv : int, splitter or iterable of (train, validation) positions, default=5
    column_types : mapping, default=None
        As in :class:`~cellworth.KNNValuer`.
    random_state : int, Generator, RandomState or None, default=None
        Seed of random orders, for more than 12 sources.

    Returns
    -------
    SourceComparison

    See Also
    --------
    OwnerValuer, measure_owner_interactions

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import compare_sources
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("me", columns="x1").assign("shop", columns="x0")
    >>> compare_sources(KNNValuer(1), owners, X, y, base=["me"], X_val=X_val, y_val=y).alone
    array([0.25])
    """
    if not base:
        raise ValueError(
            "base must name the owners whose cells the buyer has, got none; use OwnerValuer to "
            "value all owners."
        )
    fitted = OwnerValuer(valuer, base=base, random_state=random_state)
    data: dict[str, Any] = {"X_val": X_val, "y_val": y_val, "cv": cv, "column_types": column_types}
    fitted.fit(X, y, owners=owners, **data)
    valuation = fitted.valuation_
    inner = fitted._make_game(X, y, **data)
    game = OwnerGame(inner, owners, fitted._list_base())
    members = np.eye(game.shape[0], dtype=bool)
    before = game.detailed_value(np.zeros(len(members), dtype=bool), _WITH_CELLS)
    after = [game.detailed_value(one, _WITH_CELLS) for one in members]
    order = [game.fragments.names.index(name) for name in _order_players(owners, game)]
    errors = np.array([_measure_error(utility, before) for utility in after])
    shared_se = valuation.sampling_se[:, 0]
    if valuation.validation_se is not None:
        shared_se = np.hypot(shared_se, valuation.validation_se[:, 0])
    scores = valuation.scores
    return SourceComparison(
        tuple(game.fragments.names[i] for i in order),
        np.array([float(utility) - float(before) for utility in after])[order],
        valuation.values[:, 0][order],
        errors[order],
        shared_se[order],
        float(before),
        valuation.score,
        "" if scores is None else f"{name_of_score(valuation)} on {scores.scored_on}",
    )


def measure_owner_interactions(
    valuer: KNNValuer | ModelValuer,
    owners: Owners,
    X: TableLike,
    y: VectorLike,
    *,
    X_val: TableLike | None = None,
    y_val: VectorLike | None = None,
    cv: CrossValidation = 5,
) -> PairInteractions:
    """Compute which owners are complements, and which are substitutes.

    Parameters
    ----------
    valuer, owners, X, y, X_val, y_val, cv
        As in :func:`compare_sources`. There may be at most 12 owners; they are the players, as in
        :class:`OwnerValuer`.

    Returns
    -------
    PairInteractions

    See Also
    --------
    compare_sources, cellworth.findings.measure_interactions

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import measure_owner_interactions
    >>> X, y = [[0.0, 0.0], [0.0, 9.0], [9.0, 0.0], [9.0, 9.0]] * 2, [0, 1, 1, 0] * 2
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> measure_owner_interactions(KNNValuer(1), owners, X, y, X_val=X, y_val=y)
    Interactions: above 0, two players are complements; below 0, substitutes
     players  interaction      95% interval
    ann, bob       0.5000  0.5000 to 0.5000
    """
    inner = OwnerValuer(valuer)._make_game(X, y, X_val=X_val, y_val=y_val, cv=cv)
    owners = check_owners(owners)
    owners.check_cells(inner.problem.table.sha256())
    semivalue = Settings.of(valuer.semivalue).row_semivalue
    game = OwnerGame(inner, owners)
    found = measure_interactions(game, semivalue=semivalue)
    names = _order_players(owners, game)
    order = [found.names.index(name) for name in names]
    here = np.ix_(order, order)
    return PairInteractions(tuple(names), found.values[here], found.errors[here])


def _order_players(owners: Owners, game: OwnerGame) -> list[str]:
    return [name for name in (*owners.names, UNASSIGNED) if name in game.fragments.names]


def _measure_error(after: float, before: float) -> float:
    """Return the standard error of a difference over validation rows; NaN if unknown."""
    deviations = [getattr(each, "deviations", None) for each in (after, before)]
    if deviations[0] is None or deviations[1] is None:
        return math.nan
    return float(np.sqrt(((deviations[0] - deviations[1]) ** 2).sum()))
