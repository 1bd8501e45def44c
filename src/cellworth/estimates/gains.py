"""Gains: distinct pairs of coalitions that were looked at, and what each earns beyond its sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellworth.counts import Floats, Mask
from cellworth.designs import CoalitionPairs


@dataclass(frozen=True, eq=False)
class Gains:
    """What pairs of coalitions earn: h(S, F) - h(S, 0) - h(0, F) + h(0, 0).

    The values of this game are those of h, because what depends on one side alone has no second
    differences; and it is 0 wherever one side is empty.

    Parameters
    ----------
    rows, columns : arrays of shape (n_pairs, n_rows) and (n_pairs, n_columns)
        Distinct pairs of coalitions, none of them empty, in the order in which they were met.
    amounts : array of shape (n_pairs,) or (n_pairs, k)
    """

    rows: Mask
    columns: Mask
    amounts: Floats

    @classmethod
    def of(cls, tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]) -> Gains:
        """Gains of all pairs that were looked at together with their empty sides."""
        rows = np.concatenate([task.rows for task in tasks])
        columns = np.concatenate([task.columns for task in tasks])
        seen = np.concatenate(utilities)
        names = np.packbits(np.hstack([rows, columns]), axis=1)
        first = np.sort(np.unique(names, axis=0, return_index=True)[1])
        rows, columns, seen = rows[first], columns[first], seen[first]
        no_rows, no_columns = ~rows.any(axis=1), ~columns.any(axis=1)
        with_rows = dict(zip(_names(rows[no_columns]), seen[no_columns], strict=True))
        with_columns = dict(zip(_names(columns[no_rows]), seen[no_rows], strict=True))
        (nothing,) = seen[no_rows & no_columns]
        both = ~no_rows & ~no_columns
        amounts = seen[both] + nothing
        amounts -= np.array([with_rows[name] for name in _names(rows[both])])
        amounts -= np.array([with_columns[name] for name in _names(columns[both])])
        return cls(rows[both], columns[both], amounts)

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self.amounts)


def _names(masks: Mask) -> list[Any]:
    return [packed.tobytes() for packed in np.packbits(masks, axis=1)]
