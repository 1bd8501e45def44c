"""Owners: who holds which cells of a table, in rectangles or in any other shape."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import LABEL, Axis, Blocks, Labels, Mask, is_missing, label_array, some
from cellworth.tables import Table

Overlaps = Literal["refuse", "equal", "first"]
Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Claim:
    """Cells that one owner claims: a rectangle, or where ``cells`` is given, what it marks."""

    owner: str
    rows: Mask
    columns: Mask
    cells: Mask | None = None

    def of_row(self, row: int) -> Mask:
        """Columns that are claimed in one row."""
        if not self.rows[row]:
            return np.zeros_like(self.columns)
        return self.columns if self.cells is None else self.cells[row]

    def meets(self, other: Claim) -> tuple[int, int] | None:
        """One cell that both claim, or None."""
        rows = np.flatnonzero(self.rows & other.rows)
        columns = np.flatnonzero(self.columns & other.columns)
        if len(rows) == 0 or len(columns) == 0:
            return None
        both = np.ones((len(rows), len(columns)), dtype=bool)
        for claim in (self, other):
            if claim.cells is not None:
                both &= claim.cells[np.ix_(rows, columns)]
        found = np.argwhere(both)
        return (int(rows[found[0, 0]]), int(columns[found[0, 1]])) if len(found) else None


@dataclass(frozen=True, eq=False)
class Holdings:
    """Who holds each block; rows that are held alike share one line.

    Parameters
    ----------
    names : tuple of str
        The owners.
    row_lines : array of shape (n_rows,)
        Which line of ``lines`` tells who holds the blocks of each row.
    lines : array of shape (n_lines, n_columns)
        Which line of ``claims`` tells who holds a block.
    claims : array of shape (n_kinds, n_owners)
        Whether each owner has a claim; those who have one share alike.
    """

    names: tuple[str, ...]
    row_lines: Codes
    lines: Codes
    claims: Mask

    def codes(self, rows: slice = slice(None)) -> Codes:
        """Line of ``claims`` for each block of some rows."""
        found: Codes = self.lines[self.row_lines[rows]]
        return found

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Fingerprint of what each owner holds, whatever its name is."""
        return tuple(self._key(owner) for owner in range(len(self.names)))

    def _key(self, owner: int) -> str:
        shares = self.claims[:, owner] * self.claims.sum(axis=1)
        # Lines are numbered by who else owns what; a fingerprint must not hear of that.
        held = shares[self.lines].astype("<i8")
        _, first, numbers = np.unique(held, axis=0, return_index=True, return_inverse=True)
        digest = hashlib.sha256(repr(held.shape[1]).encode())
        order = numbers.ravel()[self.row_lines]
        digest.update(order.astype("<i8").tobytes())
        digest.update(held[first].tobytes())
        return digest.hexdigest()


