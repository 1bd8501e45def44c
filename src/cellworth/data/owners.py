"""Owners: the owners of the cells of a table."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import date
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from cellworth.data.arguments import Codes, Mask, check_columns, is_integer
from cellworth.data.blocks import LABEL, Blocks, NumberedAxis
from cellworth.data.column import list_cells
from cellworth.data.holdings import Claim, Ends, Holdings, find_stretches
from cellworth.data.io import local_path
from cellworth.data.sharded_table import ShardedTable, as_table
from cellworth.data.tables import (
    Table,
    TableLike,
    VectorLike,
    check_row_ids,
    find_labels,
    label_array,
)
from cellworth.data.text import format_count, preview

Overlaps = Literal["refuse", "equal"]
# Printed in place of an owner's name.
UNASSIGNED = "unassigned"
# The one column of a valuation in which owners are the players.
CELLS = "(cells)"


class Owners:
    """The owners of the cells of a table.

    Parameters
    ----------
    X : pandas, polars or Arrow table, array, or ShardedTable
        The table that is valued. Rows of a ShardedTable are given by position, and its cells are
        not read.
    keys : list of str, default=()
        Columns of X that only tell whose a row is, such as a customer number: rules of rows may use
        them, and they are neither valued nor owned. Pass ``owners.features(X)`` to ``fit``.
    overlaps : {"refuse", "equal"}, default="refuse"
        What to do if two owners claim a cell: raise an error as soon as the owners are shown,
        valued or paid, or give both equal shares of its value.

    See Also
    --------
    cellworth.payouts.split_revenue

    Examples
    --------
    >>> from cellworth import Owners
    >>> owners = Owners([[1, 2, 3], [4, 5, 6]])
    >>> owners = owners.assign("bank", columns=["x0", "x1"])
    >>> owners.assign("shop", rows=[0], columns="x2")
    Owners of 2 x 3 cells
      bank  4 cells
      shop  1 cell
      unassigned  1 cell
    """

    def __init__(
        self,
        X: TableLike | ShardedTable,
        *,
        keys: Sequence[str] = (),
        overlaps: Overlaps = "refuse",
    ) -> None:
        if overlaps not in get_args(Overlaps):
            raise ValueError(f"overlaps must be 'refuse' or 'equal', got {overlaps!r}.")
        # With the columns of keys.
        self.given: Table | ShardedTable = as_table(X)
        self.keys: tuple[str, ...] = (keys,) if isinstance(keys, str) else tuple(keys)
        check_columns(self.keys, self.given.names.tolist(), called="keys", of="X")
        self.table: Table | ShardedTable = as_table(self.features(X)) if self.keys else self.given
        if LABEL in self.table.names.tolist():
            raise ValueError(
                f"X must not have a column {LABEL!r}, which is the name of the labels; rename it."
            )
        self.overlaps = overlaps
        self._claims: tuple[Claim, ...] = ()
        # The column that names the owner of each row, if there is one.
        self._source: str | None = None
        # Who gets the cells that no owner claims; False for no one, None if nothing was said.
        self._rest: str | Literal[False] | None = None

    @classmethod
    def from_column(cls, X: TableLike | ShardedTable, column: str) -> Owners:
        """Assign whole rows by a column of X that names their owners; it is not a feature.

        A row whose cell is missing has no owner. Pass ``owners.features(X)`` to ``fit``, and the
        same of the validation rows. If a list holds the names, make it a column first, as in
        ``X.assign(source=names)``.

        Examples
        --------
        >>> import pandas as pd
        >>> from cellworth import Owners
        >>> X = pd.DataFrame({"age": [30, 41, 25], "source": ["bank", "shop", "bank"]})
        >>> owners = Owners.from_column(X, "source")
        >>> owners
        Owners of 3 x 1 cells
          bank  2 cells
          shop  1 cell
        >>> list(owners.features(X))
        ['age']
        """
        return cls(X, keys=[column])._assign_source(column)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], X: TableLike | ShardedTable) -> Owners:
        """Read owners from a TOML file: a list ``[[owners]]`` with name, rows and columns.

        ``rows`` is a list of row ids, ``{from = 0, to = 500}`` (positions, the end not included),
        ``{column = "region", is = "north"}`` or ``{column = "customer", from = 1000, to = 1999}``
        (values of a column, both ends included; one may be left out); without it, all rows.
        ``columns`` is a list of names, or the beginning of names such as ``"bank_*"``; without it,
        all columns.

        Beside the list, ``source = "bank"`` names a column with the owner of each row, who holds
        all columns but those that the list gives to someone in all rows. ``keys`` are further
        columns that only rules use (neither is a feature), ``overlaps`` is that of
        :class:`Owners`, and ``rest = "pool"`` names who gets the cells that no owner claims.
        Without ``rest``, a column that is owned in some rows only is an error; ``rest = false``
        allows it.

        Examples
        --------
        >>> import os, tempfile
        >>> from pathlib import Path
        >>> from cellworth import Owners
        >>> file = Path(tempfile.mkdtemp()) / "owners.toml"
        >>> holding = "{name = 'bank', rows = {from = 0, to = 1}, columns = ['x0', 'x1']}"
        >>> _ = file.write_text(os.linesep.join(["rest = 'pool'", f"owners = [{holding}]"]))
        >>> Owners.from_toml(file, [[1, 2, 3], [4, 5, 6]])
        Owners of 2 x 3 cells
          bank  2 cells
          pool  4 cells
        """
        return cls.from_plain(read_toml(path), X, called=str(path)).check_covered(str(path))

    @classmethod
    def from_plain(
        cls,
        plain: Mapping[str, Any],
        X: TableLike | ShardedTable,
        *,
        called: str,
    ) -> Owners:
        """Create owners from the content of a TOML file."""
        owners = cls(X, keys=list_keys(plain, called), overlaps=plain.get("overlaps", "refuse"))
        if plain.get("source") is not None:
            owners = owners._assign_source(plain["source"])
        for entry in check_entries(plain, called):
            owners = owners.assign(**entry)
        if "rest" in plain:
            owners = owners.assign_rest(None if plain["rest"] is False else plain["rest"])
        return owners

    def assign(
        self,
        name: str,
        *,
        rows: VectorLike | slice | date | Mapping[str, Any] | None = None,
        columns: VectorLike | None = None,
    ) -> Owners:
        """Return new Owners with more cells assigned to an owner.

        Parameters
        ----------
        name : str
        rows : default=None
            Row ids, a boolean mask such as ``X["region"] == "north"``, a slice of positions, or a
            rule as in :meth:`from_toml`, which an agreement keeps as a rule for later rows; None
            means all rows. The row ids of a sharded table are positions.
        columns : default=None
            One or several names of columns, or beginnings of names such as ``"bank_*"``;
            ``"(label)"`` for the labels; None means all columns of the table, without the labels.

        Examples
        --------
        >>> from cellworth import Owners
        >>> people = Owners([[30, 1200], [41, 900], [25, 1100]]).assign("town", columns="x0")
        >>> people = people.assign("bank", rows=slice(0, 2), columns="x1")
        >>> people.assign("shop", rows=[2], columns="x1").codes.tolist()
        [[0, 1], [0, 1], [0, 2]]
        """
        _check_name(name)
        given: Any = [columns] if _is_single(columns) else columns
        listed = None if given is None else list(given)
        has_pattern = any(str(one).endswith("*") for one in listed or ())
        is_rule = isinstance(rows, Mapping) or (rows is None and has_pattern)
        found = self._read_rule(name, rows) if isinstance(rows, Mapping) else rows
        claim = Claim(
            name,
            self._read_rows(name, found),
            self._read_columns(name, listed),
            rule=(rows, listed) if is_rule else None,
        )
        claims = self._claims
        if self.overlaps == "refuse" and self._has_all_rows(claim):
            # The column of sources does not claim the columns of this owner.
            claims = tuple(
                replace(one, columns=one.columns & ~claim.columns) if one.by_source else one
                for one in claims
            )
        return self._change(_claims=(*claims, claim))

    def assign_rest(self, name: str | None) -> Owners:
        """Return new Owners in which one owner gets all cells that no other claims.

        Rows that are added later belong to it as well; labels do not. None says that these cells
        have no owner.

        Examples
        --------
        >>> from cellworth import Owners
        >>> Owners([[1, 2, 3], [4, 5, 6]]).assign("bank", rows=[0]).assign_rest("pool")
        Owners of 2 x 3 cells
          bank  3 cells
          pool  3 cells
        """
        if name is not None:
            _check_name(name)
        return self._change(_rest=False if name is None else name)

    def features(self, X: TableLike | ShardedTable) -> Any:
        """Return a table without the columns that only tell whose a row is.

        X may be the table of these owners or the validation rows, which may lack these columns.
        """
        if isinstance(X, ShardedTable):
            return X.drop(*self.keys) if self.keys else X
        table = Table.from_data(X, called="X")
        kept = [i for i, name in enumerate(table.names.tolist()) if name not in self.keys]
        if not kept:
            raise ValueError(
                f"X must have a column besides the keys ({preview(self.keys)}), got no other."
            )
        rest = table.select(np.array(kept))
        return rest if isinstance(X, Table) or rest.backend is None else rest.native

    def check_covered(self, called: str) -> Owners:
        """Check that no cell lacks an owner in a column that others own; return these owners.

        Rows that came later are found so; :meth:`assign_rest` says who gets them. An owner whose
        cells all belong to others is an error, too: it would silently get nothing.
        """
        holdings = self.holdings
        empty = [
            name for name, held in zip(self.names, holdings.hold_blocks, strict=True) if not held
        ]
        if any(name != self._rest for name in empty):
            raise ValueError(
                f"{preview(empty)} would hold no cell in {called}: others hold all that is claimed "
                "(overlaps, source or columns); change this, or leave them out."
            )
        if self._rest is not None or not self.names:
            return self
        owned = np.asarray(holdings.claims.any(axis=1))[holdings.lines[:, :-1]]
        free = owned.any(axis=0) & ~owned
        if not free.any():
            return self
        n_rows = int(holdings.rows_of_lines[free.any(axis=1)].sum())
        row, column, _ = self._find_cell(holdings, free)
        rows = format_count(n_rows, "row has", "rows have")
        raise ValueError(
            f"{rows} no owner in {called}, for example row {row!r} in column {column!r}; assign "
            'them, or say who gets what no one claims with rest = "name" (rest = false: no one).'
        )

    @property
    def names(self) -> list[str]:
        """Names of the owners, in order of first assignment."""
        rest = [self._rest] if self._rest else []
        return list(dict.fromkeys([*(claim.owner for claim in self._claims), *rest]))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the table."""
        return self.table.shape

    @property
    def codes(self) -> Codes:
        """Position of each cell's owner in ``names``; -1 without owner, -2 with several."""
        holdings = self.holdings
        n_claims = holdings.claims.sum(axis=1)
        positions = np.where(n_claims == 1, holdings.claims.argmax(axis=1), -2)
        positions[n_claims == 0] = -1
        return positions.astype(np.int32)[holdings.codes()[:, : self.shape[1]]]

    @property
    def n_unassigned(self) -> int:
        """Number of cells without an owner; labels are not counted."""
        counts = self.holdings.cells_of_claims(slice(0, -1))
        return int(counts[self.holdings.claims.sum(axis=1) == 0].sum())

    def n_cells_of(self, name: str) -> int:
        """Return the number of cells that an owner has a share in; labels are not counted."""
        return self._count_cells(slice(0, -1))[self._get_position(name)]

    def cells_of(self, name: str) -> Mask:
        """Return a mask of the cells that an owner has a share in, shape (n_rows, n_columns).

        Examples
        --------
        >>> from cellworth import Owners
        >>> owners = Owners([[1, 2, 3], [4, 5, 6]]).assign("bank", rows=[0], columns=["x0", "x2"])
        >>> owners.cells_of("bank").tolist()
        [[True, False, True], [False, False, False]]
        """
        position = self._get_position(name)
        holdings = self.holdings
        return holdings.claims[:, position][holdings.codes()[:, : self.shape[1]]]

    def share_of_labels(self) -> dict[str, int]:
        """Return the number of labels that each owner has a share in."""
        held = self._count_cells(slice(-1, None))
        return {name: n for name, n in zip(self.names, held, strict=True) if n}

    def _count_cells(self, columns: slice) -> list[int]:
        """Return the number of cells of some columns that each owner has a share in."""
        return list(map(int, self.holdings.cells_of_claims(columns) @ self.holdings.claims))

    def project(self, blocks: Blocks) -> Holdings:
        """Return the owners of the blocks of a table; all cells of a block must have the same.

        If owners were the players, each holds its own block.
        """
        if are_players(blocks):
            return self._hold_themselves(blocks.rows.labels.tolist())
        self._check_table(blocks)
        return self.holdings.project(blocks)

    def check_cells(self, sha256: str | None) -> None:
        """Check that the table has the cells of this hash; None skips the check."""
        # The hash of a sharded table may be unknown.
        if sha256 is not None and self.table.sha256() not in (sha256, ""):
            raise ValueError(
                "owners must have the cells of the table that is valued, got others (the sha256 "
                "differs); pass the same table to Owners and to fit."
            )

    def to_plain(self) -> dict[str, Any]:
        """Return the content of a file that :meth:`from_toml` reads; rules stay rules."""
        rules = [claim.rule[0] for claim in self._claims if claim.rule is not None]
        used = {rule.get("column") for rule in rules if isinstance(rule, Mapping)}
        keys = [name for name in self.keys if name in used and name != self._source]
        more = {"source": self._source, "keys": keys or None, "rest": self._rest}
        claims = [claim for claim in self._claims if not claim.by_source]
        return {
            "overlaps": self.overlaps,
            **{name: item for name, item in more.items() if item is not None},
            "owners": [entry for claim in claims for entry in self._list_claim(claim)],
        }

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        counts = dict(zip(self.names, self._count_cells(slice(0, -1)), strict=True))
        counts |= {UNASSIGNED: self.n_unassigned} if self.n_unassigned else {}
        cells = [f"  {name}  {n:,} {'cell' if n == 1 else 'cells'}" for name, n in counts.items()]
        labels = [f"  {name}  {n:,} labels" for name, n in self.share_of_labels().items()]
        return "\n".join([f"Owners of {n_rows:,} x {n_columns:,} cells", *cells, *labels])

    @cached_property
    def holdings(self) -> Holdings:
        """The owners of each cell, and of the labels in a last column."""
        names, rest = tuple(self.names), self._rest or None
        holdings = Holdings.from_claims(names, self._claims, self.shape, rest=rest)
        shared = (holdings.claims.sum(axis=1) > 1)[holdings.lines]
        if self.overlaps == "refuse" and shared.any():
            row, column, owners = self._find_cell(holdings, shared)
            raise ValueError(
                f"{owners[0]!r} and {owners[1]!r} both claim the cell ({row!r}, {column!r}); fix "
                "it, or set overlaps to 'equal' to share such cells."
            )
        return holdings

    def _find_cell(self, holdings: Holdings, marked: Mask) -> tuple[Any, Any, list[str]]:
        """Return row, column and owners of the first marked cell; marked by line and column."""
        lines = np.asarray(holdings.row_lines[:])
        first = int(np.asarray(marked.any(axis=1))[lines].argmax())
        line = int(lines[first])
        column = int(marked[line].argmax())
        held = holdings.claims[holdings.lines[line, column]]
        owners = [name for name, is_held in zip(holdings.names, held, strict=True) if is_held]
        (row,) = self.table.row_ids[first : first + 1].tolist()
        return row, [*self.table.names.tolist(), LABEL][column], owners

    def _hold_themselves(self, players: list[str]) -> Holdings:
        """Return holdings in which each player holds the block of its name."""
        if set(players) - {*self.names, UNASSIGNED}:
            raise ValueError(
                f"owners must be those that were valued ({preview(players)}), got "
                f"{preview(self.names)}; pass the same owners."
            )
        names = tuple(name for name in self.names if name in players)
        claims = np.array(players, dtype=object)[:, np.newaxis] == np.array(names, dtype=object)
        own = np.arange(len(players), dtype=np.int32)
        return Holdings(names, own, own.reshape(-1, 1), claims)

    def _change(self, **changed: Any) -> Owners:
        more = copy(self)
        more.__dict__.pop("holdings", None)
        more.__dict__.update(changed)
        return more

    def _assign_source(self, column: str) -> Owners:
        """Return new Owners with one claim of whole rows for each name in a column."""
        rows = _find_sources(self.given, column)
        if not rows:
            raise ValueError(f"column {column!r} must name some owner, got missing cells only.")
        columns, claims = self._read_columns("", None), []
        for name, positions in rows.items():
            _check_name(name)
            claims.append(Claim(name, find_stretches(positions), columns, by_source=True))
        return self._change(_claims=tuple(claims), _source=column)

    def _list_claim(self, claim: Claim) -> Iterator[dict[str, Any]]:
        if claim.rule is not None:
            given = dict(zip(("rows", "columns"), claim.rule, strict=True))
            plain = {name: item for name, item in given.items() if item is not None}
            yield {"name": claim.owner} | plain
            return
        names = np.append(self.table.names.astype(object), LABEL)
        entry: dict[str, Any] = {"name": claim.owner, "columns": names[claim.columns].tolist()}
        if self._has_all_rows(claim):
            yield entry
        else:
            yield from (entry | {"rows": some} for some in self._list_rows(claim))

    def _has_all_rows(self, claim: Claim) -> bool:
        return np.array_equal(claim.rows, [[0, self.shape[0]]])

    def _list_rows(self, claim: Claim) -> Iterator[dict[str, int] | list[Any]]:
        """Yield rows as intervals of positions, or several of them as ids that only they have."""
        if isinstance(self.table, Table) and len(claim.rows) > 1:
            ids, held = self.table.row_ids, claim.holds(np.arange(self.shape[0]))
            mine = ids[held].tolist()
            if set(mine).isdisjoint(ids[~held].tolist()):
                yield mine
                return
        yield from ({"from": start, "to": end} for start, end in claim.rows.tolist())

    def _get_position(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(
                f"name must be an owner, got {name!r}; owners are {preview(self.names)}."
            )
        return self.names.index(name)

    def _read_rows(self, name: str, rows: Any) -> Ends:
        """Read rows in any form as stretches of positions."""
        n_rows, what = self.shape[0], f"rows of owner {name!r}"
        if rows is None or isinstance(rows, slice):
            found = self._read_slice(what, slice(None) if rows is None else rows)
        else:
            given = [rows] if _is_single(rows) else rows
            listed = np.asarray(given)
            # For example a polars expression, which has no values.
            if listed.ndim == 0 and not isinstance(rows, Iterable):
                raise TypeError(
                    f"{what} must be row ids, a boolean mask or a slice, got "
                    f"{type(rows).__name__}; make a mask from the table, such as X['sex'] == "
                    "'Male'."
                )
            if listed.dtype.kind == "b":
                if listed.shape != (n_rows,):
                    raise ValueError(
                        f"{what} must have one entry for each of {n_rows} rows, got a mask of "
                        f"shape {listed.shape}."
                    )
                check_row_ids(rows, self.table.row_ids, what)
                positions = np.flatnonzero(listed)
            else:
                positions = self.table.find_rows(given, called=what)
            found = find_stretches(positions)
        if not len(found):
            raise ValueError(f"{what} must select some row of X, got none; leave the owner out.")
        return found

    def _read_slice(self, what: str, rows: slice) -> Ends:
        n_rows = self.shape[0]
        ends = [end for end in (rows.start, rows.stop) if end is not None]
        if any(not is_integer(end) or not -n_rows <= end <= n_rows for end in ends):
            raise ValueError(
                f"{what} must be positions up to {n_rows}, the number of rows, got "
                f"{rows.start!r} to {rows.stop!r}."
            )
        start, end, step = rows.indices(n_rows)
        if step == 1:
            # Not one by one: there may be very many rows.
            return np.array([(start, end)] if start < end else []).reshape(-1, 2)
        return find_stretches(range(start, end, step))

    def _read_rule(self, name: str, rows: Mapping[str, Any]) -> slice | Mask:
        """Convert a rule to a mask, or to a slice of positions."""
        what, names, n_rows = f"rows of owner {name!r}", self.given.names.tolist(), self.shape[0]
        if set(rows) == {"from", "to"}:
            start, end = rows["from"], rows["to"]
            if not (is_integer(start) and is_integer(end) and 0 <= start < end <= n_rows):
                raise ValueError(
                    f"{what} must be positions with 0 <= from < to <= {n_rows}, the number of "
                    f"rows, got {start!r} to {end!r}."
                )
            return slice(start, end)
        rule, column = set(rows) - {"column"}, rows.get("column")
        if rule not in ({"is"}, {"from"}, {"to"}, {"from", "to"}) or column not in names:
            raise ValueError(
                f"{what} must be {{column = ..., is = ...}} or {{column = ..., from = ..., to = "
                f"...}} with a column of X ({preview(names)}), or {{from = ..., to = ...}}, got "
                f"{dict(rows)!r}."
            )
        return _find_rows(self.given, what, rows)

    def _read_columns(self, name: str, columns: list[Any] | None) -> Mask:
        names, what = self.table.names, f"columns of owner {name!r}"
        if columns is None:
            return np.append(np.ones(len(names), dtype=bool), False)
        if not columns:
            raise ValueError(f"{what} must name some column, got none; leave the owner out.")
        # True equals 1, and would select the second column.
        if any(isinstance(column, bool | np.bool_) for column in columns):
            raise TypeError(f"{what} must be names of columns, got a mask.")
        found = [one for column in columns for one in _find_pattern(column, names.tolist(), what)]
        others = [column for column in found if not (isinstance(column, str) and column == LABEL)]
        known = find_labels(names, others, what, "column")
        return np.append(known, len(others) < len(found))

    def _check_table(self, blocks: Blocks) -> None:
        columns = [name for name in blocks.columns.ids.tolist() if name != LABEL]
        own = self.table.names.tolist()
        if columns != own and columns != [str(name) for name in own]:
            raise ValueError(
                f"owners must have the columns of the valuation ({preview(columns)}), got "
                f"{preview(own)}; give Owners the table that was valued."
            )
        rows, table = blocks.rows, self.table
        # Ids of a table in shards are positions, which are compared without making them.
        numbered = isinstance(rows, NumberedAxis) and isinstance(table, ShardedTable)
        same = len(rows) == table.shape[0] if numbered else np.array_equal(rows.ids, table.row_ids)
        if not same:
            mine, these = table.row_ids, blocks.rows.ids
            raise ValueError(
                f"owners must have the {len(these)} rows of the valuation ({preview(these[:4])}), "
                f"got {len(mine)} ({preview(mine[:4])}); give Owners the table that was valued."
            )


def check_owners(owners: Any) -> Owners:
    """Check that these are owners."""
    if not isinstance(owners, Owners):
        raise TypeError(
            f"owners must be Owners, got {type(owners).__name__}; pass Owners(X).assign(...)."
        )
    return owners


def are_players(blocks: Blocks) -> bool:
    """Return whether the blocks are those of a valuation in which owners are the players."""
    return list(blocks.columns.ids) == [CELLS]


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file."""
    return parse_toml(read_text_file(path, "path"), str(path))


def read_text_file(path: str | os.PathLike[str], called: str) -> str:
    """Return the text of a local file."""
    file = local_path(path, called)
    if not file.is_file():
        raise FileNotFoundError(f"{called} must be a file, got {path}; give its path.")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8.") from error


def parse_toml(text: str, called: str) -> dict[str, Any]:
    """Parse the text of a TOML file."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{called} is not valid TOML ({error}); fix it.") from error


