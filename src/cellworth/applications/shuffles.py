"""Shuffles: how a model fares where one owner's cells tell nothing any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cellworth.applications.comparisons import Comparison, before_and_after
from cellworth.applications.repairs import repair
from cellworth.blocks import Mask
from cellworth.owners import Owners
from cellworth.tables import Table

# Splits of the rows into halves; there may be many owners.
N_SPLITS = 5


def without_each_owner(
    owners: Owners, model: Any, *, y: Any, X_val: Any, y_val: Any, scoring: Any = None
) -> Iterator[tuple[str, Comparison]]:
    """Scores of a model before and after each owner's cells are shuffled within their columns."""
    table = owners.table
    for name in owners.names:
        mine = owners.cells_of(name)
        if mine.any():
            shuffled = repair(table.native, mine, how="values", values=_shuffled(table, mine))
            yield (
                name,
                before_and_after(
                    model, table.native, y, shuffled, X_test=X_val, y_test=y_val, scoring=scoring,
                    n_repeats=N_SPLITS, progress=False,
                ),
            )  # fmt: skip


def _shuffled(table: Table, mine: Mask) -> list[Any]:
    """Cells that are marked, row after row, each from another marked row of its column."""
    # The same for the same cells, whoever else holds some.
    rng = np.random.default_rng(0)
    values = np.empty(mine.shape, dtype=object)
    for place in np.flatnonzero(mine.any(axis=0)).tolist():
        rows = np.flatnonzero(mine[:, place])
        cells = _cells(table, place)
        for row, source in zip(rows.tolist(), rng.permutation(rows).tolist(), strict=True):
            values[row, place] = cells[source]
    return list(values[mine])


def _cells(table: Table, place: int) -> list[Any]:
    if isinstance(table.data, np.ndarray):
        return list(table.data[:, place].tolist())
    return list(table.data[:, place].to_list())
