"""Payout: amounts, statements and split_revenue, which computes them."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.data.blocks import LABEL
from cellworth.data.holdings import Holdings
from cellworth.data.owners import Owners
from cellworth.data.tables import frame
from cellworth.diagnostics.cells import check_valuation
from cellworth.payouts.allocation import (
    Allocation,
    OwnerErrors,
    allocate,
    check_owners_type,
    check_same_table,
)
from cellworth.payouts.bundle import serialize_allocation, serialize_provenance, write_bundle
from cellworth.payouts.fraud_checks import NOT_CHECKED, Finding, run_checks
from cellworth.payouts.policy import (
    PER_HEAD,
    Policy,
    add_label_owner,
    check_carried,
    check_players,
    check_policy,
    join_names,
    parse_money,
)
from cellworth.runtime.cache import FileCache
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuation.sharded_valuation import ShardedValuation
from cellworth.valuation.valuation import Valuation, format_score, name_of_score
from cellworth.valuation.values import table_lines

_ROUNDING = 1e-12
_LINES_SHOWN = 20
_BOUNDS = "Intervals are upper bounds. Pass owners to fit to estimate the errors of their sums."
_UNKNOWN = "Intervals are not known. Pass owners to fit to estimate the errors of their sums."


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

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> statement = split_revenue(valuation, owners, amount="100.00").statement("bob")
    >>> print(statement.owner, statement.amount, statement.to_dict()["cells"])
    bob 25.00 4
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
        mine = {"owner": self.owner, "amount": str(self.amount), "value": self.value}
        return mine | dict(self.totals)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return the values of the owner's cells, one row each.

        ``share`` is the owner's part of a cell that several claim, else 1.
        """
        return frame(self.cells, backend or self.backend)

    def __repr__(self) -> str:
        totals = self.totals
        low, high = totals["interval"]
        interval = "not known" if math.isnan(low) else f"{low:.4g} to {high:.4g}"
        held = f"{totals['cells']:,} cells"
        if totals["labels"]:
            held += f" and {totals['labels']:,} labels"
        verb = "pays" if self.amount < 0 else "gets"
        units = f", in units of {totals['score']}" if totals["score"] else ""
        return (
            f"{self.owner} {verb} {abs(self.amount):,} {totals['currency']}, "
            f"{totals['share']:.2%} of {Decimal(totals['total_amount']):,}: its {held} have a "
            f"value of {self.value:.4g} out of {totals['total_value']:.4g} (95% interval "
            f"{interval}){units}."
        )


