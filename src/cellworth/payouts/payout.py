"""Payout: amounts, statements and split_revenue, which computes them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.data.owners import Owners
from cellworth.data.tables import frame
from cellworth.data.text import format_count
from cellworth.data.views import draw_bars, heading, html_table, paragraph, table_lines, view
from cellworth.findings.cells import check_valuation
from cellworth.payouts.allocation import (
    Allocation,
    allocate,
    check_any_owner,
    find_undecided,
)
from cellworth.payouts.bundle import (
    list_own_cells,
    read_previous,
    serialize_allocation,
    write_bundle,
)
from cellworth.payouts.facts import LEAKED, Fact, list_facts
from cellworth.payouts.policy import (
    Policy,
    check_carried,
    check_labels_valued,
    check_players,
    check_policy,
    join_names,
    parse_money,
)
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuation.valuation import Valuation, format_score, name_of_score

_LINES_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Statement:
    """What one owner may see of a payout: totals, and its own cells only.

    It contains nothing about other owners' cells, so it can be sent to the owner.

    Parameters
    ----------
    owner : str
    amount : Decimal
        What the owner gets.
    value : float
        Total value of its cells, including what was carried over.
    totals : mapping
        The other figures of :meth:`to_dict`.
    cells : mapping of str to list
        Row, column, value, standard error and share of each of its cells.
    backend : str or None
        Data-frame library for :meth:`to_frame`.

    See Also
    --------
    Payout, cellworth.report.write_statement

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import OwnerValuer, split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuer = OwnerValuer(KNNValuer(1))
    >>> valuation = valuer.fit(X, y, X_val=X_val, y_val=y, owners=owners).valuation_
    >>> statement = split_revenue(valuation, owners, amount="100.00").statement("bob")
    >>> print(statement.owner, statement.amount, statement.to_dict()["cells"])
    bob 37.50 4
    >>> statement.to_frame("pyarrow").column_names
    ['row', 'column', 'value', 'sampling_se', 'share']
    """

    owner: str
    amount: Decimal
    value: float
    totals: Mapping[str, Any] = field(repr=False)
    cells: Mapping[str, list[Any]] = field(repr=False)
    backend: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        return {"owner": self.owner, "amount": str(self.amount), "value": self.value, **self.totals}

    def to_frame(self, backend: str | None = None) -> Any:
        """Return the values of the owner's cells, one row each.

        ``share`` is the owner's part of a cell that several claim, else 1.
        """
        return frame(self.cells, backend or self.backend)

    def __repr__(self) -> str:
        totals, (low, high) = self.totals, self.totals["interval"]
        units = f", in units of {totals['score']}" if totals["score"] else ""
        labels = f" and {n:,} labels" if (n := totals["labels"]) else ""
        known = "not known" if math.isnan(low) else f"{low:.4g} to {high:.4g}"
        return (
            f"{self.owner} gets {self.amount:,} {totals['currency']} (95% interval "
            f"{_format_ends(totals['amount_interval'])}), {totals['share']:.2%} of "
            f"{Decimal(totals['total_amount']):,}: its {totals['cells']:,} cells{labels} have a "
            f"value of {self.value:.4g} out of {totals['total_value']:.4g} (95% interval {known})"
            f"{units}."
        )

    def _repr_html_(self) -> str:
        """Show the statement in Jupyter."""
        return view(paragraph(repr(self)))


@dataclass(frozen=True, eq=False)
class Payout(Allocation):
    """Amounts of all owners with their intervals, from ``split_revenue``.

    ``cellworth.report.write_payout`` writes it as a page.

    Parameters
    ----------
    owners : tuple of str
    keys : tuple of str
        Hash of the cells that each owner holds.
    amounts : tuple of Decimal
        What each owner gets; the sum and what is held back are exactly ``amount``.
    amount_intervals : tuple
        95% intervals of the amounts; None if they are not known. Values are drawn from their joint
        distribution and split by the policy, always with the same draws. The interval ends at a
        minimum and at 0 if the policy does.
    values : array of shape (n_owners,)
        Total value of each owner's cells, including what was carried over.
    errors : OwnerErrors
        Errors of the values.
    carried : mapping of str to float
        Shortfalls that reduce the next payout, with ``negative="carry"``.
    unassigned : float
        Value of cells and labels without an owner; it is not paid out.
    held : Decimal
        What is held back, with ``undecided="hold"``.
    ties : tuple
        Owners who share in equal parts, with ``undecided="equal"``.
    amount : Decimal
    policy : Policy
    facts : tuple of Fact
        What is certain about the rows, such as owners without cells.
    valuation : Valuation
    ownership : Owners
    brought : mapping of str to float
        Shortfalls carried over from an earlier payout.
    agreement : str or None
        Text of the agreement file, if there is one.
    previous : str or None
        Digest of the bundle before, from which shortfalls were carried over.

    See Also
    --------
    split_revenue, cellworth.plots.owners, cellworth.report.write_payout

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import OwnerValuer, split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuer = OwnerValuer(KNNValuer(1))
    >>> valuation = valuer.fit(X, y, X_val=X_val, y_val=y, owners=owners).valuation_
    >>> payout = split_revenue(valuation, owners, amount="100.00")
    >>> dict(zip(payout.owners, map(str, payout.amounts), strict=True))
    {'ann': '62.50', 'bob': '37.50'}
    >>> payout.intervals.round(4).tolist()
    [[0.3953, 0.8547], [0.1453, 0.6047]]
    >>> payout.undecided
    (('ann', 'bob'),)
    >>> payout.notes[0]
    'Ranking undecided: ann and bob.'
    >>> payout.to_frame("pandas")[["owner", "share", "amount"]]
      owner  share amount
    0   ann  0.625  62.50
    1   bob  0.375  37.50
    """

    amount: Decimal
    policy: Policy
    facts: tuple[Fact, ...]
    valuation: Valuation
    ownership: Owners
    brought: Mapping[str, float] = field(default_factory=dict)
    agreement: str | None = None
    previous: str | None = None

    @property
    def currency(self) -> str:
        """Currency of the amounts."""
        return self.policy.currency

    @property
    def shares(self) -> Floats:
        """Share of the amount that each owner gets."""
        total = float(self.amount) or 1.0
        return np.array([float(amount) / total for amount in self.amounts])

    @property
    def intervals(self) -> Floats:
        """95% intervals of the values, shape (n_owners, 2); both errors combined."""
        half = WIDTH_95 * self.errors.together
        return np.column_stack([self.values - half, self.values + half])

    @cached_property
    def undecided(self) -> tuple[tuple[str, str], ...]:
        """Pairs of owners whose order is uncertain: their values differ within the error of it."""
        undecided = find_undecided(self.values, self.errors)
        pairs = combinations(range(len(self.owners)), 2)
        return tuple((self.owners[i], self.owners[j]) for i, j in pairs if undecided[i, j])

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the payout, one sentence each; printed below the table."""
        return tuple(_iter_notes(self))

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one row per owner; amounts are exact, as strings."""
        low, high = self.intervals.T.tolist()
        ends = [
            (None, None) if one is None else (str(one[0]), str(one[1]))
            for one in self.amount_intervals
        ]
        columns = {
            "owner": list(self.owners),
            "value": self.values.tolist(),
            "low": low,
            "high": high,
            "share": self.shares.tolist(),
            "amount": [str(amount) for amount in self.amounts],
            "amount_low": [start for start, _ in ends],
            "amount_high": [end for _, end in ends],
        }
        return frame(columns, backend or self.valuation.backend)

    def statement(self, owner: str) -> Statement:
        """Return what one owner may see: totals, and its own cells only."""
        if owner not in self.owners:
            raise KeyError(f"owner must be one of {join_names(self.owners)}, got {owner!r}.")
        position, held = self.owners.index(owner), self.ownership
        ends = self.amount_intervals[position]
        totals = {
            "share": float(self.shares[position]),
            "interval": self.intervals[position].tolist(),
            "amount_interval": None if ends is None else list(map(str, ends)),
            "carried": self.carried.get(owner, 0.0),
            "cells": held.n_cells_of(owner),
            "labels": held.share_of_labels().get(owner, 0),
            "total_amount": str(self.amount),
            "total_value": float(self.values.sum()),
            "currency": self.currency,
            "owners": len(self.owners),
            "score": name_of_score(self.valuation) or None,
        }
        cells = list_own_cells(self.valuation, held.project(self.valuation.blocks), position)
        amount, value = self.amounts[position], float(self.values[position])
        return Statement(owner, amount, value, totals, cells, self.valuation.backend)

    def save(self, folder: str | os.PathLike[str], *, time: datetime | None = None) -> str:
        """Write a bundle that ``verify_bundle`` can replay, and return its digest.

        Parameters
        ----------
        folder : path
            Must be new or empty.
        time : datetime with time zone, default=None
            Time that the bundle says; None means now.

        Returns
        -------
        str
            Hash of the whole bundle. Give it to all owners: it reveals any later change.
        """
        agreed, made = self.agreement, time or datetime.now(UTC).replace(microsecond=0)
        plain = {
            **serialize_allocation(self, self.valuation),
            "amount": str(self.amount),
            "policy": asdict(self.policy),
            "brought": dict(self.brought),
            "facts": [asdict(fact) for fact in self.facts],
            "agreement_sha256": None if agreed is None else sha256(agreed.encode()).hexdigest(),
            "previous": self.previous,
            "time": made.isoformat(),
        }
        holdings = self.ownership.project(self.valuation.blocks)
        return write_bundle(
            folder, valuation=self.valuation, holdings=holdings, payout=plain, agreement=agreed
        )

    def __repr__(self) -> str:
        return "\n".join([_make_title(self), *table_lines(_list_owners(self)), *_list_more(self)])

    def _repr_html_(self) -> str:
        """Show owners, amounts and notes in Jupyter."""
        bars = draw_bars(np.array(self.amounts[:_LINES_SHOWN], dtype=np.float64))
        listed = html_table(_list_owners(self), bars=bars)
        return view(heading(_make_title(self)), listed, *map(paragraph, _list_more(self)))


def _format_ends(ends: Sequence[Decimal | str] | None) -> str:
    return "not known" if ends is None else " to ".join(f"{Decimal(end):,}" for end in ends)


def _make_title(payout: Payout) -> str:
    people, rule = format_count(len(payout.owners), "owner"), payout.policy.negative
    return f"Payout of {payout.amount:,} {payout.currency} to {people}; negative: {rule}"


def _list_owners(payout: Payout) -> dict[str, list[str]]:
    """Return the printed columns of the first owners."""
    known = not np.isnan(payout.errors.together).any()
    columns = {
        "owner": list(payout.owners),
        "value": [f"{value:.4f}" for value in payout.values],
        "95% interval": [
            f"{low:.4f} to {high:.4f}" if known else "not known" for low, high in payout.intervals
        ],
        "share": [f"{share:.2%}" for share in payout.shares],
        "amount": [f"{amount:,}" for amount in payout.amounts],
        "95% of amount": [_format_ends(ends) for ends in payout.amount_intervals],
    }
    return {name: column[:_LINES_SHOWN] for name, column in columns.items()}


def _list_more(payout: Payout) -> Iterator[str]:
    if (n_more := len(payout.owners) - _LINES_SHOWN) > 0:
        yield f"... and {n_more:,} more, in to_frame()"
    yield from payout.notes


def _iter_score_notes(valuation: Valuation) -> Iterator[str]:
    if math.isnan(valuation.score):
        return
    if valuation.scores is not None:
        yield f"The whole table scores {format_score(valuation)} on {valuation.scores.scored_on}."
        if valuation.scores.sentence:
            yield valuation.scores.sentence
    if valuation.empty != "zero":
        yield (
            f"{valuation.baseline:.4f} of the score is the baseline (empty={valuation.empty!r}) "
            "and is not allocated to any owner."
        )


def _iter_notes(payout: Payout) -> Iterator[str]:
    if payout.valuation.status == "interrupted":
        yield "The valuation was interrupted; resume and finish it before you pay."
    if np.isnan(payout.errors.together).any():
        yield "Intervals are not known. Pass owners to fit, and finish the run, to estimate them."
    if payout.errors.validation is None:
        yield "Intervals do not include validation errors, which are unknown."
    if payout.undecided:
        pairs = [" and ".join(pair) for pair in payout.undecided]
        more = f"; {len(pairs) - _LINES_SHOWN:,} more pairs" if len(pairs) > _LINES_SHOWN else ""
        yield f"Ranking undecided: {'; '.join(pairs[:_LINES_SHOWN])}{more}."
    if payout.unassigned:
        yield f"What has no owner has a value of {payout.unassigned:.4f}, which is not paid out."
    yield from _iter_score_notes(payout.valuation)
    yield from _describe_negative(payout)
    for tie in payout.ties:
        yield f"Paid in equal parts, because their order is not decided: {join_names(tie)}."
    if payout.held:
        yield f"Held back until the values are known better: {payout.held:,} {payout.currency}."
    for name, value in payout.carried.items():
        yield f"Carried to the next payout: {name} {value:.4f}."
    for fact in payout.facts:
        yield fact.sentence[0].upper() + fact.sentence[1:]


def _describe_negative(payout: Payout) -> Iterator[str]:
    """Say who has a negative value, gets nothing, and what that costs the others."""
    values = payout.values
    names = [name for name, value in zip(payout.owners, values, strict=True) if value < 0]
    if payout.policy.negative == "signed" or not names:
        return
    text = f"{join_names(names)} {'has a value' if len(names) == 1 else 'have values'} below 0"
    if values.sum() > 0:
        owed = float(payout.amount) * -values[values < 0].sum() / values.sum()
        text += (
            f" and nothing to pay; with negative='signed' the others would get {owed:,.2f} "
            f"{payout.currency} more together"
        )
    yield f"{text}."


def split_revenue(
    valuation: Valuation,
    owners: Owners,
    *,
    amount: str | int | Decimal,
    policy: Policy | None = None,
    carried: Mapping[str, float] | str | os.PathLike[str] | None = None,
    agreement: str | None = None,
) -> Payout:
    """Split an amount of money among the owners of a table, in proportion to their values.

    Parameters
    ----------
    valuation : Valuation
        Values of single cells; or of owners by :class:`~cellworth.payouts.OwnerValuer`, with
        ``Policy(game="owners")``.
    owners : Owners
        Who holds which cells. Pass them to ``fit`` of the valuer as well, which then estimates the
        errors of their sums.
    amount : str, int or Decimal
        The amount to split, such as "100000.00".
    policy : Policy, default=None
        Currency, rounding, treatment of negative values and of errors. None means ``Policy()``.
    carried : path or mapping of str to float, default=None
        Folder of the bundle before, which the new one then names by its digest: its shortfalls
        are carried over, also those of owners who left. Or ``payout.carried`` of the previous
        payout. There are shortfalls only with ``Policy(negative="carry")``.
    agreement : str, default=None
        Text of the agreement file, which the payout keeps;
        :meth:`~cellworth.payouts.Agreement.split` passes it.

    Returns
    -------
    Payout

    See Also
    --------
    Policy, cellworth.plots.owners

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import OwnerValuer, split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuer = OwnerValuer(KNNValuer(1))
    >>> valuation = valuer.fit(X, y, X_val=X_val, y_val=y, owners=owners).valuation_
    >>> split_revenue(valuation, owners, amount="100.00")
    Payout of 100.00 EUR to 2 owners; negative: floor
    owner   value      95% interval   share  amount   95% of amount
      ann  0.6250  0.3953 to 0.8547  62.50%   62.50  39.30 to 85.70
      bob  0.3750  0.1453 to 0.6047  37.50%   37.50  14.30 to 60.70
    Ranking undecided: ann and bob.
    The whole table scores 1 neighbor agreement (K = 1) on 4 validation rows.
    Accuracy: 0.5 by guessing the most frequent class.
    """
    policy = check_policy(policy)
    check_valuation(valuation)
    check_any_owner(owners)
    money = parse_money(amount, "amount", Decimal(policy.unit))
    holdings = owners.project(valuation.blocks)
    # By hash, if it is known.
    owners.check_cells(valuation.provenance.problem_spec.get("data_sha256", {}).get("X"))
    check_labels_valued(owners, valuation)
    check_players(valuation, policy)
    previous = None
    if isinstance(carried, str | os.PathLike):
        previous, carried = read_previous(carried)
    brought = check_carried(carried, policy.negative)
    facts = list_facts(owners, valuation)
    for fact in facts:
        if fact.kind == LEAKED:
            raise ValueError(f"nothing was split: {fact.sentence}")
    shared = allocate(policy, valuation, holdings, amount=money, brought=brought)
    return Payout(
        **vars(shared),
        amount=money,
        policy=policy,
        facts=facts,
        valuation=valuation,
        ownership=owners,
        brought=brought,
        agreement=agreement,
        previous=previous,
    )