def check_entries(plain: Mapping[str, Any], called: str) -> list[Mapping[str, Any]]:
    """Check and return the list of owners of a TOML file: name, rows and columns of each."""
    listed = plain.get("owners", [])
    if not isinstance(listed, list) or not (listed or plain.get("source")):
        raise ValueError(f"{called} must have at least one [[owners]] or a source, got none.")
    for entry in listed:
        if not isinstance(entry, Mapping):
            raise ValueError(f"the owners of {called} must be [[owners]] tables, got {entry!r}.")
        if "name" not in entry or set(entry) - {"name", "rows", "columns"}:
            raise ValueError(
                f"an owner in {called} must have name, rows and columns, got "
                f"{', '.join(sorted(entry)) or 'nothing'}."
            )
    return listed


def list_keys(plain: Mapping[str, Any], called: str) -> list[str]:
    """Return the columns that a TOML file of owners uses as source or keys, not as features."""
    source, keys = plain.get("source"), plain.get("keys", [])
    if not isinstance(keys, list) or not all(isinstance(name, str) for name in keys):
        raise ValueError(f"keys of {called} must be a list of columns, got {keys!r}.")
    if source is not None and not isinstance(source, str):
        raise ValueError(f"source of {called} must be the name of a column, got {source!r}.")
    return list(dict.fromkeys(keys if source is None else [source, *keys]))


