"""Sections of a report as plain data: columns, cells, rows, owners, rounds and provenance."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Distance, Floats, Kind, Positions
from cellworth.data.blocks import LABEL, NumberedAxis
from cellworth.data.io import jsonable
from cellworth.data.owners import Owners
from cellworth.data.problem import read_target
from cellworth.data.tables import Table
from cellworth.diagnostics.cells import CellValues, check_cells, check_valuation, drop_group_column
from cellworth.diagnostics.suspects import suspect_cells
from cellworth.payouts.payout import Payout
from cellworth.report.page import cell_text, text_of
from cellworth.runtime.stopping import Progress
from cellworth.sampling.moments import Moments, both_errors
from cellworth.valuation.provenance import Provenance
from cellworth.valuation.valuation import Valuation
from cellworth.valuation.values import ValueList

_ROWS_LISTED = 25
_KEYS = ("tasks", "seconds", "error", "total")
LEFT_OUT = (
    "Hashes are left out: whoever knows most of a table could guess the rest from them. "
    "So are parameters, which may hold contents."
)

# What may be told to people who may not see the table. A game of the user's own may answer with
# anything, and so may parameters of a model.
_QUESTION = (
    "game",
    "model",
    "row_semivalue",
    "column_semivalue",
    "n_neighbors",
    "n_repeats",
    "scoring",
    "scale",
    "empty",
    "validation",
    "value_labels",
    "column_share",
    "contrast",
)
_METHOD = ("name", "design", "sweeps", "stop")
_NAME = re.compile(r"'?(\w[\w. -]{0,79})")
_HASH = re.compile(r"[0-9a-fA-F]{16}")


@dataclass(frozen=True, eq=False)
class Subject:
    """What a report is about.

    Parameters
    ----------
    valuation : Valuation
    table : Table or None
        The table that was valued, without a column that only named groups of rows.
    target : array of shape (n_rows of the table,) or None
        Labels of its rows.
    classes : list of str
        What labels there are, as text; empty where they are numbers or not known.
    """

    valuation: Valuation
    table: Table | None
    target: NDArray[Any] | None
    classes: list[str]

    @classmethod
    def of(cls, valuation: Valuation, X: Any, y: Any) -> Subject:
        """Check that the table is the one that was valued."""
        check_valuation(valuation)
        if X is None:
            if y is not None:
                raise ValueError("y came without X; give the table too, or neither.")
            return cls(valuation, None, None, [])
        table = drop_group_column(Table.from_data(X, called="X"), valuation)
        # Refuses other rows and columns.
        CellValues.of(valuation, table)
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
        """What row ids are: "number", "date" or "text"; a CSV file does not say so."""
        kind = self.valuation.blocks.rows.some_labels(slice(1)).dtype.kind
        return {"O": "text", "M": "date"}.get(kind, "number")

    def label_codes(self) -> NDArray[np.int_] | None:
        """Place of each row's label in ``classes``; None where rows or labels are no singles."""
        if self.target is None or not self.classes or not self.of_cells:
            return None
        return np.unique(self.target, return_inverse=True)[1].ravel()

    def column(self, position: int) -> NDArray[Any] | None:
        """What stands in the cells of one column of the valuation, where it is a single column."""
        if self.table is None or not self.of_cells:
            return None
        label = self.valuation.column_labels.tolist()[position]
        names = self.table.names.tolist()
        if label == LABEL and label not in names:
            return self.target
        found = names.index(label) if label in names else [str(n) for n in names].index(str(label))
        return self.table.column(found)


def listed_columns(valuation: Valuation) -> list[dict[str, Any]]:
    """Columns with what they are worth, highest first."""
    columns = valuation.columns()
    order = np.argsort(-columns.values, kind="stable")
    names = valuation.column_labels.tolist()
    errors = _errors(columns)
    return [
        {
            "column": text_of(names[position]),
            "value": plain(columns.values[position]),
            "error": plain(errors[position]),
        }
        for position in order
    ]


