"""Facts: what must be settled before money is paid, each with its rows and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellworth.data.arguments import Positions
from cellworth.data.equal_rows import find_first_equal
from cellworth.data.owners import Owners, are_players
from cellworth.data.tables import HashedRows, Table
from cellworth.data.text import format_count, list_first
from cellworth.valuation.valuation import Valuation

# Rows that a sentence names.
_IDS_SHOWN = 20
# Rows that must not be trained on; nothing is split while there are any.
LEAKED = "rows equal to validation rows"
SHARED = "rows of several owners"


@dataclass(frozen=True)
class Fact:
    """Something that is certain about the rows of a table, and what to do about it.

    Parameters
    ----------
    kind : str
        "rows equal to validation rows", for which nothing is split, "rows of several owners", which
        these share, or "no cells".
    owners : tuple of str
        Owners concerned.
    rows : tuple
        Ids of the rows.
    sentence : str

    See Also
    --------
    split_revenue

    Examples
    --------
    >>> from cellworth.payouts import Fact
    >>> Fact("no cells", ("ann",), (), "ann holds no cell and gets nothing.").sentence
    'ann holds no cell and gets nothing.'
    """

    kind: str
    owners: tuple[str, ...]
    rows: tuple[Any, ...]
    sentence: str


def list_facts(owners: Owners, valuation: Valuation) -> tuple[Fact, ...]:
    """List the facts about a table whose owners are paid by a valuation of it.

    Parameters
    ----------
    owners : Owners
    valuation : Valuation
        It knows its validation rows, or hashes of them if it was loaded.

    Returns
    -------
    tuple of Fact
        Empty if there is nothing to settle.

    See Also
    --------
    split_revenue

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import list_facts
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", rows=[0, 1]).assign("bob", rows=[2, 3])
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X[:3] + [[7.0, 7.0]], y_val=y).valuation_
    >>> (fact,) = list_facts(owners, valuation)
    >>> fact.rows, fact.owners
    ((0, 1, 2), ('ann', 'bob'))
    """
    leaked, shared = _find_leaked_rows(owners, valuation), _find_shared_rows(owners, valuation)
    return (*leaked, *shared, *_find_empty_owners(owners))


def _find_leaked_rows(owners: Owners, valuation: Valuation) -> Iterator[Fact]:
    """Find rows of the table that equal validation rows, by hashes, which every valuation has."""
    known = valuation.held_out
    if known is None or not isinstance(owners.table, Table):
        return
    hashed = HashedRows.of(known) if isinstance(known, Table) else known
    equal = np.flatnonzero(np.isin(hashed.hash(owners.table), hashed.hashes))
    if len(equal) == 0:
        return
    verb = format_count(len(equal), "row equals a validation row", "rows equal validation rows")
    consequence = ", so that they would score themselves; remove them and value the table again."
    yield _make_fact(LEAKED, owners, equal, verb, consequence)


def _find_shared_rows(owners: Owners, valuation: Valuation) -> Iterator[Fact]:
    """Find rows of the same cells that different owners handed in."""
    if not are_players(valuation.blocks) or not isinstance(owners.table, Table):
        return
    first, lines = find_first_equal(owners.table.hash_rows()), owners.holdings.row_lines[:]
    shared = np.flatnonzero(np.isin(first, first[lines != lines[first]]))
    if len(shared):
        verb = f"{len(shared):,} rows equal rows of another owner"
        consequence = "; with the same label they are one row, which these owners share."
        yield _make_fact(SHARED, owners, shared, verb, consequence)


def _make_fact(kind: str, owners: Owners, rows: Positions, verb: str, consequence: str) -> Fact:
    # Ids may be dates, which JSON does not have.
    ids = [one if isinstance(one, int) else str(one) for one in owners.table.row_ids[rows].tolist()]
    # All rows that must be removed are named; of others a few.
    listed = list_first(list(map(str, ids)), len(ids) if kind == LEAKED else _IDS_SHOWN)
    sentence = f"{verb} (ids {listed}){consequence}"
    holdings = owners.holdings
    sets = np.unique(holdings.lines[holdings.row_lines[rows]][:, :-1])
    concerned = np.array(holdings.names, dtype=object)[holdings.claims[sets].any(axis=0)]
    return Fact(kind, tuple(concerned.tolist()), tuple(ids), sentence)


def _find_empty_owners(owners: Owners) -> Iterator[Fact]:
    """Find owners whose claims went to others, who get nothing."""
    for name, holds in zip(owners.names, owners.holdings.hold_blocks.tolist(), strict=True):
        if not holds:
            advice = "leave it out, or assign cells to it."
            yield Fact("no cells", (name,), (), f"{name} holds no cell and gets nothing; {advice}")