def count_rows(plain: Mapping[str, Any], table: Table | ShardedTable) -> dict[str, int]:
    """Return the number of rows of each owner whom the column of sources or a rule of keys names.

    ``plain`` is the content of a TOML file. Owners need not have rows in this table.
    """
    source, names = plain.get("source", ""), table.names.tolist()
    rows = _find_sources(table, source) if source in names else {}
    for entry in plain["owners"]:
        name, rule = entry["name"], entry.get("rows")
        if isinstance(rule, Mapping) and rule.get("column") in names:
            held = _find_rows(table, f"rows of owner {name!r}", rule, may_lack=True)
            rows.setdefault(name, []).extend(np.flatnonzero(held).tolist())
    return {name: len(set(held)) for name, held in rows.items()}


def _find_sources(table: Table | ShardedTable, column: str) -> dict[str, list[int]]:
    """Return the positions of the rows of each owner whom a column names."""
    rows: dict[str, list[int]] = {}
    for position, cell in enumerate(_read_cells(table, column)[0]):
        if cell is not None:
            # Numbers may name owners, too.
            rows.setdefault(str(cell).strip(), []).append(position)
    return rows


def _find_rows(
    table: Table | ShardedTable, what: str, rows: Mapping[str, Any], *, may_lack: bool = False
) -> Mask:
    """Find the rows in which a column holds one of some values, or a value in a range."""
    column = rows["column"]
    cells, is_date = _read_cells(table, column)
    given = [rows[word] for word in ("is", "from", "to") if word in rows]
    if "is" in rows and isinstance(given[0], list | tuple):
        given = list(given[0])
    if is_date:
        given = label_array(given, what="row").tolist()
    if "is" in rows:
        unseen = [value for value in given if value not in cells or value is None]
        if unseen and not may_lack:
            raise ValueError(
                f"{what} must be given by values of column {column!r}, got "
                f"{unseen[0]!r}, which no row has."
            )
        return np.array([cell in given for cell in cells])
    try:
        held = [
            cell is not None
            and ("from" not in rows or cell >= given[0])
            and ("to" not in rows or cell <= given[-1])
            for cell in cells
        ]
        return np.array(held)
    except TypeError as error:
        raise ValueError(
            f"{what} must be a range of values of column {column!r}, got "
            f"{preview(given)}, which cannot be compared with its cells ({error})."
        ) from error