def listed_cells(
    subject: Subject, k: int, column_types: Mapping[Any, Kind | Distance] | None = None
) -> dict[str, Any]:
    """Cells to look at: the most suspicious ones with a reason, or else those of lowest worth."""
    if subject.target is not None and subject.table is not None:
        found = _suspects(subject, subject.table, k, column_types)
        return {"ranked_by": "suspicion", "cells": found}
    return {"ranked_by": "worth", "cells": _lowest(subject, k)}


def _suspects(
    subject: Subject, table: Table, k: int, column_types: Mapping[Any, Kind | Distance] | None
) -> list[dict[str, Any]]:
    valuation, table = _by_place(subject.valuation, table)
    found = suspect_cells(
        table, subject.target, valuation=valuation, k=k, column_types=column_types
    )
    lines = nw.from_native(found, eager_only=True).rows(named=True)
    ids, held_as = subject.valuation.blocks.rows.ids.tolist(), _held_as(table)
    return [
        {
            "row": text_of(ids[line["row"]]),
            "place": int(line["row"]) if subject.of_cells else None,
            "column": text_of(line["column"]),
            "cell": _content(line["cell"], held_as[line["column"]]),
            "typical": _content(line["typical"], held_as[line["column"]]),
            "suspicion": plain(line["anomaly_score"]),
            "worth": plain(line["value"]),
            "error": plain(_joint(line["sampling_se"], line.get("validation_se"))),
            "reason": line["reason"],
        }
        for line in lines
    ]


def _by_place(valuation: Valuation, table: Table) -> tuple[Valuation, Table]:
    """The same with rows that are called by their places: several rows may share an id."""
    positions = np.arange(table.shape[0])
    rows = valuation.blocks.rows
    if not isinstance(rows, NumberedAxis):
        rows = replace(rows, ids=positions)
    blocks = replace(valuation.blocks, rows=rows)
    return replace(valuation, blocks=blocks), replace(table, row_ids=positions)


def _held_as(table: Table) -> dict[Any, str]:
    """What NumPy holds each column as."""
    columns = enumerate(table.names.tolist())
    return {name: table.column(position).dtype.kind for position, name in columns}


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
    positions, worths, errors = np.empty(0, dtype=np.intp), np.empty(0), np.empty(0)
    for strip in valuation.iter_rows():
        start = strip.rows.start * n_columns
        positions = np.concatenate([positions, np.arange(start, start + strip.values.size)])
        worths = np.concatenate([worths, strip.values.ravel()])
        errors = np.concatenate([errors, strip.errors.ravel()])
        order = np.argsort(worths, kind="stable")
        order = order[~np.isnan(worths[order])][:k]
        positions, worths, errors = positions[order], worths[order], errors[order]
    rows, columns = np.divmod(positions, n_columns)
    return rows, columns, worths, errors


def listed_rows(subject: Subject) -> list[dict[str, Any]]:
    """Rows of lowest worth, each with the cell that is lowest in it."""
    valuation = subject.valuation
    positions = valuation.rows().lowest_positions(_ROWS_LISTED)
    rows = valuation.rows().part(positions)
    ids, names = rows.labels["row"].tolist(), valuation.column_labels.tolist()
    targets = _targets(subject, positions)
    listed = []
    for position, row, value, error in zip(positions, ids, rows.values, _errors(rows), strict=True):
        values = valuation.row(position).values
        lowest = None if np.isnan(values).all() else int(np.nanargmin(values))
        cells = None if lowest is None else subject.column(lowest)
        listed.append(
            {
                "row": text_of(row),
                "place": int(position),
                "label": targets[position],
                "value": plain(value),
                "error": plain(error),
                "column": None if lowest is None else text_of(names[lowest]),
                "cell": None if cells is None else cell_text(cells[position]),
                "worth": None if lowest is None else plain(values[lowest]),
                "below_zero": int(np.sum(values < 0)),
            }
        )
    return listed


def _targets(subject: Subject, positions: Positions) -> dict[int, str | None]:
    """Labels of some rows as text, or their numeric targets; None where they are not known."""
    codes = subject.label_codes()
    if codes is not None:
        return {position: subject.classes[codes[position]] for position in positions}
    if subject.target is None or subject.classes or not subject.of_cells:
        return dict.fromkeys(positions)
    return {position: cell_text(subject.target[position]) for position in positions}


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
    for strip in valuation.iter_rows():
        codes = holdings.codes(strip.rows)
        worths = np.bincount(codes.ravel(), strip.values.ravel(), minlength=len(parts))
        sums += worths @ parts
    return list(holdings.names), sums


