"""OwnerValuer: owners as players, each with all of its cells or with none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np

from cellworth.data.arguments import (
    ColumnTypes,
    CrossValidation,
    Floats,
    Integers,
    Mask,
    Positions,
    RandomState,
    check_random_state,
)
from cellworth.data.blocks import Blocks
from cellworth.data.equal_rows import find_first_equal, mix_bits
from cellworth.data.holdings import Holdings
from cellworth.data.owners import CELLS, UNASSIGNED, Owners, check_owners
from cellworth.data.problem import Problem
from cellworth.data.tables import TableLike, VectorLike, frame
from cellworth.data.text import format_interval
from cellworth.data.views import View
from cellworth.findings.interactions import PairInteractions, measure_interactions
from cellworth.games.game import EmptyPolicy
from cellworth.games.model import FoldScore, ModelGame
from cellworth.games.table_filler import TableFiller
from cellworth.knn.knn_game import KNNGame
from cellworth.payouts.bundle import read_holdings, serialize_holdings
from cellworth.payouts.neighbor_scores import NeighborScorer, PartyScorer
from cellworth.runtime.run_settings import Runtime
from cellworth.runtime.stopping import StoppingRule
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.valuation import Valuation, name_of_score
from cellworth.valuers.knn_valuer import KNNValuer
from cellworth.valuers.model_valuer import ModelValuer, value_coalitions
from cellworth.valuers.settings import Settings
from cellworth.valuers.valuer import Valuer

# Up to this many players all coalitions are evaluated.
_MAX_EXACT_PLAYERS = 12
_PLAYERS, _BASE, _HOLDINGS = "players", "base", "holdings"
Shared = Literal["whole", "above baseline"]
_WITH_CELLS = np.array([True])


@dataclass(frozen=True, eq=False)
class Fragments:
    """Cells and labels that are there for a coalition of owners; others always are."""

    # Players, in an order that does not depend on names or on the order of assignment.
    names: tuple[str, ...]
    # Whether each player, and last the base, has a claim; shape (n_sets, n_players + 1).
    claims: Mask
    # Set of each cell, and of each label; shape (n_rows, n_columns + 1).
    codes: Integers
    # Whether labels have owners. Otherwise each comes with the first cell of its row.
    labels_owned: bool

    @classmethod
    def from_owners(cls, owners: Owners, base: Sequence[str], first_equal: Positions) -> Fragments:
        """Return the fragments of all owners outside the base, and of cells without an owner.

        Equal rows are one row, whose cells are held by all who hold one of them; ``first_equal``
        has the first row that equals each row.
        """
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
        in_base = holdings.claims[:, [name in base for name in holdings.names]].any(axis=1)
        claims = np.column_stack([claims, in_base])
        return cls(tuple(names), *_unite_equal_rows(claims, codes, first_equal), labels_owned)

    @property
    def has_parties_of_rows(self) -> bool:
        """Whether each row has the same owners in all columns, and labels have none."""
        return not self.labels_owned and bool((self.codes[:, :-1] == self.codes[:, :1]).all())

    def find_present(self, members: Mask) -> tuple[Mask, Mask]:
        """Return the cells that are there, shape (n_rows, n_columns), and the labels."""
        there = np.asarray(self.claims[:, np.append(members, True)].any(axis=1))
        present = there[self.codes]
        cells, labels = present[:, :-1], present[:, -1]
        return cells, labels if self.labels_owned else np.ones(len(cells), dtype=bool)


def _unite_equal_rows(
    claims: Mask, codes: Integers, first_equal: Positions
) -> tuple[Mask, Integers]:
    """Give each row to all owners of rows that equal it, and take its copies away."""
    copies = np.flatnonzero(first_equal != np.arange(len(first_equal)))
    if len(copies) == 0:
        return claims, codes
    codes, united = codes.copy(), dict[frozenset[int], int]()
    # Pairs of a row and a copy of it by other owners; several copies may have the same.
    pairs = np.unique(np.column_stack([first_equal[copies], codes[copies]]), axis=0)
    for row, *others in pairs.tolist():
        for column, other in enumerate(others):
            mine = codes[row, column]
            if (claims[other] <= claims[mine]).all():
                continue
            together = frozenset((int(mine), other))
            if together not in united:
                united[together] = len(claims)
                claims = np.vstack([claims, claims[mine] | claims[other]])
            codes[row, column] = united[together]
    codes[copies] = len(claims)
    return np.vstack([claims, np.zeros_like(claims[:1])]), codes


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
        held = Fragments.from_owners(owners, self.base, find_first_equal_rows(self.problem))
        self.fragments: Fragments = held
        rows = np.asarray(owners.holdings.row_lines[:]).tolist()
        self._plain = serialize_holdings(owners.holdings) | {"rows": rows}
        self._scorer: NeighborScorer | _ModelScorer = (
            _ModelScorer(game)
            if isinstance(game, ModelGame)
            else PartyScorer(game, held.claims, held.codes[:, 0])
            if held.has_parties_of_rows
            else NeighborScorer(game)
        )
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
        """Return the utility of a coalition of owners, with its deviations."""
        with_cells = bool(columns.any())
        if not with_cells and (self.fragments.labels_owned or self.base):
            return self._scorer.nothing
        if isinstance(self._scorer, PartyScorer):
            return self._scorer.score_members(rows, with_cells=with_cells)
        cells, labels = self.fragments.find_present(rows)
        there = labels & cells.any(axis=1)
        if not with_cells:
            return self._scorer(np.zeros_like(cells), there)
        # Labels alone tell how frequent classes are.
        return self._scorer(cells, there if there.any() else labels & self.fragments.labels_owned)


def find_first_equal_rows(problem: Problem) -> Positions:
    """Return for each training row the first one with the same cells and the same label."""
    labels = np.unique(problem.target, return_inverse=True)[1].ravel().astype(np.uint64)
    return find_first_equal(problem.table.hash_rows() + mix_bits(labels, 0))


class _ModelScorer:
    """Score of a model that is trained on the cells that are there."""

    def __init__(self, game: ModelGame) -> None:
        self._game = game

    def __call__(self, cells: Mask, rows: Mask) -> float:
        return self._game.mean_utility(lambda fold: self._score(fold, cells, rows))

    @property
    def nothing(self) -> float:
        return self._game.no_utility()

    def _score(self, fold: int, cells: Mask, rows: Mask) -> FoldScore:
        train = rows & self._game.problem.folds[fold].may_train
        some, every = cells[train].any(axis=0), cells[train].all(axis=0)
        known = (cells & self._filler.known)[train].any(axis=0)
        # A column with absent cells can be filled only from cells that are there and known.
        columns = np.asarray((every | (some & known)) & train.any())
        game, holes = self._game, np.flatnonzero(columns & ~every)
        if len(holes):
            game = game.on(self._filler.fill(cells, train, columns=holes))
        return game.fold_score(fold, rows, columns)

    @cached_property
    def _filler(self) -> TableFiller:
        return TableFiller(self._game.problem.table)


class OwnerValuer(Valuer):
    """Value owners as players: each joins a coalition with all of its cells, or not at all.

    Cells may be held in any shape. ``split_revenue`` takes the valuation with
    ``Policy(game="owners")``. Values of owners differ from sums of the values of their cells: they
    depend on who the owners are, not only on what each cell is worth; see
    ``docs/reference/owners.md``.

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
    score : {"whole", "above baseline"}, default=None
        What is shared: all of the score, so that no owners have 0, or what exceeds the score of
        the same rows' labels alone. None means "whole", and "above baseline" for errors such as
        "neg_mean_squared_error", of which 0 is the best.
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
    {'ann': '62.50', 'bob': '37.50'}
    """

    def __init__(
        self,
        valuer: KNNValuer | ModelValuer | None = None,
        *,
        base: Sequence[str] = (),
        score: Shared | None = None,
        stop: StoppingRule | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.valuer = valuer
        self.base = base
        self.score = score
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
        valuer = self._check_valuer()
        typed = isinstance(valuer, KNNValuer)
        types: dict[str, Any] = {"column_types": column_types} if typed else {}
        game: KNNGame | ModelGame = valuer._make_game(X, y, **data, **types)
        game.empty = self._choose_empty(game.scoring)
        return game

    def _choose_empty(self, scoring: str) -> EmptyPolicy:
        """Return what the score is without any owner: 0 if all of it is shared."""
        if self.score not in (None, *get_args(Shared)):
            choices = " or ".join(map(repr, get_args(Shared)))
            raise ValueError(f"score must be {choices}, or None, got {self.score!r}.")
        is_error = scoring.startswith("neg_")
        if is_error and self.score == "whole":
            raise ValueError(
                f"score='whole' needs a score that is 0 without data, but {scoring} is an error, "
                "of which 0 is the best; leave it out, or take another scoring."
            )
        return "prior" if is_error or self.score == "above baseline" else "zero"

    def _value(self, game: OwnerGame, columns: ColumnTable) -> Valuation:
        blocks, settings = game.blocks, self._settings(self.semivalue)
        holdings = self._owners.project(blocks)
        how: dict[str, Any] = {"stop": self.stop, "random_state": self.random_state}
        if self.stop is None and blocks.shape[0] <= _MAX_EXACT_PLAYERS:
            if self.random_state is not None:
                check_random_state(self.random_state)
            how = {"estimator": "exact"}
        return value_coalitions(game, blocks, settings, holdings=holdings, columns=columns, **how)


def _describe_players(base: Sequence[str]) -> dict[str, Any]:
    return {_PLAYERS: "owners", _BASE: list(base)}


def read_players(valuation: Valuation) -> Holdings:
    """Return who holds which cells and labels in a valuation in which owners are players."""
    plain: Mapping[str, Any] = valuation.provenance.problem_spec[_HOLDINGS]
    return read_holdings(plain, plain["rows"])


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
        for name in ("alone", "shared"):
            added, half = getattr(self, name), WIDTH_95 * getattr(self, f"{name}_se")
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
        for name in ("alone", "shared"):
            added, half = getattr(self, name), WIDTH_95 * getattr(self, f"{name}_se")
            columns[name] = [f"{gain:.4f}" for gain in added]
            # Two columns of one table must have different names.
            blank = " " if name == "shared" else ""
            columns[f"95% interval{blank}"] = list(map(format_interval, added, half))
        first = f"Base {self.base_score:.4f}, with all sources {self.full_score:.4f} {self.scored}"
        return View(first, columns, numbers=self.alone)


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
    before = game.value(np.zeros(len(members), dtype=bool), _WITH_CELLS)
    after = [game.value(one, _WITH_CELLS) for one in members]
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
    compared = OwnerValuer(valuer, score="above baseline")
    inner = compared._make_game(X, y, X_val=X_val, y_val=y_val, cv=cv)
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
