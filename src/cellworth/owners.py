"""Owners: who holds which cells of a table, in rectangles or in any other shape."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.absent import AbsentTable, is_absent
from cellworth.blocks import (
    LABEL,
    Axis,
    Blocks,
    Labels,
    Mask,
    NumberedAxis,
    is_missing,
    label_array,
    some,
)
from cellworth.counts import is_whole
from cellworth.files import local_path
from cellworth.stretches import Codes, Runs, Stretches
from cellworth.tables import Table, entries_per_cell

Overlaps = Literal["refuse", "equal", "first"]

_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class Claim:
    """Cells that one owner claims: a rectangle, or where ``cells`` is given, what it marks."""

    owner: str
    rows: Mask | Stretches
    columns: Mask
    cells: Mask | None = None

    def of_rows(self, rows: NDArray[np.intp]) -> Mask:
        """Cells that are claimed in some rows, shape (n, n_columns + 1)."""
        if self.cells is not None:
            return self.cells[rows]
        return np.asarray(self.rows[rows, np.newaxis] & self.columns)

    def meets(self, other: Claim) -> tuple[int, int] | None:
        """One cell that both claim, or None."""
        rows = self._common_rows(other)
        columns = np.flatnonzero(self.columns & other.columns)
        if len(rows) == 0 or len(columns) == 0:
            return None
        both = np.ones((len(rows), len(columns)), dtype=bool)
        for claim in (self, other):
            if claim.cells is not None:
                both &= claim.cells[np.ix_(rows, columns)]
        found = np.argwhere(both)
        return (int(rows[found[0, 0]]), int(columns[found[0, 1]])) if len(found) else None

    def _common_rows(self, other: Claim) -> NDArray[np.intp]:
        """Rows in which both claim something; of stretches, the first is enough."""
        if isinstance(self.rows, Stretches) and isinstance(other.rows, Stretches):
            first = self.rows.first_common(other.rows)
            return np.array([] if first is None else [first], dtype=np.intp)
        return np.flatnonzero(np.asarray(self.rows) & np.asarray(other.rows))


@dataclass(frozen=True, eq=False)
class Holdings:
    """Who holds each block; rows that are held alike share one line.

    Parameters
    ----------
    names : tuple of str
        The owners.
    row_lines : array of shape (n_rows,), or Runs
        Which line of ``lines`` tells who holds the blocks of each row.
    lines : array of shape (n_lines, n_columns)
        Which line of ``claims`` tells who holds a block.
    claims : array of shape (n_kinds, n_owners)
        Whether each owner has a claim; those who have one share alike.
    """

    names: tuple[str, ...]
    row_lines: Codes | Runs
    lines: Codes
    claims: Mask

    def codes(self, rows: slice = slice(None)) -> Codes:
        """Line of ``claims`` for each block of some rows."""
        found: Codes = self.lines[self.row_lines[rows]]
        return found

    @cached_property
    def hold_blocks(self) -> Mask:
        """Whether each owner holds any block; one who holds labels that do not play has none."""
        kinds = np.unique(self.lines[self.rows_of_lines > 0])
        return np.asarray(self.claims[kinds].any(axis=0))

    @cached_property
    def rows_of_lines(self) -> NDArray[np.int64]:
        """How many rows are held as each line says."""
        found = np.zeros(len(self.lines), dtype=np.int64)
        if isinstance(self.row_lines, Runs):
            np.add.at(found, self.row_lines.codes, self.row_lines.lengths)
            return found
        return found + np.bincount(self.row_lines, minlength=len(found))

    def cells_of_claims(self, columns: slice) -> NDArray[np.int64]:
        """How many blocks of some columns each line of ``claims`` tells of."""
        lines = self.lines[:, columns]
        found = np.zeros(len(self.claims), dtype=np.int64)
        np.add.at(found, lines, self.rows_of_lines[:, np.newaxis])
        return found

    def of_nobody(self) -> Mask:
        """Columns in which some block is nobody's."""
        free = self.claims.sum(axis=1) == 0
        return np.asarray(free[self.lines[self.rows_of_lines > 0]].any(axis=0))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Fingerprint of what each owner holds, whatever its name is."""
        return tuple(self._key(owner) for owner in range(len(self.names)))

    def _key(self, owner: int) -> str:
        # Cell by cell: how lines are numbered depends on what others own.
        held = (self.claims[:, owner] * self.claims.sum(axis=1)).astype("<u2")[self.lines]
        digest = hashlib.sha256(repr((len(self.row_lines), held.shape[1])).encode())
        for start in range(0, len(self.row_lines), _ROWS_AT_ONCE):
            rows = self.row_lines[start : start + _ROWS_AT_ONCE]
            digest.update(held[rows].tobytes())
        return digest.hexdigest()


class Owners:
    """Who holds which cells of a table.

    Parameters
    ----------
    X : pandas, polars or Arrow table, array, or table in shards
        The table that was, or will be, valued. Of one in shards, rows are named by position, and
        what stands in cells is not looked at.
    overlaps : {"refuse", "equal", "first"}, default="refuse"
        What happens where two owners claim a cell: an error, equal shares of its value, or all of
        it to the one who was assigned first.

    Examples
    --------
    >>> owners = Owners([[1, 2, 3], [4, 5, 6]])
    >>> owners = owners.assign("bank", columns=["x0", "x1"])
    >>> owners.assign("shop", rows=[0], columns="x2")
    Owners of 2 x 3 cells
      bank  4 cells
      shop  1 cell
      nobody  1 cell
    """

    def __init__(self, X: Any, *, overlaps: Overlaps = "refuse") -> None:
        """Begin with cells that nobody holds."""
        if overlaps not in get_args(Overlaps):
            raise ValueError(f"overlaps is {overlaps!r}; give 'refuse', 'equal' or 'first'.")
        self.table = AbsentTable(X) if is_absent(X) else Table.of(X, called="X")
        if LABEL in self.table.names.tolist():
            raise ValueError(f"X has a column called {LABEL!r}, the name of the labels; rename it.")
        self.overlaps = overlaps
        self._claims: tuple[Claim, ...] = ()

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], X: Any) -> Owners:
        """Read owners from a TOML file: a list ``[[owners]]`` with name, rows and columns.

        ``rows`` is a list of row ids, ``{from = 0, to = 500}`` (positions, the end not included)
        or ``{column = "region", is = "north"}``; all rows where it is left out. ``columns`` is a
        list of names; all columns where it is left out.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp()) / "owners.toml"
        >>> holding = "{name = 'bank', rows = {from = 0, to = 1}, columns = ['x0', 'x1']}"
        >>> _ = file.write_text(f"owners = [{holding}]")
        >>> Owners.from_toml(file, [[1, 2, 3], [4, 5, 6]])
        Owners of 2 x 3 cells
          bank  2 cells
          nobody  4 cells
        """
        return cls.from_plain(read_toml(path), X, called=str(path))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], X: Any, *, called: str) -> Owners:
        """Read owners from what a TOML file holds."""
        owners = cls(X, overlaps=plain.get("overlaps", "refuse"))
        for entry in checked_entries(plain.get("owners"), called):
            owners = owners.assign(
                entry["name"], rows=entry.get("rows"), columns=entry.get("columns")
            )
        return owners

    def assign(
        self, name: str, *, rows: Any = None, columns: Any = None, cells: Any = None
    ) -> Owners:
        """Give cells to an owner, besides those that it has already; returns new Owners.

        Parameters
        ----------
        name : str
        rows : default=None
            A row id or row ids, a boolean array, a slice of positions, ``{"from": 0, "to": 500}``
            (positions, the end not included), or ``{"column": name, "is": value or values}``;
            None means all rows.
        columns : default=None
            A name or names of columns, ``"(label)"`` for the labels; None means all columns of the
            table, without the labels.
        cells : boolean array of shape (n_rows, n_columns), default=None
            Any shape, in place of rows and columns.

        Examples
        --------
        >>> people = Owners([[30, 1200], [41, 900], [25, 1100]]).assign("town", columns="x0")
        >>> people = people.assign("bank", rows=slice(0, 2), columns="x1")
        >>> people.assign("shop", rows={"column": "x0", "is": 25}, columns="x1").codes.tolist()
        [[0, 1], [0, 1], [0, 2]]
        """
        _refuse_name(name)
        if cells is not None:
            if rows is not None or columns is not None:
                raise ValueError(
                    f"owner {name!r} came with cells and with rows or columns; give one of them."
                )
            claim = self._any_shape(name, cells)
        else:
            claim = Claim(name, self._row_mask(name, rows), self._column_mask(name, columns))
        self._refuse_overlap(claim)
        more = Owners(self.table, overlaps=self.overlaps)
        more._claims = (*self._claims, claim)
        return more

    @property
    def names(self) -> list[str]:
        """Owners, in the order in which they were first assigned something."""
        return list(dict.fromkeys(claim.owner for claim in self._claims))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the table."""
        return self.table.shape

    @property
    def sees_cells(self) -> bool:
        """Whether the table is at hand; one in shards is not."""
        return not isinstance(self.table, AbsentTable)

    @property
    def codes(self) -> Codes:
        """Place of each cell's owner in ``names``; -1 for nobody, -2 where several share."""
        holdings = self._holdings
        n_claims = holdings.claims.sum(axis=1)
        places = np.where(n_claims == 1, holdings.claims.argmax(axis=1), -2)
        places[n_claims == 0] = -1
        return places.astype(np.int32)[holdings.codes()[:, : self.shape[1]]]

    @property
    def unowned(self) -> int:
        """How many cells of the table nobody holds; labels are not counted."""
        counts = self._holdings.cells_of_claims(slice(0, self.shape[1]))
        return int(counts[self._holdings.claims.sum(axis=1) == 0].sum())

    def n_cells_of(self, name: str) -> int:
        """How many cells of the table an owner has a share in; labels are not counted."""
        counts = self._holdings.cells_of_claims(slice(0, self.shape[1]))
        return int(counts[self._holdings.claims[:, self._place(name)]].sum())

    def cells_of(self, name: str) -> Mask:
        """Cells in which an owner has a share, shape (n_rows, n_columns).

        Examples
        --------
        >>> owners = Owners([[1, 2, 3], [4, 5, 6]]).assign("bank", rows=[0], columns=["x0", "x2"])
        >>> owners.cells_of("bank").tolist()
        [[True, False, True], [False, False, False]]
        """
        place = self._place(name)
        holdings = self._holdings
        return holdings.claims[:, place][holdings.codes()[:, : self.shape[1]]]

    def share_of_labels(self) -> dict[str, int]:
        """How many labels each owner has a share in."""
        holdings = self._holdings
        held = (holdings.cells_of_claims(slice(-1, None)) @ holdings.claims).tolist()
        return {name: n for name, n in zip(holdings.names, held, strict=True) if n}

    def on(self, blocks: Blocks) -> Holdings:
        """Who holds the blocks of a table that is cut; a block must be held as a whole."""
        self._refuse_other_table(blocks)
        holdings = self._holdings
        columns = blocks.columns
        lines = holdings.lines if LABEL in columns.ids.tolist() else holdings.lines[:, :-1]
        first = _first_of_each(columns)
        split = np.flatnonzero((lines != lines[:, first[columns.codes]]).any(axis=0))
        if len(split):
            raise _split_block("column", columns.labels[columns.codes[split[0]]])
        rows = blocks.rows
        if not rows.grouped:
            return replace(holdings, lines=lines[:, first])
        of_players = holdings.row_lines[_first_of_each(rows)]
        split = np.flatnonzero(np.asarray(holdings.row_lines[:]) != of_players[rows.codes])
        if len(split):
            raise _split_block("row", rows.labels[rows.codes[split[0]]])
        return replace(holdings, row_lines=of_players, lines=lines[:, first])

    def refuse_other_cells(self, sha256: str | None) -> None:
        """Refuse a table with other cells than that of a fingerprint, where there is one."""
        # Of a table in shards it may not be known.
        if sha256 is not None and self.table.sha256() not in (sha256, ""):
            raise ValueError(
                "owners are of a table with other cells than the one that is valued (its sha256 "
                "differs); give Owners the very table that fit gets."
            )

    def to_plain(self) -> list[dict[str, Any]]:
        """Every holding as name, rows and columns, as :meth:`from_toml` reads them."""
        return [entry for claim in self._claims for entry in self._plain(claim)]

    def __repr__(self) -> str:
        """Say how many cells each owner has."""
        n_rows, n_columns = self.shape
        counts = [(name, self.n_cells_of(name)) for name in self.names]
        if self.unowned:
            counts.append(("nobody", self.unowned))
        lines = [f"  {name}  {n:,} cell{'' if n == 1 else 's'}" for name, n in counts]
        labels = [f"  {name}  {n:,} labels" for name, n in self.share_of_labels().items()]
        return "\n".join([f"Owners of {n_rows:,} x {n_columns:,} cells", *lines, *labels])

    @cached_property
    def _holdings(self) -> Holdings:
        first, kinds = self._kinds_of_rows() if self.sees_cells else self._runs_of_rows()
        claimed = self._claimed(first)
        # Not -1: without owners, NumPy cannot tell how many.
        n_blocks = claimed.shape[0] * claimed.shape[1]
        claims, codes = _distinct(claimed.reshape(n_blocks, claimed.shape[2]))
        # Rows that are claimed in other ways may still be held alike.
        lines, places = np.unique(codes.reshape(claimed.shape[:2]), axis=0, return_inverse=True)
        of_kinds: Codes = places.ravel().astype(np.int32)
        row_lines = Runs(kinds.ends, of_kinds) if isinstance(kinds, Runs) else of_kinds[kinds]
        return Holdings(tuple(self.names), row_lines, lines.astype(np.int32), claims)

    def _kinds_of_rows(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """One row of each kind that is claimed in its own way, and the kind of every row."""
        kinds = np.zeros(self.shape[0], dtype=np.int64)
        for claim in self._claims:
            rows = np.asarray(claim.rows) if claim.cells is None else claim.cells
            kinds = _told_apart(kinds, rows)
        _, first, row_kinds = np.unique(kinds, return_index=True, return_inverse=True)
        return first, row_kinds.ravel()

    def _runs_of_rows(self) -> tuple[NDArray[np.intp], Runs]:
        """The same for rows in stretches: their first rows, and where each ends."""
        ends = [
            claim.rows.ends.ravel() for claim in self._claims if isinstance(claim.rows, Stretches)
        ]
        cuts = np.unique(np.concatenate([np.array([0, self.shape[0]]), *ends]))
        return cuts[:-1], Runs(cuts[1:], np.arange(len(cuts) - 1, dtype=np.int32))

    def _claimed(self, rows: NDArray[np.intp]) -> Mask:
        """Who claims each cell of some rows, the label last; shape (n, n_columns + 1, n_owners)."""
        names = self.names
        claimed = np.zeros((len(rows), self.shape[1] + 1, len(names)), dtype=bool)
        taken = np.full(claimed.shape[:2], -1)
        for claim in self._claims:
            place = names.index(claim.owner)
            mine = claim.of_rows(rows)
            if self.overlaps == "first":
                mine = mine & ((taken == -1) | (taken == place))
                taken[mine] = place
            claimed[:, :, place] |= mine
        return claimed

    def _plain(self, claim: Claim) -> Iterator[dict[str, Any]]:
        names = np.append(self.table.names.astype(object), LABEL)
        if claim.cells is None:
            rectangles = [(claim.rows, claim.columns)]
        else:
            columns = np.eye(len(names), dtype=bool)
            rectangles = [(claim.cells[:, j], columns[j]) for j in np.flatnonzero(claim.columns)]
        for rows, columns in rectangles:
            entry: dict[str, Any] = {"name": claim.owner, "columns": names[columns].tolist()}
            if rows.all():
                yield entry
            else:
                yield from (entry | {"rows": some} for some in self._plain_rows(rows))

    def _plain_rows(self, rows: Mask | Stretches) -> Iterator[dict[str, int] | list[Any]]:
        """Rows as one stretch of positions, or as ids; as stretches where ids do not tell."""
        if isinstance(rows, Stretches):
            yield from ({"from": start, "to": end} for start, end in rows.ends.tolist())
            return
        ends = np.flatnonzero(np.diff(np.pad(rows, 1).astype(np.int8))).reshape(-1, 2).tolist()
        ids = self.table.row_ids.tolist()
        mine = [ids[place] for place in np.flatnonzero(rows)]
        if len(ends) == 1 or not set(mine).isdisjoint(
            ids[place] for place in np.flatnonzero(~rows)
        ):
            yield from ({"from": start, "to": end} for start, end in ends)
        else:
            yield mine

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"no owner is called {name!r}; owners are {some(self.names)}.")
        return self.names.index(name)

    def _any_shape(self, name: str, cells: Any) -> Claim:
        called = f"cells of owner {name!r}"
        if not self.sees_cells:
            raise ValueError(
                f"{called} came for a table in shards; give rows by position, and columns."
            )
        marked = entries_per_cell(cells, self.table.names, self.table.row_ids, called=called)
        if marked.dtype.kind != "b" or marked.shape != self.shape:
            raise ValueError(
                f"cells of owner {name!r} is an array of {marked.dtype} of shape {marked.shape}; "
                f"give True or False for each cell, shape {self.shape}."
            )
        marked = np.pad(marked, ((0, 0), (0, 1)))
        if not marked.any():
            raise ValueError(f"cells of owner {name!r} marks no cell; leave the owner out.")
        rows, columns = (np.asarray(marked.any(axis=axis)) for axis in (1, 0))
        return Claim(name, rows, columns, marked)

    def _stretches(self, name: str, rows: Any) -> Stretches:
        """Rows of a table in shards, by position."""
        n_rows, what = self.shape[0], f"rows of owner {name!r}"
        if isinstance(rows, range):
            rows = slice(rows.start, rows.stop, rows.step)
        if rows is None:
            found = Stretches.between(0, n_rows, n_rows)
        elif isinstance(rows, slice) and rows.step in (None, 1):
            _refuse_outside(name, rows, n_rows)
            found = Stretches.between(*rows.indices(n_rows)[:2], n_rows)
        elif isinstance(rows, Mapping) and set(rows) == {"from", "to"}:
            start, end = self._checked_ends(name, rows)
            found = Stretches.between(start, end, n_rows)
        else:
            array = np.atleast_1d(np.asarray(rows))
            if array.shape == (n_rows,) and array.dtype.kind == "b":
                found = Stretches.of_mask(array)
            elif array.ndim == 1 and array.dtype.kind in "iu":
                if len(outside := array[(array < 0) | (array >= n_rows)]):
                    raise ValueError(
                        f"{what} names {outside[0]}; give positions from 0 to {n_rows - 1}."
                    )
                found = Stretches.of_places(array, n_rows)
            else:
                raise ValueError(
                    f"{what} is {rows!r}, but the table is in shards; give positions: a slice, "
                    "{'from': ..., 'to': ...}, whole numbers or a mask."
                )
        if not found.any():
            raise ValueError(f"{what} holds no row of X; leave the owner out.")
        return found

    def _row_mask(self, name: str, rows: Any) -> Mask | Stretches:
        if not self.sees_cells:
            return self._stretches(name, rows)
        ids = self.table.row_ids
        if rows is None:
            return np.ones(len(ids), dtype=bool)
        mask = np.zeros(len(ids), dtype=bool)
        if isinstance(rows, slice):
            _refuse_outside(name, rows, len(ids))
            mask[rows] = True
        elif _is_single(rows):
            mask = _named(ids, [rows], f"rows of owner {name!r}", "row")
        elif isinstance(rows, Mapping):
            mask = self._rows_by_rule(name, rows)
        else:
            array = np.asarray(rows)
            # A polars expression, say, which knows no table.
            if array.ndim == 0 and not isinstance(rows, Iterable):
                raise TypeError(
                    f"rows of owner {name!r} is of type {type(rows).__name__}; give row ids, or a "
                    "mask made from the table, such as X['sex'] == 'Male'."
                )
            if array.dtype.kind == "b":
                if array.shape != mask.shape:
                    raise ValueError(
                        f"rows of owner {name!r} is a mask of shape {array.shape}; give one entry "
                        f"per row, {len(ids)} in all."
                    )
                self._refuse_other_order(name, rows)
                mask = array
            else:
                mask = _named(ids, rows, f"rows of owner {name!r}", "row")
        if not mask.any():
            raise ValueError(f"rows of owner {name!r} holds no row of X; leave the owner out.")
        return mask

    def _rows_by_rule(self, name: str, rule: Mapping[str, Any]) -> Mask:
        mask = np.zeros(self.shape[0], dtype=bool)
        if set(rule) == {"from", "to"}:
            mask[slice(*self._checked_ends(name, rule))] = True
            return mask
        names = self.table.names.tolist()
        if set(rule) != {"column", "is"} or rule["column"] not in names:
            raise ValueError(
                f"rows of owner {name!r} is {dict(rule)!r}; give {{column = ..., is = ...}} with a "
                f"column of X ({some(names)}) or {{from = ..., to = ...}}."
            )
        wanted = list(rule["is"]) if isinstance(rule["is"], list | tuple) else [rule["is"]]
        column = self.table.column(names.index(rule["column"]))
        if column.dtype.kind == "M":
            # Finer units turn into bare integers where they become Python objects.
            column, wanted = column.astype("M8[us]"), label_array(wanted, what="row").tolist()
        cells = [None if is_missing(cell) else cell for cell in column.tolist()]
        unseen = [value for value in wanted if value not in cells or value is None]
        if unseen:
            raise ValueError(
                f"rows of owner {name!r} are those where {rule['column']!r} is {unseen[0]!r}, but "
                "it is that nowhere; give values that the column holds."
            )
        return np.array([cell in wanted for cell in cells])

    def _checked_ends(self, name: str, rule: Mapping[str, Any]) -> tuple[int, int]:
        start, end, n_rows = rule["from"], rule["to"], self.shape[0]
        if not (is_whole(start) and is_whole(end) and 0 <= start < end <= n_rows):
            raise ValueError(
                f"rows of owner {name!r} go from {start!r} to {end!r}; give positions with "
                f"0 <= from < to <= {n_rows}, the number of rows."
            )
        return start, end

    def _refuse_other_order(self, name: str, rows: Any) -> None:
        """A mask that carries row ids of its own must have them in the table's order."""
        index = getattr(rows, "index", None)
        if index is None or callable(index):
            return
        if not np.array_equal(label_array(index, what="row"), self.table.row_ids):
            raise ValueError(
                f"rows of owner {name!r} is a mask whose row ids are not those of X in the same "
                "order; give a mask made from X itself, or row ids."
            )

    def _column_mask(self, name: str, columns: Any) -> Mask:
        names = self.table.names
        if columns is None:
            return np.append(np.ones(len(names), dtype=bool), False)
        listed = [columns] if _is_single(columns) else list(columns)
        if not listed:
            raise ValueError(f"columns of owner {name!r} is empty; leave the owner out.")
        # True is 1 to Python, and might be taken for the second column.
        if any(isinstance(column, bool | np.bool_) for column in listed):
            raise TypeError(f"columns of owner {name!r} is a mask; give names of columns.")
        labels = [column for column in listed if isinstance(column, str) and column == LABEL]
        others = [column for column in listed if not (isinstance(column, str) and column == LABEL)]
        known = _named(names, others, f"columns of owner {name!r}", "column")
        return np.append(known, bool(labels))

    def _refuse_overlap(self, claim: Claim) -> None:
        if self.overlaps != "refuse":
            return
        for other in self._claims:
            cell = claim.meets(other) if other.owner != claim.owner else None
            if cell is not None:
                row = self.table.row_ids.tolist()[cell[0]] if self.sees_cells else cell[0]
                column = [*self.table.names.tolist(), LABEL][cell[1]]
                raise ValueError(
                    f"{claim.owner!r} and {other.owner!r} both claim the cell ({row!r}, "
                    f"{column!r}); mend it, or say Owners(X, overlaps='equal') to share such cells."
                )

    def _refuse_other_table(self, blocks: Blocks) -> None:
        columns = [name for name in blocks.columns.ids.tolist() if name != LABEL]
        own = self.table.names.tolist()
        if columns != own and columns != [str(name) for name in own]:
            raise ValueError(
                f"owners are of a table with the columns {some(own)}, but the valuation has "
                f"{some(columns)}; give Owners the table that was valued."
            )
        if not self._has_rows_of(blocks.rows):
            mine, others = self.table.row_ids, blocks.rows.ids
            raise ValueError(
                f"owners are of a table with {len(mine)} rows ({some(mine[:4])}), but the "
                f"valuation has {len(others)} ({some(others[:4])}); give Owners the table that was "
                "valued."
            )

    def _has_rows_of(self, rows: Axis) -> bool:
        if isinstance(rows, NumberedAxis) and not self.sees_cells:
            return len(rows) == self.shape[0]
        return np.array_equal(rows.ids, self.table.row_ids)


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file, or say in one sentence why not."""
    file = local_path(path, "path")
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {path}; give the path of a TOML file.")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML ({error}); mend it.") from error


def checked_entries(listed: Any, called: str) -> list[Mapping[str, Any]]:
    """Owners as a TOML file lists them: name, rows and columns of each holding."""
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{called} names no owners; give at least one [[owners]].")
    for entry in listed:
        if not isinstance(entry, Mapping):
            raise ValueError(f"{called} has {entry!r} among its owners; write [[owners]] tables.")
        if "name" not in entry or set(entry) - {"name", "rows", "columns"}:
            raise ValueError(
                f"an owner in {called} has {', '.join(sorted(entry)) or 'nothing'}; give name, "
                "rows and columns."
            )
    return listed


def _refuse_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"the owner's name is {name!r}; give some text.")
    if name == "nobody":
        raise ValueError(
            "the owner's name is 'nobody', which stands for cells that no one holds; give another."
        )
    # A line break would let a name write lines of its own into a payout.
    if not name.isprintable() or name != name.strip():
        raise ValueError(
            f"the owner's name is {name!r}; give text without line breaks or blanks at its ends."
        )


def _refuse_outside(name: str, rows: slice, n_rows: int) -> None:
    ends = [end for end in (rows.start, rows.stop) if end is not None]
    if any(not is_whole(end) or not -n_rows <= end <= n_rows for end in ends):
        raise ValueError(
            f"rows of owner {name!r} go from {rows.start!r} to {rows.stop!r}; give positions up to "
            f"{n_rows}, the number of rows."
        )


def _is_single(given: Any) -> bool:
    """Whether this is one id or name, not several."""
    return isinstance(given, str | date | np.generic) or np.isscalar(given)


def _distinct(claimed: Mask) -> tuple[Mask, NDArray[np.intp]]:
    """Nobody, each owner alone, and whoever shares; and which of these holds each cell."""
    n_owners = claimed.shape[1]
    if n_owners == 0:
        return np.zeros((1, 0), dtype=bool), np.zeros(len(claimed), dtype=np.intp)
    n_claims = claimed.sum(axis=1)
    codes = np.where(n_claims == 1, claimed.argmax(axis=1) + 1, 0)
    shared = n_claims > 1
    together, places = np.unique(claimed[shared], axis=0, return_inverse=True)
    codes[shared] = n_owners + 1 + places.ravel()
    alone = np.eye(n_owners + 1, n_owners, k=-1, dtype=bool)
    return np.concatenate([alone, together.reshape(-1, n_owners)]), codes


def _named(ids: Labels, wanted: Iterable[Any], called: str, what: str) -> Mask:
    keys = label_array(wanted, what=what).tolist()
    known = ids.tolist()
    missing = set(keys) - set(known)
    if missing:
        raise ValueError(
            f"{called} names {some(sorted(missing, key=str))}, which X does not have; its {what}s "
            f"are {some(known)}."
        )
    kept = set(keys)
    return np.fromiter((key in kept for key in known), dtype=bool, count=len(known))


def _told_apart(kinds: NDArray[np.int64], claimed: Mask) -> NDArray[np.int64]:
    """Number rows so that rows of one number were so before and are claimed alike."""
    if claimed.ndim == 1:
        number = claimed.astype(np.int64)
    else:
        number = np.unique(np.packbits(claimed, axis=1), axis=0, return_inverse=True)[1].ravel()
    pairs = kinds * (int(number.max()) + 1) + number
    return np.asarray(np.unique(pairs, return_inverse=True)[1]).ravel()


def _first_of_each(axis: Axis) -> NDArray[np.intp]:
    return np.unique(axis.codes, return_index=True)[1]


def _split_block(what: str, label: Any) -> ValueError:
    return ValueError(
        f"the {what} group {label!r} of the valuation belongs to several owners in parts; cut the "
        f"table along its owners, or value single {what}s."
    )


def listed_names(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