def _errors(listed: ValueList) -> Floats:
    return both_errors(listed.sampling_se, listed.validation_se)


def _joint(standard: float, validation: float | None) -> float:
    judged = None if validation is None else np.array([validation])
    return float(both_errors(np.array([standard]), judged)[0])


def plain(number: Any) -> float | None:
    """A float that JSON can hold."""
    return None if number is None or not math.isfinite(number) else float(number)


def round_line(progress: Progress) -> dict[str, Any]:
    """Figures of one round: small, and they can be written as JSON while a run goes on.

    Parameters
    ----------
    progress : Progress
        What ``on_round`` is called with.

    Returns
    -------
    dict
        ``tasks`` done, ``seconds`` since the session began, ``error`` (the root mean square of the
        blocks' standard errors, as far as they are known) and ``total`` (the sum of all values);
        the last two are None while they are not known.

    Examples
    --------
    >>> from cellworth import Runtime, report, value_game
    >>> from cellworth.games import TableGame
    >>> from cellworth.runtime import MaxTasks
    >>> rounds = []
    >>> game = TableGame(np.arange(16.0).reshape(4, 4) ** 2)
    >>> runtime = Runtime(on_round=lambda progress: rounds.append(report.round_line(progress)))
    >>> rule = MaxTasks(64)
    >>> valuation = value_game(game, (2, 2), stop=rule, random_state=0, runtime=runtime)
    >>> rounds[-1]["tasks"], rounds[-1]["total"]
    (64, 72.0)
    """
    moments = progress.moments
    return {
        "tasks": int(progress.tasks),
        "seconds": float(progress.seconds),
        "error": None if moments is None else _root_mean_square_error(moments),
        "total": None if moments is None else _total(moments),
    }


def checked_rounds(rounds: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Lines of a run's rounds, or a sentence that says what else came."""
    lines = []
    for line in () if rounds is None else rounds:
        if not isinstance(line, Mapping) or not set(_KEYS) <= set(line):
            raise TypeError(
                f"rounds holds a {type(line).__name__} without {', '.join(_KEYS)}; give a list of "
                "what round_line makes of each Progress."
            )
        lines.append({key: line[key] for key in _KEYS})
    return lines


def _root_mean_square_error(moments: Moments) -> float | None:
    errors = moments.sampling_se[:-1, :-1]
    known = errors[~np.isnan(errors)]
    return math.sqrt(float(np.mean(known**2))) if len(known) else None


def _total(moments: Moments) -> float | None:
    values = moments.values
    total = float(values[-1, -1])
    # Where no task sees all blocks together, the sum of their values stands in.
    total = float(values[:-1, :-1].sum()) if math.isnan(total) else total
    return None if math.isnan(total) else total


def told_origin(provenance: Provenance) -> dict[str, Any]:
    """All that is known, as plain data for JSON."""
    told: dict[str, Any] = jsonable(provenance.to_dict())
    return told


def discreet_origin(provenance: Provenance) -> dict[str, Any]:
    """What can be told without the data: names and numbers, no hash, no parameter, no message."""
    told = told_origin(provenance)
    return told | {
        "problem_spec": _names_and_numbers(told["problem_spec"], _QUESTION),
        "method": _names_and_numbers(told["method"], _METHOD),
        # Messages of failed fits may hold contents of cells.
        "tally": told["tally"] | {"messages": []},
        "left_out": LEFT_OUT,
    }


def _names_and_numbers(settings: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    told = {name: _name_or_number(settings[name]) for name in known if name in settings}
    return {name: setting for name, setting in told.items() if setting is not None}


def _name_or_number(setting: Any) -> Any:
    """A number, or what a text begins with: the name of a class, without what it was given."""
    if isinstance(setting, int | float):
        return setting
    found = _NAME.match(setting) if isinstance(setting, str) else None
    return None if found is None or _HASH.search(found[1]) else found[1].strip()
