"""The lists of a report: columns, cells and rows to look at, owners."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import NumberedAxis, Positions
from cellworth.certainty import both_errors
from cellworth.diagnostics import suspect_cells
from cellworth.listing import ValueList
from cellworth.neighbours.columns import Distance, Kind
from cellworth.owners import Owners
from cellworth.payouts import Payout
from cellworth.report.subjects import Subject, cell_text, text_of
from cellworth.tables import Table
from cellworth.valuation import Valuation

Floats = NDArray[np.float64]

_ROWS_LISTED = 25


def listed_columns(valuation: Valuation) -> list[dict[str, Any]]:
    """Columns with what they are worth, highest first."""
    columns = valuation.columns()
    order = np.argsort(-columns.values, kind="stable")
    names = valuation.column_labels.tolist()
    errors = _errors(columns)
    return [
        {
            "column": text_of(names[place]),
            "value": plain(columns.values[place]),
            "error": plain(errors[place]),
        }
        for place in order
    ]


def listed_cells(
    subject: Subject, k: int, kinds: Mapping[Any, Kind | Distance] | None = None
) -> dict[str, Any]:
    """Cells to look at: the most suspicious ones with a reason, or else those of lowest worth."""
    if subject.target is not None and subject.table is not None:
        found = _suspects(subject, subject.table, k, kinds)
        return {"ranked_by": "suspicion", "cells": found}
    return {"ranked_by": "worth", "cells": _lowest(subject, k)}


def _suspects(
    subject: Subject, table: Table, k: int, kinds: Mapping[Any, Kind | Distance] | None
) -> list[dict[str, Any]]:
    valuation, table = _by_place(subject.valuation, table)
    found = suspect_cells(table, subject.target, valuation=valuation, k=k, kinds=kinds)
    lines = nw.from_native(found, eager_only=True).rows(named=True)
    ids, held_as = subject.valuation.blocks.rows.ids.tolist(), _held_as(table)
    return [
        {
            "row": text_of(ids[line["row"]]),
            "place": int(line["row"]) if subject.of_cells else None,
            "column": text_of(line["column"]),
            "cell": _content(line["cell"], held_as[line["column"]]),
            "typical": _content(line["typical"], held_as[line["column"]]),
            "suspicion": plain(line["suspicion"]),
            "worth": plain(line["worth"]),
            "error": plain(_joint(line["standard_error"], line.get("validation_error"))),
            "reason": line["reason"],
        }
        for line in lines
    ]


def _by_place(valuation: Valuation, table: Table) -> tuple[Valuation, Table]:
    """The same with rows that are called by their places: several rows may share an id."""
    places = np.arange(table.shape[0])
    rows = valuation.blocks.rows
    if not isinstance(rows, NumberedAxis):
        rows = replace(rows, ids=places)
    blocks = replace(valuation.blocks, rows=rows)
    return replace(valuation, blocks=blocks), replace(table, row_ids=places)


def _held_as(table: Table) -> dict[Any, str]:
    """What NumPy holds each column as."""
    columns = enumerate(table.names.tolist())
    return {name: table.column(place).dtype.kind for place, name in columns}


def _content(cell: Any, kind: str) -> str:
    """Write a cell of a list, in which cells of several types may have become text."""
    if isinstance(cell, str) and kind in "iuf":
        cell = float(cell) if kind == "f" else int(cell)
    if isinstance(cell, str) and kind == "M":
        cell = datetime.fromisoformat(cell)
    return cell_text(cell)


def _lowest(subject: Subject, k: int) -> list[dict[str, Any]]:
    valuation = subject.valuation
    rows, columns, worths, errors = _lowest_cells(valuation, k)
    ids, names = valuation.blocks.rows.some_labels(rows).tolist(), valuation.column_labels.tolist()
    listed = []
    for row, name, column, worth, error in zip(rows, ids, columns, worths, errors, strict=True):
        cells = subject.column(column)
        listed.append(
            {
                "row": text_of(name),
                "place": int(row),
                "column": text_of(names[column]),
                "cell": None if cells is None else cell_text(cells[row]),
                "typical": None,
                "suspicion": None,
                "worth": plain(worth),
                "error": plain(error),
                "reason": None,
            }
        )
    return listed


def _lowest_cells(valuation: Valuation, k: int) -> tuple[Positions, Positions, Floats, Floats]:
    """Rows, columns, worths and errors of the k lowest blocks, ties in the table's order."""
    n_columns = valuation.shape[1]
    places, worths, errors = np.empty(0, dtype=np.intp), np.empty(0), np.empty(0)
    for strip in valuation.strips():
        start = strip.rows.start * n_columns
        places = np.concatenate([places, np.arange(start, start + strip.values.size)])
        worths = np.concatenate([worths, strip.values.ravel()])
        errors = np.concatenate([errors, strip.errors.ravel()])
        order = np.argsort(worths, kind="stable")
        order = order[~np.isnan(worths[order])][:k]
        places, worths, errors = places[order], worths[order], errors[order]
    rows, columns = np.divmod(places, n_columns)
    return rows, columns, worths, errors


