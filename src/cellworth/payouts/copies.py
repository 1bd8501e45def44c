"""Copies of rows: twins that chance does not explain, and one row in place of equal ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, permutations
from typing import Any

import numpy as np

from cellworth.data.arguments import MISSING, Floats, Mask, Positions
from cellworth.data.blocks import LABEL
from cellworth.data.owners import Owners
from cellworth.data.tables import HashedRows, Table, TableLike, VectorLike
from cellworth.knn.columns import NumericColumn, read_column
from cellworth.payouts.policy import take_labels, take_rows

# A row has a twin if it has an equal row, or if the distance of its nearest row is at most one of
# these shares of the distance of the next one. Each of these definitions is tried.
_NEARER = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5)
_LIMITS = np.array(_NEARER) + 1e-9
# Probability, by chance and for one comparison, below which twins are reported. With the least
# excess below, experiments/frauds.py measures that less than 1% of honest pairs are.
_CHANCE = 1e-4
# Least share of twins beyond the expected one: between owners; within one, for rows with equal
# ones, which honest owners of a dense part of a table have, and for other twins.
_MIN_EXCESS = 0.02
_MIN_EXCESS_WITHIN = (0.7, 0.2)
# Rows with equal ones are counted within an owner if other rows are at least this far away.
_MIN_APART = 0.5
_MIN_ROWS = 5
# Weight, in rows, of the share of twins among evenly spread rows.
_N_EVEN = 1_000
# Up to this many copies of one row of an owner are seen as such.
_MAX_COPIES = 8
# Rows of an owner that are compared, and distances for each comparison and for all pairs of owners.
_MAX_QUERIES, _MIN_QUERIES = 2_000, 60
_MAX_DISTANCES, _MAX_IN_ALL = 20_000_000, 200_000_000
_CHUNK = 2_000_000
# Numbers are compared within this many scale units around the median.
_FARTHEST = 3.0
# Distance of different categories, and of a missing value from a number, in scale units.
_MISMATCH = 1.5
_FAR = 1e9
# Validation rows among these shares of the nearest rows, of validation and reserve, are counted.
_SHARES_NEAREST = (0.02, 0.05)
# Near is compared with the distance of this row of other owners; below the blur, all are alike.
_NEXT_OF_OTHERS, _BLUR = 10, 0.1


class Cells:
    """A table as numbers in scale units and codes of categories, with rows of others below it."""

    def __init__(self, table: Table, *others: Table) -> None:
        sides = [table, *others]
        read = [read_column(position, sides, None, "robust") for position in range(table.shape[1])]
        self.names: list[Any] = table.names.tolist()
        self.categorical: Mask = np.array(
            [not isinstance(column, NumericColumn) for column in read]
        )
        # Missing values are equal to each other only.
        self.numbers: Floats = np.column_stack([_read_numbers(column) for column in read])
        self.known: Mask = self.numbers != MISSING * _FAR
        self.known[:, self.categorical] = self.numbers[:, self.categorical] != MISSING
        self.n_rows: int = table.shape[0]
        self._near = np.column_stack(
            [_clip(cells, known) for cells, known in zip(self.numbers.T, self.known.T, strict=True)]
        )
        # Categories, and whether a number is missing.
        self._codes = np.where(self.categorical, self.numbers, self.known)
        self._telling = self.categorical | ~self.known.all(axis=0)

    def measure(self, one: Positions, other: Positions, columns: Positions) -> Floats:
        """Return distances between rows, summed over columns."""
        from scipy.spatial.distance import cdist

        found = np.zeros((len(one), len(other)))
        numeric = columns[~self.categorical[columns]]
        if len(numeric):
            found += cdist(
                *(self._near[np.ix_(rows, numeric)] for rows in (one, other)), "cityblock"
            )
        telling = columns[self._telling[columns]]
        if len(telling):
            sides = (self._codes[np.ix_(rows, telling)] for rows in (one, other))
            found += _MISMATCH * len(telling) * cdist(*sides, "hamming")
        return found


def _read_numbers(column: Any) -> Floats:
    cells = np.concatenate(column.cells).astype(np.float64)
    if not isinstance(column, NumericColumn):
        return cells
    return np.where(np.isnan(cells), MISSING * _FAR, cells * np.sqrt(column.weight))


def _clip(cells: Floats, known: Mask) -> Floats:
    """Return distances from the median; far ones are equal."""
    middle = float(np.median(cells[known])) if known.any() else 0.0
    return np.where(known, np.clip(cells - middle, -_FARTHEST, _FARTHEST), 0.0)


@dataclass(frozen=True, eq=False)
class Nearness:
    """For some rows, how much nearer the nearest row is than the next one."""

    rows: Positions
    # Distance of the nearest rows as a share of that of the next one; 1 if both are 0.
    ratios: Floats
    # How many rows are that near.
    n_near: Positions
    # Whether rows have an equal row, several ones, and no other row nearby.
    equal: Mask
    crowded: Mask
    apart: Mask
    # Neighbors that are compared with their next one.
    n_ratios: int

    @cached_property
    def counts(self) -> Positions:
        """How many rows have a twin, by each definition."""
        near = (self.ratios[:, np.newaxis] <= _LIMITS).sum(axis=0)
        return np.append((self.equal & self.apart).sum(), near)

    def find(self, how: int) -> Mask:
        """Return which rows have a twin, by one of the definitions."""
        if how == 0:
            return np.asarray(self.equal & self.apart)
        return np.asarray(self.ratios <= _LIMITS[how - 1])

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Twins:
    """Rows of one owner that have more twins among others than chance explains."""

    owner: str
    source: str
    n_columns: int
    seen: Nearness
    how: int
    # Share of rows with a twin by chance.
    expected: float
    # How many rows each row stands for.
    weight: float = 1.0

    @property
    def share(self) -> float:
        """Share of rows with a twin."""
        return float(self.seen.find(self.how).mean())

    @property
    def count(self) -> int:
        """Number of rows with a twin; an estimate if not all were compared."""
        return round(int(self.seen.find(self.how).sum()) * self.weight)

    @property
    def equal(self) -> float:
        """Share of rows with an equal row."""
        return float(self.seen.equal.mean())

    def add_up(self, row_values: Floats | None) -> float | None:
        """Return the values of the rows with a twin; of an owner's own copies, all but one."""
        if row_values is None:
            return None
        has_twin = self.seen.find(self.how)
        parts = np.ones(int(has_twin.sum()))
        if self.owner == self.source:
            parts -= 1.0 / (self.seen.n_near[has_twin] + 1.0)
        return float(row_values[self.seen.rows[has_twin]] @ parts) * self.weight


