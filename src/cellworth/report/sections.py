"""Sections of a report as plain data: columns, cells, rows, owners and provenance."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Positions
from cellworth.data.blocks import LABEL
from cellworth.data.holdings import Holdings
from cellworth.data.io import jsonable
from cellworth.data.owners import Owners
from cellworth.data.problem import read_target
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.findings.cells import (
    check_cells,
    check_valuation,
    match_blocks,
)
from cellworth.plots.value_plots import combine_listed, match_columns
from cellworth.report.page import cell_text, text_of
from cellworth.valuation.provenance import Provenance
from cellworth.valuation.valuation import Valuation, name_of_score

_ROWS_LISTED = 25
LEFT_OUT = (
    "Hashes are left out: a reader who knows most of the table could guess the rest from them. "
    "So are parameters, which may hold contents."
)

# Settings that are shown without cells. Others, such as parameters of a model, may hold contents.
_PROBLEM = (
    "game", "model", "row_semivalue", "column_semivalue", "n_neighbors", "n_repeats", "scoring",
    "gains", "divisor", "radius", "scale", "empty", "validation", "value_labels", "column_share",
    "contrast",
)  # fmt: skip
_METHOD = ("name", "sampler", "n_passes", "stop")
_NAME = re.compile(r"'?(\w[\w. -]{0,79})")
_HASH = re.compile(r"[0-9a-fA-F]{16}")


@dataclass(frozen=True, eq=False)
class Subject:
    """A valuation, and the table that was valued."""

    valuation: Valuation
    # The table without the column of row groups.
    table: Table | None
    target: NDArray[Any] | None
    # Class labels as text; empty for a numeric or unknown target.
    classes: list[str]

    @classmethod
    def from_table(cls, valuation: Valuation, X: TableLike | None, y: VectorLike | None) -> Subject:
        """Check that this table was valued."""
        check_valuation(valuation)
        if X is None:
            if y is not None:
                raise ValueError("y must be None without X; pass X as well, or neither.")
            return cls(valuation, None, None, [])
        table = Table.from_data(X, called="X")
        match_blocks(valuation, table)
        check_cells(valuation, table)
        if y is None:
            return cls(valuation, table, None, [])
        target, classes = read_target(y, table)
        texts = [] if classes is None else [text_of(label) for label in classes.tolist()]
        return cls(valuation, table, target, texts)

    @property
    def of_cells(self) -> bool:
        """Whether every block is a single cell."""
        sides = self.valuation.blocks.rows, self.valuation.blocks.columns
        return all(not side.grouped or len(side.codes) == len(side) for side in sides)

    @property
    def kind_of_ids(self) -> str:
        """Type of the row ids: "number", "date" or "text"; CSV files do not store it."""
        kind = self.valuation.blocks.rows.some_labels(slice(1)).dtype.kind
        return {"O": "text", "M": "date"}.get(kind, "number")

    def label_codes(self) -> NDArray[np.int_] | None:
        """Return the index of each row's label in ``classes``; None without classes."""
        if self.target is None or not self.classes or not self.of_cells:
            return None
        return np.unique(self.target, return_inverse=True)[1].ravel()

    def column(self, position: int) -> NDArray[Any] | None:
        """Return the contents of one column of the valuation; None for groups."""
        if self.table is None or not self.of_cells:
            return None
        label = self.valuation.column_labels.tolist()[position]
        names = self.table.names.tolist()
        if label == LABEL and label not in names:
            return self.target
        found = names.index(label) if label in names else [str(n) for n in names].index(str(label))
        return self.table.column(found)


def list_columns(valuation: Valuation) -> list[dict[str, Any]]:
    """List the columns with their values, highest first."""
    columns = valuation.columns()
    order = np.argsort(-columns.values, kind="stable")
    names = valuation.column_labels.tolist()
    errors = combine_listed(columns)
    return [
        {
            "column": text_of(names[j]),
            "value": plain(columns.values[j]),
            "error": plain(errors[j]),
        }
        for j in order
    ]


def list_changes(before: Valuation, after: Valuation) -> dict[str, Any]:
    """List what changed since an earlier valuation, column by column, the largest change first."""
    check_valuation(before)
    names, values, errors = match_columns(before.columns(), after.columns())
    return {
        "created": before.provenance.created,
        "shape": list(before.shape),
        "score": plain(before.score),
        "same_score": name_of_score(before) == name_of_score(after),
        "columns": [
            {
                "column": text_of(name),
                "before": plain(old),
                "before_error": plain(old_error),
                "after": plain(new),
                "after_error": plain(new_error),
                "value": plain(new - old),
                "error": plain(math.hypot(old_error, new_error)),
            }
            for name, (old, new), (old_error, new_error) in zip(names, values, errors, strict=True)
        ],
    }


