"""Statements: what one owner may see of a payout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from cellworth.listing import frame
from cellworth.owners import Holdings
from cellworth.valuation import Valuation


@dataclass(frozen=True, eq=False)
class Statement:
    """What one owner may see of a payout: totals, and its own cells only.

    Nothing else is in it, so that it can be sent to its owner as it is.

    Parameters
    ----------
    owner : str
    amount : Decimal
        What the owner gets.
    value : float
        What its cells are worth together, with what was carried over.
    totals : mapping
        The other figures of :meth:`to_dict`.
    cells : mapping of str to list
        Row, column, value, standard error and share of each of its cells.
    backend : str or None
        Data-frame library for :meth:`to_frame`.

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners, split
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> statement = split(valuation, owners, amount="100.00").statement("bob")
    >>> print(statement.owner, statement.amount, statement.to_dict()["cells"])
    bob 25.00 4
    >>> statement.to_frame("pyarrow").column_names
    ['row', 'column', 'value', 'standard_error', 'share']
    """

    owner: str
    amount: Decimal
    value: float
    totals: Mapping[str, Any] = field(repr=False)
    cells: Mapping[str, list[Any]] = field(repr=False)
    backend: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Totals, as plain values."""
        mine = {"owner": self.owner, "amount": str(self.amount), "value": self.value}
        return mine | dict(self.totals)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return the values of the owner's own cells, one line each.

        ``share`` is the owner's part of a cell that several claim, else 1.
        """
        return frame(self.cells, backend or self.backend)

    def __repr__(self) -> str:
        """Say what the owner gets, and for what."""
        told = self.to_dict()
        low, high = told["interval"]
        held = f"{told['cells']:,} cells"
        if told["labels"]:
            held += f" and {told['labels']:,} labels"
        verb = "pays" if self.amount < 0 else "gets"
        units = f", in units of {told['score']}" if told["score"] else ""
        return (
            f"{self.owner} {verb} {abs(self.amount):,} {told['currency']}, {told['share']:.2%} of "
            f"{Decimal(told['total_amount']):,}: its {held} are worth {self.value:.4g} of "
            f"{told['total_value']:.4g} (95 % interval {low:.4g} to {high:.4g}){units}."
        )


def own_cells(valuation: Valuation, holdings: Holdings, place: int) -> dict[str, list[Any]]:
    """Values of the cells that one owner has a share in."""
    n_claims, columns_called = holdings.claims.sum(axis=1), valuation.column_labels
    found: dict[str, list[Any]] = {
        name: [] for name in ("row", "column", "value", "standard_error", "share")
    }
    for strip in valuation.strips():
        codes = holdings.codes(strip.rows)
        held = holdings.claims[:, place][codes]
        rows, columns = np.nonzero(held)
        found["row"] += valuation.blocks.rows.some_labels(strip.rows)[rows].tolist()
        found["column"] += columns_called[columns].tolist()
        found["value"] += strip.values[held].tolist()
        found["standard_error"] += strip.standard_errors[held].tolist()
        found["share"] += (1.0 / n_claims[codes[held]]).tolist()
    return found