class TwinSearch:
    """Nearest rows of owners, each computed once."""

    def __init__(self, cells: Cells, n_owners: int) -> None:
        self._cells = cells
        self._most_between = min(_MAX_DISTANCES, _MAX_IN_ALL // max(n_owners * (n_owners - 1), 1))
        self.n_columns: int = len(cells.names)
        self._made: dict[tuple[bytes, ...], Nearness] = {}

    def between(self, rows: Positions, others: Positions, columns: Positions) -> Nearness:
        """Compare rows with other rows: the nearest with the next."""
        if self._compares_all(rows, others) and self._compares_all(others, rows):
            return self._get_both(rows, others, columns)
        return self._get(rows, others, columns, 2)

    def within(self, rows: Positions, columns: Positions, n_copies: int = 2) -> Nearness:
        """Compare rows among themselves, up to ``n_copies`` neighbors."""
        return self._get(rows, rows, columns, n_copies)

    def drop_repeats(self, held: Mask, columns: Positions) -> Mask:
        """Return an owner's cells without rows that equal an earlier one."""
        rows = np.flatnonzero(held[:, columns].all(axis=1))
        cells = self._cells.numbers[np.ix_(rows, columns)]
        first = np.unique(cells, axis=0, return_index=True)[1]
        kept = held.copy()
        kept[np.delete(rows, first)] = False
        return kept

    def _get(
        self, rows: Positions, others: Positions, columns: Positions, n_copies: int
    ) -> Nearness:
        key = _name_search(rows, others, columns, n_copies)
        if key not in self._made:
            self._made[key] = self._search(rows, others, columns, n_copies)
        return self._made[key]

    def _compares_all(self, rows: Positions, others: Positions) -> bool:
        return len(_thin_out(rows, len(others), self._most_between)) == len(rows)

    def _get_both(self, rows: Positions, others: Positions, columns: Positions) -> Nearness:
        """Measure distances once, for the comparison asked for and for the opposite one."""
        key, opposite = (
            _name_search(*sides, columns, 2) for sides in ((rows, others), (others, rows))
        )
        if key not in self._made:
            forth, back = np.empty((len(rows), 2)), np.full((2, len(others)), np.inf)
            step = max(_CHUNK // len(others), 1)
            for start in range(0, len(rows), step):
                apart = self._cells.measure(rows[start : start + step], others, columns)
                apart[apart < 1e-9] = 0.0
                forth[start : start + step] = np.partition(apart, 1, axis=1)[:, :2]
                back = np.partition(np.vstack([back, apart]), 1, axis=0)[:2]
            self._made[key] = _compare_nearest(rows, np.sort(forth, axis=1))
            self._made[opposite] = _compare_nearest(others, np.sort(back, axis=0).T)
        return self._made[key]

    def _search(
        self, rows: Positions, others: Positions, columns: Positions, n_copies: int
    ) -> Nearness:
        own = rows is others
        queries = _thin_out(rows, len(others), _MAX_DISTANCES if own else self._most_between)
        n_nearest = min(n_copies, len(others) - own)
        nearest = np.empty((len(queries), n_nearest))
        next_apart = np.full(len(queries), np.inf)
        step = max(_CHUNK // len(others), 1)
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            apart = self._cells.measure(part, others, columns)
            if own:
                apart[part[:, None] == others] = np.inf
            # Differences of rounding are none.
            apart[apart < 1e-9] = 0.0
            nearest[start : start + step] = np.sort(
                np.partition(apart, n_nearest - 1, axis=1)[:, :n_nearest], axis=1
            )
            if n_copies > 2:
                next_apart[start : start + step] = np.where(apart > 0, apart, np.inf).min(axis=1)
        return _compare_nearest(queries, nearest, next_apart)


def _name_search(
    rows: Positions, others: Positions, columns: Positions, n_copies: int
) -> tuple[bytes, ...]:
    return rows.tobytes(), others.tobytes(), columns.tobytes(), bytes([n_copies])


def _compare_nearest(
    rows: Positions, nearest: Floats, next_apart: Floats | float = np.inf
) -> Nearness:
    """Compare the distances of the nearest rows, in order, with those of the next ones."""
    n_ratios = nearest.shape[1] - 1
    ratios = np.ones((len(rows), n_ratios))
    np.divide(nearest[:, :-1], nearest[:, 1:], out=ratios, where=nearest[:, 1:] > 0)
    n_near = ratios.argmin(axis=1) + 1
    equal, crowded = nearest[:, 0] == 0, nearest[:, 1] == 0
    alone = np.broadcast_to(np.asarray(next_apart) > _MIN_APART, len(rows))
    return Nearness(rows, ratios.min(axis=1), n_near, equal, crowded, alone, n_ratios)


class EqualSearch:
    """Equal rows, by hashes of a table's rows and of validation rows, which are not at hand."""

    def __init__(self, table: Table, validation: HashedRows) -> None:
        self._codes = np.append(validation.hash(table), validation.hashes)
        self.n_columns: int = table.shape[1]

    def between(self, rows: Positions, others: Positions, columns: Positions) -> Nearness:
        """Compare rows with other rows; hashes are of all columns."""
        codes, counts = np.unique(self._codes[others], return_counts=True)
        mine = self._codes[rows]
        at = np.minimum(np.searchsorted(codes, mine), len(codes) - 1)
        n_equal = np.where(codes[at] == mine, counts[at], 0) - (rows is others)
        ratios = np.where(n_equal == 1, 0.0, 1.0)
        apart = np.ones(len(rows), dtype=bool)
        return Nearness(rows, ratios, np.ones_like(rows), n_equal > 0, n_equal > 1, apart, 1)

    def within(self, rows: Positions, columns: Positions) -> Nearness:
        """Compare rows among themselves."""
        return self.between(rows, rows, columns)


def _thin_out(rows: Positions, n_others: int, n_distances: int) -> Positions:
    """Return some of the rows, evenly spaced, so that the search stays short."""
    most = min(max(n_distances // n_others, _MIN_QUERIES), _MAX_QUERIES)
    return rows[:: max(-(-len(rows) // most), 1)]


def find_copied_rows(
    search: TwinSearch | EqualSearch, rows: Mapping[str, Positions], columns: Positions
) -> Twins | None:
    """Return the twins of two owners, from the one who may have copied; None without twins.

    Honest rows have their nearest row of another owner about as near, compared with the next one,
    as they and the other's rows have among themselves, however dense the table is there.
    """
    if min(map(len, rows.values())) < _MIN_ROWS:
        return None
    found = []
    for owner, source in permutations(rows):
        seen = search.between(rows[owner], rows[source], columns)
        usual = [search.within(rows[name], columns) for name in (source, owner)]
        best = _compare(seen, usual, len(columns), (_MIN_EXCESS, _MIN_EXCESS))
        if best is not None:
            weight = len(rows[owner]) / len(seen)
            found.append(Twins(owner, source, len(columns), seen, *best, weight))
    return max(found, key=lambda twins: twins.share - twins.expected, default=None)


def find_repeated_rows(
    search: TwinSearch, rows: Mapping[str, Positions], columns: Positions
) -> Iterator[Twins]:
    """Yield owners with more twins among their own rows than other owners of these columns."""
    large = {name: some for name, some in rows.items() if len(some) > _MIN_ROWS}
    seen = {name: search.within(some, columns, _MAX_COPIES) for name, some in large.items()}
    for name, mine in seen.items():
        others = [theirs for other, theirs in seen.items() if other != name]
        if not others:
            continue
        best = _compare(mine, [_join(others)], len(columns), _MIN_EXCESS_WITHIN)
        if best is not None:
            yield Twins(name, name, len(columns), mine, *best, len(rows[name]) / len(mine))


@dataclass(frozen=True, eq=False)
class TooNear:
    """Validation rows that are nearer to an owner's rows than rows of the reserve are."""

    # Chance of so many, or more, if the owner did not know the validation rows.
    chance: float
    # Shares of the validation rows and of the reserve that are that near.
    share: float
    in_reserve: float
    # Rows of the owner to which these validation rows are near.
    rows: Positions


def compare_with_reserve(
    cells: Cells, labels: Positions, rows: Mapping[str, Positions], n_validation: int
) -> dict[str, TooNear]:
    """Compare how near validation rows and rows of a reserve are to the rows of each owner.

    Both are drawn from the same rows, so an owner who has not seen them is equally near to either:
    which of the nearest ones are validation rows is a matter of chance, however the owner's rows
    are distributed. This gives exact chances (of a hypergeometric distribution). How near is
    measured by a distance compared with those of other owners' rows and of other drawn rows.
    """
    drawn = np.arange(cells.n_rows, len(labels))
    next_drawn = _find_next_drawn(cells, labels, drawn)
    near = {name: np.empty(len(drawn)) for name in rows}
    which = {name: np.empty(len(drawn), dtype=np.intp) for name in rows}
    for part in _cut(drawn, cells.n_rows):
        apart = _measure_labeled(cells, labels, part)
        here = slice(part[0] - cells.n_rows, part[-1] - cells.n_rows + 1)
        for name, own in rows.items():
            others = np.delete(apart, own, axis=1)
            rank = min(_NEXT_OF_OTHERS, others.shape[1]) - 1
            usual = np.partition(others, rank, axis=1)[:, rank]
            score = apart[:, own] ** 2 / (usual[:, np.newaxis] * next_drawn[own])
            which[name][here] = own[score.argmin(axis=1)]
            near[name][here] = score.min(axis=1)
    return {name: _count_nearest(near[name], which[name], n_validation) for name in rows}


def _cut(rows: Positions, n_others: int) -> Iterator[Positions]:
    step = max(_CHUNK // n_others, 1)
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _measure_labeled(cells: Cells, labels: Positions, rows: Positions) -> Floats:
    """Return distances of rows from those of the table; another label is another category."""
    table = np.arange(cells.n_rows)
    found = cells.measure(rows, table, np.arange(len(cells.names)))
    found += _MISMATCH * (labels[rows, np.newaxis] != labels[table])
    # Below this, one is as near as another.
    return found + _BLUR


def _find_next_drawn(cells: Cells, labels: Positions, drawn: Positions) -> Floats:
    """Return the distance of each row of the table from the second nearest drawn row."""
    nearest = np.full((2, cells.n_rows), np.inf)
    for part in _cut(drawn, cells.n_rows):
        both = np.vstack([nearest, _measure_labeled(cells, labels, part)])
        nearest = np.sort(np.partition(both, 1, axis=0)[:2], axis=0)
    return np.asarray(nearest[1])


def _count_nearest(near: Floats, which: Positions, n_validation: int) -> TooNear:
    from scipy.stats import hypergeom

    found = []
    for share in _SHARES_NEAREST:
        limit = np.sort(near)[max(round(share * len(near)), 1) - 1]
        inside = near <= limit
        seen, n_inside = inside[:n_validation], int(inside.sum())
        n_seen = int(seen.sum())
        chance = hypergeom.sf(n_seen - 1, len(near), n_validation, n_inside)
        # Several shares are tried.
        chance = min(float(chance) * len(_SHARES_NEAREST), 1.0)
        rest = float(inside[n_validation:].mean())
        rows = np.unique(which[:n_validation][seen])
        found.append(TooNear(chance, n_seen / n_validation, rest, rows))
    return min(found, key=lambda one: one.chance)


def _join(parts: Sequence[Nearness]) -> Nearness:
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("rows", "ratios", "n_near", "equal", "crowded", "apart")
    }
    return Nearness(**joined, n_ratios=max(part.n_ratios for part in parts))


def _compare(
    seen: Nearness, usual: Sequence[Nearness], n_columns: int, least: tuple[float, float]
) -> tuple[int, float] | None:
    """Return the definition with most twins beyond chance, and their expected share.

    None if chance explains them. The number of twins is compared with the predictive distribution
    that follows from each of the usual counts (a beta-binomial distribution).
    """
    counts: list[tuple[Any, int]] = [
        (np.append(one.equal.sum(), one.counts[1:]), len(one)) for one in usual
    ]
    counts.append((_N_EVEN * _expect_twins(n_columns, seen.n_ratios), _N_EVEN))
    if len(usual) > 1:
        # Where rows of the source are equal to each other, others are equal to them, too.
        crowded = np.zeros(len(seen.counts))
        crowded[0] = seen.crowded.sum()
        counts.append((crowded, len(seen)))
    expected = np.max([count / size for count, size in counts], axis=0)
    excess = seen.counts / len(seen) - expected
    for how in np.argsort(-excess).tolist():
        if excess[how] < least[how > 0]:
            continue
        if all(
            _compute_chance(seen.counts[how], len(seen), n[how], size) < _CHANCE
            for n, size in counts
        ):
            return how, float(expected[how])
    return None


def _compute_chance(n_twins: int, n_rows: int, n_usual: float, n_compared: int) -> float:
    """Return the chance of so many twins or more, if so many of the rows compared with have one.

    The same as ``scipy.stats.betabinom.sf``, which takes far longer for a single number.
    """
    from scipy.special import betaln

    a, b = n_usual + 0.5, n_compared - n_usual + 0.5
    n = np.arange(n_twins, n_rows + 1)
    ways = -betaln(n_rows - n + 1, n + 1) - np.log(n_rows + 1)
    return float(np.exp(ways + betaln(n + a, n_rows - n + b) - betaln(a, b)).sum())


@cache
def _expect_twins(n_columns: int, n_ratios: int) -> Floats:
    """Return the share of twins among rows that are evenly spread over numeric columns.

    The j-th distance is below a share t of the next one with probability t**(j * n_columns).
    """
    powers = n_columns * np.arange(1, n_ratios + 1)
    chances = 1.0 - np.prod(1.0 - np.array(_NEARER)[:, None] ** powers, axis=1)
    return np.append(0.0, chances)


def iter_pairs(
    held: Mapping[str, Mask], find_rows: Callable[[Mask, Positions], Mask]
) -> Iterator[tuple[dict[str, Positions], Positions]]:
    """Yield, for each pair of owners, the rows that only one of them holds, and the columns.

    A row that both hold is not a copy. Rows are complete in the columns that both hold.
    """
    kept = {name: mine.any(axis=0) for name, mine in held.items()}
    complete: dict[tuple[str, bytes], Mask] = {}
    for one, other in combinations(held, 2):
        columns = np.flatnonzero(kept[one] & kept[other])
        if len(columns) == 0:
            continue
        keys = [(name, columns.tobytes()) for name in (one, other)]
        for key in keys:
            if key not in complete:
                complete[key] = find_rows(held[key[0]], columns)
        a, b = (complete[key] for key in keys)
        yield {one: np.flatnonzero(a & ~b), other: np.flatnonzero(b & ~a)}, columns


def share_copies(owners: Owners, X: TableLike, y: VectorLike) -> tuple[Owners, Any, Any]:
    """Keep one row of each set of equal rows, for the owners of all of them in equal parts.

    Values are then those of the distinct rows, so that an owner who hands in rows several times
    gets nothing for it. Value and split what is returned; the gate still reports an owner who
    copied another's rows. :meth:`Agreement.prepare <cellworth.payouts.Agreement.prepare>` does this
    if it is agreed. Rows with equal cells and different labels are kept.

    Parameters
    ----------
    owners : Owners
    X : table in memory
        The table of the owners.
    y : array-like of shape (n_rows,)

    Returns
    -------
    owners : Owners
        Of the kept rows; cells of several owners are shared equally.
    X, y : table and labels
        The first row of each set of equal rows.

    See Also
    --------
    check_owners

    Examples
    --------
    >>> from cellworth import Owners
    >>> from cellworth.payouts import share_copies
    >>> X, y = [[1, 2], [3, 4], [1, 2], [1, 2]], [0, 1, 0, 0]
    >>> owners = Owners.by_row(X, ["ann", "bob", "bob", "bob"])
    >>> owners, X, y = share_copies(owners, X, y)
    >>> X.tolist(), y.tolist()
    ([[1, 2], [3, 4]], [0, 1])
    >>> owners
    Owners of 2 x 2 cells
      ann  2 cells
      bob  4 cells
    """
    if not owners.sees_cells:
        raise ValueError("X must be a table in memory to look for copies, got a sharded table.")
    table = Table.from_data(X, called="X")
    owners.check_cells(table.sha256())
    first, group = _group_equal_rows(table, y)
    kept = np.sort(first)
    merged = np.searchsorted(kept, first)[group]
    rows = take_rows(table, kept)
    shared = Owners(rows, overlaps="equal").with_delivered(owners, merged)
    holdings = owners.holdings
    for name, claims in zip(holdings.names, holdings.claims.T, strict=True):
        held = np.zeros((len(kept), table.shape[1] + 1), dtype=bool)
        np.logical_or.at(held, merged, claims[holdings.codes()])
        if held[:, :-1].any():
            shared = shared.assign(name, cells=held[:, :-1])
        if held[:, -1].any():
            shared = shared.assign(name, rows=held[:, -1], columns=[LABEL])
    return shared, rows if isinstance(X, Table) else rows.native, take_labels(y, kept)


def count_copies(owners: Owners) -> int:
    """Return how many rows equal an earlier one; 0 if all rows have the same owners.

    Who holds columns of all rows cannot gain from copied rows.
    """
    if not owners.sees_cells or owners.delivered is not None:
        return 0
    codes = owners.holdings.codes()[:, :-1]
    if (codes == codes[:1]).all():
        return 0
    return len(codes) - len(np.unique(_read_cells(owners.table), axis=0))


def _read_cells(table: Any) -> Floats:
    """Return numbers and codes of categories; equal cells have equal ones."""
    read = [read_column(position, [table], None, None) for position in range(table.shape[1])]
    return np.column_stack([_read_numbers(column) for column in read])


def _group_equal_rows(table: Table, y: VectorLike) -> tuple[Positions, Positions]:
    """Return the first row of each set of equal rows, and the set of each row."""
    labels = np.unique(np.asarray(y), return_inverse=True)[1].ravel()
    if len(labels) != table.shape[0]:
        raise ValueError(
            f"y must have {table.shape[0]} labels, one for each row, got {len(labels)}."
        )
    cells = np.column_stack([_read_cells(table), labels])
    _, first, group = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    return first, group.ravel()
