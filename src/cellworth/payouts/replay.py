"""Replays: what an audit compares of a table in shards, of which no part is held for long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cellworth.absent import AbsentTable
from cellworth.blocks import LABEL
from cellworth.games.sharded_knn import ShardedKNNGame
from cellworth.holdings import Holdings
from cellworth.owners import Owners
from cellworth.payouts.bundle import DifferenceError, check_equal
from cellworth.runtime import choose_thread_executor
from cellworth.valuation import Strip, Valuation


def compare_sharded_data(data: Mapping[str, Any], valuation: Valuation) -> AbsentTable:
    """Compare fingerprints of all shards, read once; return the table whose columns play."""
    question = valuation.provenance.question
    saved = question["data_sha256"]
    if "table" not in saved:
        raise DifferenceError("X is a table in shards, but a table in memory was valued.")
    game = ShardedKNNGame.of(
        data["X"],
        data.get("X_val"),
        data.get("y_val"),
        n_neighbors=question["n_neighbors"],
        scoring=question["scoring"],
        scale=question["scale"],
        # Kinds are words; as settings they are spelled out with quotes.
        kinds={name: kind.strip("'") for name, kind in question["kinds"].items()},
        empty=question["empty"],
        column_groups=data.get("column_groups"),
        executor=choose_thread_executor(),
        show_progress=False,
    )
    came = game.question()["data_sha256"]
    if came["table"] != saved["table"]:
        raise DifferenceError(
            "X is not the table that was valued, or is cut into other shards (its sha256 differs)."
        )
    for name in ("validation", "columns"):
        if came[name] != saved[name]:
            raise DifferenceError(f"{name} is not the data that was valued (its sha256 differs).")
    check_equal(game.shape[0], valuation.shape[0], "the number of rows")
    return AbsentTable(data["X"])


def restore_sharded_owners(table: AbsentTable, holdings: Holdings, valuation: Valuation) -> Owners:
    """Owners of a table in shards, from what was saved about its blocks."""
    owners = Owners(table, overlaps="equal")
    lines = holdings.lines[:, valuation.blocks.columns.codes]
    names = np.append(table.names.astype(object), LABEL)
    for place, name in enumerate(holdings.names):
        held = holdings.claims[:, place][lines]
        for columns in np.unique(held[held.any(axis=1)], axis=0):
            rows = (held == columns).all(axis=1)[holdings.row_lines[:]]
            if rows.any():
                mine = names[: len(columns)][columns].tolist()
                owners = owners.assign(name, rows=rows, columns=mine)
        if name not in owners.names:
            # Who holds labels alone, which did not play.
            owners = owners.assign(name, columns=[LABEL])
    return owners


def compare_sharded_values(valuation: Valuation, again: Valuation) -> None:
    """Compare all values and errors bit for bit, some rows at a time."""
    for then, now in zip(valuation.strips(), again.strips(), strict=True):
        _compare_rows(then, now, valuation)
    for name in ("values", "standard_errors", "validation_errors"):
        now, then = (getattr(one.columns(), name) for one in (again, valuation))
        if (now is None) != (then is None) or (now is not None and not _are_equal(now, then)):
            raise DifferenceError(f"{name} of columns differ when they are computed anew.")
    for name in ("total", "total_error"):
        now, then = (getattr(one, name) for one in (again, valuation))
        if not _are_equal(now, then):
            check_equal(now, then, f"{name} of the valuation")


def _compare_rows(then: Strip, now: Strip, valuation: Valuation) -> None:
    for name in ("values", "standard_errors"):
        new, old = getattr(now, name), getattr(then, name)
        if not _are_equal(new, old):
            i, j = np.argwhere((new != old) & ~(np.isnan(new) & np.isnan(old)))[0]
            raise DifferenceError(
                f"{name.replace('_', ' ')} differ when they are computed anew, the first at "
                f"({then.rows.start + i}, {valuation.column_labels[j]}): {new[i, j]!r}, but "
                f"{old[i, j]!r} was saved."
            )


def _are_equal(now: Any, then: Any) -> bool:
    return np.array_equal(now, then, equal_nan=True)