def list_cells(subject: Subject, k: int) -> list[dict[str, Any]]:
    """List the k cells of lowest value."""
    valuation = subject.valuation
    blocks = valuation.list_blocks()
    positions = blocks.lowest_positions(k)
    lowest = blocks.part(positions)
    listed = []
    for at, name, value, error in zip(
        positions,
        lowest.labels["row"].tolist(),
        lowest.values,
        combine_listed(lowest),
        strict=True,
    ):
        row, column = divmod(int(at), valuation.shape[1])
        cells = subject.column(column)
        listed.append(
            {
                "row": text_of(name),
                "position": row,
                "column": text_of(valuation.column_labels.tolist()[column]),
                "cell": None if cells is None else cell_text(cells[row]),
                "value": plain(value),
                "error": plain(error),
            }
        )
    return listed


def list_rows(subject: Subject) -> list[dict[str, Any]]:
    """List the rows of lowest value, each with its lowest cell."""
    valuation = subject.valuation
    positions = valuation.rows().lowest_positions(_ROWS_LISTED)
    rows = valuation.rows().part(positions)
    ids, names = rows.labels["row"].tolist(), valuation.column_labels.tolist()
    targets = _format_targets(subject, positions)
    listed = []
    for position, row, value, error in zip(
        positions, ids, rows.values, combine_listed(rows), strict=True
    ):
        values = valuation.row(position).values
        lowest = None if np.isnan(values).all() else int(np.nanargmin(values))
        cells = None if lowest is None else subject.column(lowest)
        listed.append(
            {
                "row": text_of(row),
                "position": int(position),
                "label": targets[position],
                "value": plain(value),
                "error": plain(error),
                "column": None if lowest is None else text_of(names[lowest]),
                "cell": None if cells is None else cell_text(cells[position]),
                "lowest_value": None if lowest is None else plain(values[lowest]),
                "below_zero": int(np.sum(values < 0)),
            }
        )
    return listed


def _format_targets(subject: Subject, positions: Positions) -> dict[int, str | None]:
    """Return the labels or numeric targets of some rows as text; None if unknown."""
    codes = subject.label_codes()
    if codes is not None:
        return {position: subject.classes[codes[position]] for position in positions}
    if subject.target is None or subject.classes or not subject.of_cells:
        return dict.fromkeys(positions)
    return {position: cell_text(subject.target[position]) for position in positions}


def list_owners(valuation: Valuation, owners: Owners | None) -> list[dict[str, Any]] | None:
    """List the owners with the values of their cells."""
    if valuation.owned is not None:
        sums = valuation.owners()
        errors = combine_listed(sums)
        names, values = sums.labels["owner"].tolist(), sums.values
    elif owners is not None:
        holdings = owners.project(valuation.blocks)
        names, values = list(holdings.names), sum_by_column(valuation, holdings).sum(axis=1)
        errors = np.full(len(names), np.nan)
    else:
        return None
    return [
        {"owner": name, "value": plain(value), "error": plain(error)}
        for name, value, error in zip(names, values, errors, strict=True)
    ]


def sum_by_column(valuation: Valuation, holdings: Holdings) -> Floats:
    """Return the sums of each owner's cells in each column, shape (n_owners, n_columns)."""
    n_columns = valuation.shape[1]
    sums = np.zeros(len(holdings.claims) * n_columns)
    for chunk in valuation.iter_rows():
        positions = holdings.codes(chunk.rows) * n_columns + np.arange(n_columns)
        sums += np.bincount(positions.ravel(), chunk.values.ravel(), minlength=len(sums))
    by_column: Floats = holdings.shares.T @ sums.reshape(-1, n_columns)
    return by_column


def plain(number: Any) -> float | None:
    """Return a float that JSON can hold, or None."""
    return None if number is None or not math.isfinite(number) else float(number)


def public_provenance(provenance: Provenance) -> dict[str, Any]:
    """Return names and numbers of the provenance, without hashes, parameters and messages."""
    record: dict[str, Any] = jsonable(provenance.to_dict())
    return record | {
        "problem_spec": _select_names_and_numbers(record["problem_spec"], _PROBLEM),
        "method": _select_names_and_numbers(record["method"], _METHOD),
        # Messages of failed fits may hold contents of cells.
        "tally": record["tally"] | {"messages": []},
        "left_out": LEFT_OUT,
    }


def _select_names_and_numbers(
    settings: Mapping[str, Any], known: tuple[str, ...]
) -> dict[str, Any]:
    shown = {name: _shorten_setting(settings[name]) for name in known if name in settings}
    return {name: setting for name, setting in shown.items() if setting is not None}


def _shorten_setting(setting: Any) -> Any:
    """Return a number, or the name of a class without its arguments."""
    if isinstance(setting, int | float):
        return setting
    found = _NAME.match(setting) if isinstance(setting, str) else None
    return None if found is None or _HASH.search(found[1]) else found[1].strip()