def listed_rows(subject: Subject) -> list[dict[str, Any]]:
    """Rows of lowest worth, each with the cell that is lowest in it."""
    valuation = subject.valuation
    places = valuation.rows().lowest_places(_ROWS_LISTED)
    rows = valuation.rows().part(places)
    ids, names = rows.labels["row"].tolist(), valuation.column_labels.tolist()
    targets = _targets(subject, places)
    listed = []
    for place, row, value, error in zip(places, ids, rows.values, _errors(rows), strict=True):
        values = valuation.line("row", place).values
        lowest = None if np.isnan(values).all() else int(np.nanargmin(values))
        cells = None if lowest is None else subject.column(lowest)
        listed.append(
            {
                "row": text_of(row),
                "place": int(place),
                "label": targets[place],
                "value": plain(value),
                "error": plain(error),
                "column": None if lowest is None else text_of(names[lowest]),
                "cell": None if cells is None else cell_text(cells[place]),
                "worth": None if lowest is None else plain(values[lowest]),
                "below_zero": int(np.sum(values < 0)),
            }
        )
    return listed


def _targets(subject: Subject, places: Positions) -> dict[int, str | None]:
    """Labels of some rows as text, or their numeric targets; None where they are not known."""
    codes = subject.label_codes()
    if codes is not None:
        return {place: subject.classes[codes[place]] for place in places}
    if subject.target is None or subject.classes or not subject.of_cells:
        return dict.fromkeys(places)
    return {place: cell_text(subject.target[place]) for place in places}


def listed_owners(
    valuation: Valuation, owners: Owners | None, payout: Payout | None
) -> dict[str, Any] | None:
    """Owners with what their cells are worth together, and what they get where that is agreed."""
    if payout is not None:
        return _paid(payout)
    if valuation.owned is not None:
        sums = valuation.owners()
        errors = _errors(sums)
        names, values = sums.labels["owner"].tolist(), sums.values
    elif owners is not None:
        names, values = _sums(valuation, owners)
        errors = np.full(len(names), np.nan)
    else:
        return None
    lines = [
        {"owner": name, "value": plain(value), "error": plain(error), "share": None, "amount": None}
        for name, value, error in zip(names, values, errors, strict=True)
    ]
    return {"lines": lines, "amount": None, "currency": None, "notes": []}


def _paid(payout: Payout) -> dict[str, Any]:
    lines = [
        {
            "owner": name,
            "value": plain(value),
            "error": plain(error),
            "share": plain(share),
            "amount": f"{amount:,}",
        }
        for name, value, error, share, amount in zip(
            payout.owners,
            payout.values,
            payout.errors.together,
            payout.shares,
            payout.amounts,
            strict=True,
        )
    ]
    return {
        "lines": lines,
        "amount": f"{payout.amount:,}",
        "currency": payout.currency,
        "notes": list(payout.notes),
    }


def _sums(valuation: Valuation, owners: Owners) -> tuple[list[str], Floats]:
    """What owners' cells add up to; who shares a block has an equal part of it."""
    holdings = owners.on(valuation.blocks)
    parts = holdings.claims / np.maximum(holdings.claims.sum(axis=1, keepdims=True), 1)
    sums = np.zeros(len(holdings.names))
    for strip in valuation.strips():
        codes = holdings.codes(strip.rows)
        worths = np.bincount(codes.ravel(), strip.values.ravel(), minlength=len(parts))
        sums += worths @ parts
    return list(holdings.names), sums


def _errors(listed: ValueList) -> Floats:
    return both_errors(listed.standard_errors, listed.validation_errors)


def _joint(standard: float, validation: float | None) -> float:
    judged = None if validation is None else np.array([validation])
    return float(both_errors(np.array([standard]), judged)[0])


def plain(number: Any) -> float | None:
    """A float that JSON can hold."""
    return None if number is None or not math.isfinite(number) else float(number)
