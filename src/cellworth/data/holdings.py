"""Holdings: the owners of every block, from claims on intervals of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Codes, Mask
from cellworth.data.blocks import LABEL, Axis, Blocks

_ROWS_AT_ONCE = 65_536
Ends = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Claim:
    """A rectangle of cells that one owner claims."""

    owner: str
    # First row of each stretch of rows, and the first row after it; sorted, and not adjacent.
    rows: Ends
    # The last column is that of the labels.
    columns: Mask
    # Rows and columns as the user gave them, if later rows are to be found by the same rule.
    rule: tuple[Any, Any] | None = None
    # Whether the column of sources makes this claim.
    by_source: bool = False

    def holds(self, rows: NDArray[np.integer[Any]]) -> Mask:
        """Return whether each of some rows is claimed."""
        return np.asarray(np.searchsorted(self.rows.ravel(), rows, side="right") % 2 == 1)


@dataclass(frozen=True, eq=False)
class Runs:
    """One code per row, stored once for each run of equal codes."""

    # First row after each run.
    ends: Ends
    codes: Codes

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Codes:
        """Return the codes of a range of rows, or of single rows."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            ends: Ends = np.clip(self.ends, start, stop)
            return np.repeat(self.codes, np.diff(ends, prepend=start))
        return self.codes[np.searchsorted(self.ends, rows, side="right")]


@dataclass(frozen=True, eq=False)
class Holdings:
    """Owners of each block; rows with the same owners share one line."""

    names: tuple[str, ...]
    # Line of ``lines`` of each row; shape (n_rows,).
    row_lines: Codes | Runs
    # Line of ``claims`` of each block; shape (n_lines, n_columns).
    lines: Codes
    # Whether each owner has a claim; shape (n_sets, n_owners). Owners of a block share it equally.
    claims: Mask

    @classmethod
    def from_claims(
        cls,
        names: tuple[str, ...],
        claims: Sequence[Claim],
        shape: tuple[int, int],
        *,
        rest: str | None = None,
    ) -> Holdings:
        """Resolve claims on the cells of a table.

        The owner ``rest`` gets the cells that no one claims, but no labels.
        """
        first, patterns = _find_patterns(claims, shape[0])
        claimed = np.zeros((len(first), shape[1] + 1, len(names)), dtype=bool)
        for claim in claims:
            held = np.ix_(np.flatnonzero(claim.holds(first)), np.flatnonzero(claim.columns))
            claimed[:, :, names.index(claim.owner)][held] = True
        if rest is not None:
            claimed[:, :-1, names.index(rest)] |= ~claimed[:, :-1].any(axis=2)
        # Not -1: without owners, NumPy cannot infer the size.
        n_blocks = claimed.shape[0] * claimed.shape[1]
        distinct, codes = _find_distinct(claimed.reshape(n_blocks, claimed.shape[2]))
        # Rows with different claims may still have the same owners.
        lines, positions = np.unique(codes.reshape(claimed.shape[:2]), axis=0, return_inverse=True)
        runs = Runs(patterns.ends, positions.ravel().astype(np.int32)[patterns.codes])
        return cls(names, runs, lines.astype(np.int32), distinct)

    def project(self, blocks: Blocks) -> Holdings:
        """Return the owners of the blocks of a table; all cells of a block must have the same."""
        columns = blocks.columns
        lines = self.lines if LABEL in columns.ids.tolist() else self.lines[:, :-1]
        first = _find_first(columns)
        split = np.flatnonzero((lines != lines[:, first[columns.codes]]).any(axis=0))
        if len(split):
            raise _make_split_error("column", columns.labels[columns.codes[split[0]]])
        rows = blocks.rows
        if not rows.grouped:
            return replace(self, lines=lines[:, first])
        group_lines = self.row_lines[_find_first(rows)]
        split = np.flatnonzero(np.asarray(self.row_lines[:]) != group_lines[rows.codes])
        if len(split):
            raise _make_split_error("row", rows.labels[rows.codes[split[0]]])
        return replace(self, row_lines=group_lines, lines=lines[:, first])

    def codes(self, rows: slice = slice(None)) -> Codes:
        """Return the line of ``claims`` for each block of some rows."""
        return np.asarray(self.lines[self.row_lines[rows]])

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Share of each owner in a block, by line of ``claims``; shape (n_sets, n_owners)."""
        return np.asarray(self.claims / np.maximum(self.claims.sum(axis=1, keepdims=True), 1))

    @cached_property
    def hold_blocks(self) -> Mask:
        """Whether each owner holds any block; labels that are not valued do not count."""
        patterns = np.unique(self.lines[self.rows_of_lines > 0])
        return np.asarray(self.claims[patterns].any(axis=0))

    @cached_property
    def rows_of_lines(self) -> NDArray[np.int64]:
        """Number of rows of each line."""
        found = np.zeros(len(self.lines), dtype=np.int64)
        if isinstance(self.row_lines, Runs):
            np.add.at(found, self.row_lines.codes, np.diff(self.row_lines.ends, prepend=0))
            return found
        return found + np.bincount(self.row_lines, minlength=len(found))

    def cells_of_claims(self, columns: slice) -> NDArray[np.int64]:
        """Return the number of blocks of some columns for each line of ``claims``."""
        lines = self.lines[:, columns]
        found = np.zeros(len(self.claims), dtype=np.int64)
        np.add.at(found, lines, self.rows_of_lines[:, np.newaxis])
        return found

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Hash of the cells of each owner, independent of its name."""
        return tuple(map(self._key, (self.claims * self.claims.sum(axis=1, keepdims=True)).T))

    def _key(self, n_claims: NDArray[np.int64]) -> str:
        # Hash the cells themselves: the numbering of lines depends on the other owners.
        held = n_claims.astype("<u2")[self.lines]
        digest = hashlib.sha256(repr((len(self.row_lines), held.shape[1])).encode())
        for start in range(0, len(self.row_lines), _ROWS_AT_ONCE):
            rows = self.row_lines[start : start + _ROWS_AT_ONCE]
            digest.update(held[rows].tobytes())
        return digest.hexdigest()