def _read_cells(table: Table | ShardedTable, column: Any) -> tuple[list[Any], bool]:
    """Return the cells of a column, None if missing, and whether they are dates."""
    is_sharded = isinstance(table, ShardedTable)
    cells = table.column(column if is_sharded else table.names.tolist().index(column))
    return list_cells(cells), cells.dtype.kind == "M"


def _find_pattern(name: Any, names: list[Any], what: str) -> list[Any]:
    """Return the columns that begin as a pattern does; else the name itself."""
    if name in names or not str(name).endswith("*"):
        return [name]
    found = [one for one in names if str(one).startswith(name[:-1])]
    if not found:
        raise ValueError(f"{what} must be columns of X, got {name!r}, with which none begins.")
    return found


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"the owner's name must be a non-empty string, got {name!r}.")
    if name == UNASSIGNED:
        raise ValueError(f"the owner's name {name!r} is reserved for cells without an owner.")
    # A line break would let a name add lines to a printed payout.
    if not name.isprintable() or name != name.strip():
        raise ValueError(
            f"the owner's name must have no line breaks and no blanks at its ends, got {name!r}."
        )


def _is_single(given: Any) -> bool:
    """Return whether this is one id or name, not several."""
    return isinstance(given, str | date | np.generic) or np.isscalar(given)