class Owners:
    """Who holds which cells of a table.

    Parameters
    ----------
    X : pandas, polars or Arrow table, or array
        The table that was, or will be, valued.
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
        self.table = Table.of(X, called="X")
        self.overlaps = overlaps
        self._claims: tuple[Claim, ...] = ()

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], X: Any) -> Owners:
        """Read owners from a TOML file: a list ``[[owners]]`` with name, rows and columns.

        ``rows`` is a list of row ids, ``{from = 0, to = 500}`` (positions, the end not included)
        or ``{column = "region", is = "north"}``; all rows where it is left out. ``columns`` is a
        list of names; all columns where it is left out.
        """
        return cls.from_plain(read_toml(path), X, called=str(path))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], X: Any, *, called: str) -> Owners:
        """Read owners from what a TOML file holds."""
        listed = plain.get("owners")
        if not isinstance(listed, list) or not listed:
            raise ValueError(f"{called} names no owners; give at least one [[owners]].")
        owners = cls(X, overlaps=plain.get("overlaps", "refuse"))
        for entry in listed:
            unknown = set(entry) - {"name", "rows", "columns"}
            if "name" not in entry or unknown:
                raise ValueError(
                    f"an owner in {called} has {', '.join(sorted(entry)) or 'nothing'}; give name, "
                    "rows and columns."
                )
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
            Row ids, a boolean array, a slice of positions, or ``{"column": name, "is": value or
            values}``; None means all rows.
        columns : default=None
            A name or names of columns, ``"(label)"`` for the labels; None means all columns of the
            table.
        cells : boolean array of shape (n_rows, n_columns), default=None
            Any shape, in place of rows and columns.
        """
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"the owner's name is {name!r}; give some text.")
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
    def codes(self) -> Codes:
        """Place of each cell's owner in ``names``; -1 for nobody, -2 where several share."""
        holdings = self._holdings
        n_claims = holdings.claims.sum(axis=1)
        places = np.where(n_claims == 1, holdings.claims.argmax(axis=1), -2)
        places[n_claims == 0] = -1
        return places.astype(np.int32)[holdings.codes()[:, : self.shape[1]]]

    @property
    def unowned(self) -> int:
        """How many cells nobody holds."""
        return int(np.sum(self.codes == -1))

    def cells_of(self, name: str) -> Mask:
        """Cells in which an owner has a share, shape (n_rows, n_columns)."""
        place = self._place(name)
        holdings = self._holdings
        return holdings.claims[:, place][holdings.codes()[:, : self.shape[1]]]

    def share_of_labels(self) -> dict[str, int]:
        """How many labels each owner has a share in."""
        holdings = self._holdings
        held = holdings.claims[holdings.codes()[:, -1]].sum(axis=0).tolist()
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
        of_players = holdings.row_lines[_first_of_each(rows)]
        split = np.flatnonzero(holdings.row_lines != of_players[rows.codes])
        if len(split):
            raise _split_block("row", rows.labels[rows.codes[split[0]]])
        return replace(holdings, row_lines=of_players, lines=lines[:, first])

    def to_plain(self) -> list[dict[str, Any]]:
        """Every holding as name, rows and columns, as :meth:`from_toml` reads them."""
        return [entry for claim in self._claims for entry in self._plain(claim)]

    def __repr__(self) -> str:
        """Say how many cells each owner has."""
        n_rows, n_columns = self.shape
        counts = {name: int(self.cells_of(name).sum()) for name in self.names}
        if self.unowned:
            counts["nobody"] = self.unowned
        lines = [f"  {name}  {n:,} cell{'' if n == 1 else 's'}" for name, n in counts.items()]
        labels = [f"  {name}  {n:,} labels" for name, n in self.share_of_labels().items()]
        return "\n".join([f"Owners of {n_rows:,} x {n_columns:,} cells", *lines, *labels])

    @cached_property
    def _holdings(self) -> Holdings:
        n_rows, n_columns = self.shape
        kinds = np.zeros(n_rows, dtype=np.int64)
        for claim in self._claims:
            kinds = _told_apart(kinds, claim.rows if claim.cells is None else claim.cells)
        _, first, row_lines = np.unique(kinds, return_index=True, return_inverse=True)
        names = self.names
        # Who claims each cell of one row of each kind, the label last.
        claimed = np.zeros((len(first), n_columns + 1, len(names)), dtype=bool)
        for line, row in enumerate(first.tolist()):
            for claim in self._claims:
                mine = claim.of_row(row)
                if self.overlaps == "first":
                    mine = mine & ~np.delete(claimed[line], names.index(claim.owner), 1).any(axis=1)
                claimed[line, :, names.index(claim.owner)] |= mine
        claims, lines = np.unique(claimed.reshape(-1, len(names)), axis=0, return_inverse=True)
        return Holdings(
            tuple(names),
            row_lines.ravel().astype(np.int32),
            lines.reshape(len(first), n_columns + 1).astype(np.int32),
            claims,
        )

    def _plain(self, claim: Claim) -> Iterator[dict[str, Any]]:
        names = np.append(self.table.names.astype(object), LABEL)
        if claim.cells is None:
            rectangles = [(claim.rows, claim.columns)]
        else:
            columns = np.eye(len(names), dtype=bool)
            rectangles = [(claim.cells[:, j], columns[j]) for j in np.flatnonzero(claim.columns)]
        for rows, columns in rectangles:
            entry: dict[str, Any] = {"name": claim.owner, "columns": names[columns].tolist()}
            yield entry if rows.all() else entry | {"rows": self._plain_rows(rows)}

    def _plain_rows(self, rows: Mask) -> dict[str, int] | list[Any]:
        places = np.flatnonzero(rows)
        first, last = int(places[0]), int(places[-1])
        if last - first + 1 == len(places):
            return {"from": first, "to": last + 1}
        ids: list[Any] = self.table.row_ids[rows].tolist()
        return ids

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"no owner is called {name!r}; owners are {some(self.names)}.")
        return self.names.index(name)

    def _any_shape(self, name: str, cells: Any) -> Claim:
        marked = np.asarray(cells)
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

    def _row_mask(self, name: str, rows: Any) -> Mask:
        ids = self.table.row_ids
        if rows is None:
            return np.ones(len(ids), dtype=bool)
        mask = np.zeros(len(ids), dtype=bool)
        if isinstance(rows, slice):
            mask[rows] = True
        elif isinstance(rows, Mapping):
            mask = self._rows_by_rule(name, rows)
        else:
            array = np.asarray(rows)
            if array.dtype.kind == "b":
                if array.shape != mask.shape:
                    raise ValueError(
                        f"rows of owner {name!r} is a mask of shape {array.shape}; give one entry "
                        f"per row, {len(ids)} in all."
                    )
                mask = array
            else:
                mask = _named(ids, rows, f"rows of owner {name!r}", "row")
        if not mask.any():
            raise ValueError(f"rows of owner {name!r} holds no row of X; leave the owner out.")
        return mask

    def _rows_by_rule(self, name: str, rule: Mapping[str, Any]) -> Mask:
        mask = np.zeros(self.shape[0], dtype=bool)
        if set(rule) == {"from", "to"}:
            mask[int(rule["from"]) : int(rule["to"])] = True
            return mask
        names = self.table.names.tolist()
        if set(rule) != {"column", "is"} or rule["column"] not in names:
            raise ValueError(
                f"rows of owner {name!r} is {dict(rule)!r}; give {{column = ..., is = ...}} with a "
                f"column of X ({some(names)}) or {{from = ..., to = ...}}."
            )
        wanted = rule["is"] if isinstance(rule["is"], list | tuple) else [rule["is"]]
        cells = self.table.column(names.index(rule["column"])).tolist()
        return np.array([not is_missing(cell) and cell in wanted for cell in cells])

    def _column_mask(self, name: str, columns: Any) -> Mask:
        names = self.table.names
        if columns is None:
            return np.append(np.ones(len(names), dtype=bool), False)
        listed = [columns] if isinstance(columns, str) else list(columns)
        if not listed:
            raise ValueError(f"columns of owner {name!r} is empty; leave the owner out.")
        with_label = np.append(names.astype(object), LABEL)
        return _named(with_label, listed, f"columns of owner {name!r}", "column")

    def _refuse_overlap(self, claim: Claim) -> None:
        if self.overlaps != "refuse":
            return
        for other in self._claims:
            cell = claim.meets(other) if other.owner != claim.owner else None
            if cell is not None:
                row = self.table.row_ids.tolist()[cell[0]]
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
        if not np.array_equal(blocks.rows.ids, self.table.row_ids):
            raise ValueError(
                f"owners are of a table with {self.shape[0]} rows ({some(self.table.row_ids)}), "
                f"but the valuation has {len(blocks.rows.ids)} ({some(blocks.rows.ids)}); give "
                "Owners the table that was valued."
            )


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file, or say in one sentence why not."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML ({error}); mend it.") from error


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