def find_stretches(positions: Iterable[int]) -> Ends:
    """Return rows, given in any order, as stretches: first row of each, and the first after it."""
    rows = np.unique(np.fromiter(positions, dtype=np.int64))
    begins = np.flatnonzero(np.diff(rows, prepend=-2) > 1)
    ends = np.flatnonzero(np.diff(rows, append=rows[-1:] + 2) > 1)
    return np.column_stack([rows[begins], rows[ends] + 1])


def _find_patterns(claims: Sequence[Claim], n_rows: int) -> tuple[NDArray[np.intp], Runs]:
    """Return one row of each pattern of claims, and the pattern of each run of rows."""
    ends = [claim.rows for claim in claims]
    cuts = np.unique(np.concatenate([np.array([0, n_rows]), *(some.ravel() for some in ends)]))
    patterns, n_patterns = np.zeros(len(cuts) - 1, dtype=np.int64), 1
    for some in ends:
        # Visit only the claimed runs: there may be many claims and many runs.
        begins, lengths = np.searchsorted(cuts, some[:, 0]), np.diff(np.searchsorted(cuts, some))
        before = np.cumsum(lengths.ravel()) - lengths.ravel()
        mine = np.repeat(begins - before, lengths.ravel()) + np.arange(lengths.sum())
        distinct, positions = np.unique(patterns[mine], return_inverse=True)
        patterns[mine] = n_patterns + positions
        n_patterns += len(distinct)
    _, first, run_patterns = np.unique(patterns, return_index=True, return_inverse=True)
    return cuts[first], Runs(cuts[1:], run_patterns.ravel().astype(np.int32))


def _find_distinct(claimed: Mask) -> tuple[Mask, NDArray[np.intp]]:
    """Return the sets of owners that hold cells, and the set of each cell."""
    n_owners = claimed.shape[1]
    if n_owners == 0:
        return np.zeros((1, 0), dtype=bool), np.zeros(len(claimed), dtype=np.intp)
    n_claims = claimed.sum(axis=1)
    codes = np.where(n_claims == 1, claimed.argmax(axis=1) + 1, 0)
    shared = n_claims > 1
    together, positions = np.unique(claimed[shared], axis=0, return_inverse=True)
    codes[shared] = n_owners + 1 + positions.ravel()
    alone = np.eye(n_owners + 1, n_owners, k=-1, dtype=bool)
    return np.concatenate([alone, together.reshape(-1, n_owners)]), codes


def _find_first(axis: Axis) -> NDArray[np.intp]:
    return np.unique(axis.codes, return_index=True)[1]


def _make_split_error(what: str, label: Any) -> ValueError:
    return ValueError(
        f"the {what} group {label!r} must belong to one owner, got several; choose groups within "
        f"one owner's cells, or value single {what}s."
    )