@dataclass(frozen=True, eq=False)
class Payout:
    """Amounts of all owners with intervals of their values, from ``split_revenue``.

    Parameters
    ----------
    shared : Allocation
        Amounts, values and errors of all owners.
    amount : Decimal
    policy : Policy
    findings : tuple of Finding
        Findings of the gate.
    valuation : Valuation
    ownership : Owners
    brought : mapping of str to float
        Shortfalls carried over from an earlier payout.
    agreement : str or None
        Text of the agreement file, if there is one.

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> payout = split_revenue(valuation, owners, amount="100.00")
    >>> dict(zip(payout.owners, map(str, payout.amounts), strict=True))
    {'ann': '75.00', 'bob': '25.00'}
    >>> payout.intervals.round(4).tolist()
    [[0.1453, 0.6047], [-0.1047, 0.3547]]
    >>> payout.undecided
    (('ann', 'bob'),)
    >>> payout.notes[0]
    'Ranking undecided (intervals overlap): ann and bob.'
    >>> payout.to_frame("pandas")[["owner", "share", "amount"]]
      owner  share amount
    0   ann   0.75  75.00
    1   bob   0.25  25.00
    """

    shared: Allocation
    amount: Decimal
    policy: Policy
    findings: tuple[Finding, ...]
    valuation: Valuation
    ownership: Owners
    brought: Mapping[str, float] = field(default_factory=dict)
    agreement: str | None = None

    @property
    def owners(self) -> tuple[str, ...]:
        """Names of the owners."""
        return self.shared.owners

    @property
    def amounts(self) -> tuple[Decimal, ...]:
        """What each owner gets; the sum is exactly ``amount``."""
        return self.shared.amounts

    @property
    def values(self) -> Floats:
        """Total value of each owner's cells, including what was carried over."""
        return self.shared.values

    @property
    def errors(self) -> OwnerErrors:
        """Errors of the values."""
        return self.shared.errors

    @property
    def carried(self) -> Mapping[str, float]:
        """Shortfalls that reduce the next payout, with ``negative="carry"``."""
        return self.shared.carried

    @property
    def unassigned(self) -> float:
        """Value of cells and labels without an owner; it is not paid out."""
        return self.shared.unassigned

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

    @property
    def undecided(self) -> tuple[tuple[str, str], ...]:
        """Pairs of owners whose intervals overlap, so that their order is uncertain.

        Owners who hold only labels that were not valued are in no pair: their share was agreed on.
        """
        intervals = self.intervals
        held = np.flatnonzero(self.ownership.on(self.valuation.blocks).hold_blocks).tolist()
        # Differences due to rounding do not count.
        intervals = intervals + _ROUNDING * np.abs(self.values).max() * np.array([-1.0, 1.0])
        return tuple(
            (self.owners[i], self.owners[j])
            for i, j in combinations(held, 2)
            # An interval that is unknown (NaN) overlaps all others.
            if not (intervals[i, 0] > intervals[j, 1] or intervals[j, 0] > intervals[i, 1])
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the payout, one sentence each; printed below the table."""
        return tuple(_iter_notes(self))

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one row per owner; amounts are exact, as strings."""
        low, high = self.intervals.T.tolist()
        columns = {
            "owner": list(self.owners),
            "value": self.values.tolist(),
            "low": low,
            "high": high,
            "share": self.shares.tolist(),
            "amount": [str(amount) for amount in self.amounts],
        }
        return frame(columns, backend or self.valuation.backend)

    def statement(self, owner: str) -> Statement:
        """Return what one owner may see: totals, and its own cells only."""
        if owner not in self.owners:
            raise KeyError(f"owner must be one of {join_names(self.owners)}, got {owner!r}.")
        position, held = self.owners.index(owner), self.ownership
        totals = {
            "share": float(self.shares[position]),
            "interval": self.intervals[position].tolist(),
            "carried": self.carried.get(owner, 0.0),
            "cells": held.n_cells_of(owner),
            "labels": held.share_of_labels().get(owner, 0),
            "total_amount": str(self.amount),
            "total_value": float(self.values.sum()),
            "currency": self.currency,
            "owners": len(self.owners),
            "score": name_of_score(self.valuation) or None,
        }
        cells = list_own_cells(self.valuation, held.on(self.valuation.blocks), position)
        amount, value = self.amounts[position], float(self.values[position])
        return Statement(owner, amount, value, totals, cells, self.valuation.backend)

    def save(self, folder: str | os.PathLike[str], *, utilities: FileCache | None = None) -> str:
        """Write an audit that ``verify_audit`` can replay, and return its digest.

        Parameters
        ----------
        folder : path
            Must be new or empty.
        utilities : FileCache, default=None
            Utilities of a model valuation, saved with the audit.

        Returns
        -------
        str
            Hash of the whole audit. Give it to all owners: it reveals any later change.
        """
        return write_bundle(
            folder,
            valuation=self.valuation,
            holdings=self.ownership.on(self.valuation.blocks),
            labels=self.ownership.share_of_labels(),
            payout=self._to_plain(),
            agreement=self.agreement,
            utilities=utilities,
        )

    def _to_plain(self) -> dict[str, Any]:
        agreed = self.agreement
        return {
            **serialize_allocation(self.shared, self.valuation),
            "amount": str(self.amount),
            "policy": asdict(self.policy),
            "brought": dict(self.brought),
            "findings": [asdict(finding) for finding in self.findings],
            "agreement_sha256": None if agreed is None else sha256(agreed.encode()).hexdigest(),
            **serialize_provenance(self.valuation),
        }

    def __repr__(self) -> str:
        return "\n".join(_iter_summary(self))


def _describe_unassigned(payout: Payout) -> str:
    """Return what has no owner: cells, labels or both."""
    free = payout.ownership.on(payout.valuation.blocks).find_unassigned_columns()
    is_label = payout.valuation.blocks.columns.labels == LABEL
    parts = [("cells", ~is_label), ("labels", is_label)]
    return " and ".join(name for name, here in parts if free[here].any()).capitalize()


def _iter_summary(payout: Payout) -> Iterator[str]:
    n_owners, policy = len(payout.owners), payout.policy
    people = "1 owner" if n_owners == 1 else f"{n_owners} owners"
    yield f"Payout of {payout.amount:,} {payout.currency} to {people}; negative: {policy.negative}"
    known = not np.isnan(payout.errors.together).any()
    intervals = [f"{low:.4f} to {high:.4f}" for low, high in payout.intervals]
    columns = {
        "owner": list(payout.owners),
        "value": [f"{value:.4f}" for value in payout.values],
        "95% interval": intervals if known else ["not known"] * n_owners,
        "share": [f"{share:.2%}" for share in payout.shares],
        "amount": [f"{amount:,}" for amount in payout.amounts],
    }
    lines = table_lines({name: column[:_LINES_SHOWN] for name, column in columns.items()})
    yield from lines
    if n_owners > _LINES_SHOWN:
        yield f"... and {n_owners - _LINES_SHOWN:,} more, in to_frame()"
    yield from payout.notes


def _iter_score_notes(valuation: Valuation) -> Iterator[str]:
    if math.isnan(valuation.score):
        return
    if valuation.scores is not None:
        yield f"The whole table scores {format_score(valuation)} on {valuation.scores.scored_on}."
        if valuation.scores.sentence:
            yield valuation.scores.sentence
    yield (
        f"{valuation.baseline:.4f} of the score is the baseline (empty={valuation.empty!r}) and is "
        "not allocated to any owner."
    )


def _iter_notes(payout: Payout) -> Iterator[str]:
    if payout.valuation.status == "interrupted":
        yield "The valuation was interrupted; resume and finish it before you pay."
    if payout.errors.bounded:
        yield _BOUNDS
    if np.isnan(payout.errors.together).any() and isinstance(payout.valuation, ShardedValuation):
        known = payout.valuation.owned is not None
        yield "Intervals are not known, because sampling errors are not." if known else _UNKNOWN
    if payout.errors.validation is None:
        yield "Intervals do not include validation errors, which are unknown."
    if payout.undecided:
        pairs = [" and ".join(pair) for pair in payout.undecided]
        more = f"; {len(pairs) - _LINES_SHOWN:,} more pairs" if len(pairs) > _LINES_SHOWN else ""
        yield f"Ranking undecided (intervals overlap): {'; '.join(pairs[:_LINES_SHOWN])}{more}."
    if payout.unassigned:
        yield (
            f"{_describe_unassigned(payout)} without an owner have a value of "
            f"{payout.unassigned:.4f}, which is not paid out."
        )
    yield from _iter_score_notes(payout.valuation)
    if payout.policy.game == "blocks":
        yield f"Note: {PER_HEAD}."
    for name, value in payout.carried.items():
        yield f"Carried to the next payout: {name} {value:.4f}."
    for finding in payout.findings:
        yield f"Check first: {finding.sentence}"


def list_own_cells(valuation: Valuation, holdings: Holdings, position: int) -> dict[str, list[Any]]:
    """List the values of the cells in which one owner has a share."""
    n_claims, labels = holdings.claims.sum(axis=1), valuation.column_labels
    found: dict[str, list[Any]] = {
        name: [] for name in ("row", "column", "value", "sampling_se", "share")
    }
    for chunk in valuation.iter_rows():
        codes = holdings.codes(chunk.rows)
        held = holdings.claims[:, position][codes]
        rows, columns = np.nonzero(held)
        found["row"] += valuation.blocks.rows.some_labels(chunk.rows)[rows].tolist()
        found["column"] += labels[columns].tolist()
        found["value"] += chunk.values[held].tolist()
        found["sampling_se"] += chunk.sampling_se[held].tolist()
        found["share"] += (1.0 / n_claims[codes[held]]).tolist()
    return found


def split_revenue(
    valuation: Valuation,
    owners: Owners,
    *,
    amount: str | int | Decimal,
    policy: Policy | None = None,
    carried: Mapping[str, float] | None = None,
    agreement: str | None = None,
) -> Payout:
    """Split an amount of money among the owners of a table, in proportion to their values.

    Parameters
    ----------
    valuation : Valuation
        Values of single cells; or of owners' blocks, with ``Policy(game="blocks")``.
    owners : Owners
        Who holds which cells. Pass them to ``fit`` of the valuer as well: the errors of their sums
        are then estimated, and not only bounded.
    amount : str, int or Decimal
        The amount to split, such as "100000.00".
    policy : Policy, default=None
        Currency, rounding, treatment of negative values and of labels, and the checks to run.
        None means ``Policy()``.
    carried : mapping of str to float, default=None
        ``payout.carried`` of the previous payout; only with ``Policy(negative="carry")``.
    agreement : str, default=None
        Text of the agreement file, which the payout keeps;
        :meth:`~cellworth.payouts.Agreement.split` passes it.

    Returns
    -------
    Payout

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> split_revenue(valuation, owners, amount="100.00")
    Payout of 100.00 EUR to 2 owners; negative: floor
    owner   value       95% interval   share  amount
      ann  0.3750   0.1453 to 0.6047  75.00%   75.00
      bob  0.1250  -0.1047 to 0.3547  25.00%   25.00
    Ranking undecided (intervals overlap): ann and bob.
    The whole table scores 1 neighbor agreement (K = 1) on 4 validation rows.
    Accuracy: 1 by majority vote, 0.5 by guessing the most frequent class.
    0.5000 of the score is the baseline (empty='prior') and is not allocated to any owner.
    """
    policy = check_policy(policy)
    check_valuation(valuation)
    check_owners_type(owners)
    money = parse_money(amount, "amount", Decimal(policy.unit))
    owners = add_label_owner(owners, policy, valuation)
    holdings = owners.on(valuation.blocks)
    check_same_table(owners, valuation)
    check_players(valuation, policy)
    brought = check_carried(carried, holdings.names, policy.negative)
    shared = allocate(
        policy, valuation, holdings, owners.share_of_labels(), amount=money, brought=brought
    )
    findings = _run_checks(policy, owners, valuation, holdings)
    return Payout(shared, money, policy, findings, valuation, owners, brought, agreement)


def _run_checks(
    policy: Policy, owners: Owners, valuation: Valuation, holdings: Holdings
) -> tuple[Finding, ...]:
    """Return the findings of the gate; with gate="refuse", raise ValueError unless NOT_CHECKED."""
    if policy.gate == "off":
        return ()
    findings = tuple(run_checks(owners, valuation, holdings))
    found = [finding for finding in findings if finding.kind != NOT_CHECKED]
    if found and policy.gate == "refuse":
        problems = " ".join(finding.sentence for finding in found)
        raise ValueError(
            f"nothing was split: {problems} Resolve this first, or pass gate='warn' to split "
            "anyway."
        )
    for finding in findings:
        warnings.warn(finding.sentence, UserWarning, stacklevel=3)
    return findings
