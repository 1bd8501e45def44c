"""Payout: amounts, statements and split_revenue, which computes them."""

from __future__ import annotations

import math
import os
import warnings
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
from cellworth.data.blocks import LABEL
from cellworth.data.owners import Owners
from cellworth.data.tables import TableLike, VectorLike, frame
from cellworth.data.views import View, draw_bars, heading, html_table, paragraph, table_lines, view
from cellworth.findings.cells import check_valuation
from cellworth.payouts.allocation import (
    Allocation,
    IntervalPlan,
    OwnerErrors,
    OwnerValues,
    allocate,
    check_owners_type,
    check_same_table,
    find_undecided,
    shrink_errors,
)
from cellworth.payouts.bundle import (
    list_own_cells,
    read_previous,
    serialize_allocation,
    serialize_provenance,
    write_bundle,
)
from cellworth.payouts.copies import count_copies
from cellworth.payouts.fraud_checks import (
    BELOW_ZERO,
    NOT_CHECKED,
    NOTES,
    WITHIN_NOISE,
    OwnerFinding,
    check_model_arguments,
    run_checks,
)
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
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuation.sharded_valuation import ShardedValuation
from cellworth.valuation.valuation import Valuation, format_score, name_of_score

_LINES_SHOWN = 20
# Sentences of findings of one kind; further ones are counted.
_SENTENCES_SHOWN = 3
_GROUPED = ("finding", "owners", "found", "would move")
# Part of the variance that more tasks are not worth.
_NEGLIGIBLE = 0.05
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

    See Also
    --------
    Payout, cellworth.report.write_statement

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
        units = f", in units of {totals['score']}" if totals["score"] else ""
        return (
            f"{self._title()} (95% interval {self._format_range()}), {totals['share']:.2%} of "
            f"{Decimal(totals['total_amount']):,}: its {self._describe_holdings()} have a value of "
            f"{self.value:.4g} out of {totals['total_value']:.4g} (95% interval "
            f"{self._format_interval()}){units}."
        )

    def _repr_html_(self) -> str:
        """Show amount and value in Jupyter."""
        totals = self.totals
        columns = {
            "amount": [f"{abs(self.amount):,}"],
            "95% of amount": [self._format_range()],
            "share": [f"{totals['share']:.2%}"],
            "value": [f"{self.value:.4g}"],
            "95% interval": [self._format_interval()],
        }
        units = f" Values are in units of {totals['score']}." if totals["score"] else ""
        notes = (
            f"For {self._describe_holdings()}, out of {Decimal(totals['total_amount']):,} "
            f"{totals['currency']} and a total value of {totals['total_value']:.4g}.{units}",
        )
        return View(self._title(), columns, notes).html()

    def _title(self) -> str:
        verb = "pays" if self.amount < 0 else "gets"
        return f"{self.owner} {verb} {abs(self.amount):,} {self.totals['currency']}"

    def _format_range(self) -> str:
        ends = self.totals["amount_interval"]
        negated = self.amount < 0 and ends
        return _format_ends([-Decimal(end) for end in reversed(ends)] if negated else ends)

    def _format_interval(self) -> str:
        low, high = self.totals["interval"]
        return "not known" if math.isnan(low) else f"{low:.4g} to {high:.4g}"

    def _describe_holdings(self) -> str:
        labels = f" and {n:,} labels" if (n := self.totals["labels"]) else ""
        return f"{self.totals['cells']:,} cells{labels}"


@dataclass(frozen=True, eq=False)
class Payout:
    """Amounts of all owners with their intervals, from ``split_revenue``.

    ``cellworth.report.write_payout`` writes it as a page.

    Parameters
    ----------
    shared : Allocation
        Amounts, values and errors of all owners.
    amount : Decimal
    policy : Policy
    findings : tuple of OwnerFinding
        Findings of the gate.
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
    'Ranking undecided: ann and bob.'
    >>> payout.plan()
    About 16 validation rows, instead of 4: the widest interval is then 46 EUR, not 93.
    >>> payout.to_frame("pandas")[["owner", "share", "amount"]]
      owner  share amount
    0   ann   0.75  75.00
    1   bob   0.25  25.00
    """

    shared: Allocation
    amount: Decimal
    policy: Policy
    findings: tuple[OwnerFinding, ...]
    valuation: Valuation
    ownership: Owners
    brought: Mapping[str, float] = field(default_factory=dict)
    agreement: str | None = None
    previous: str | None = None

    @property
    def owners(self) -> tuple[str, ...]:
        """Names of the owners."""
        return self.shared.owners

    @property
    def amounts(self) -> tuple[Decimal, ...]:
        """What each owner gets; the sum and what is held back are exactly ``amount``."""
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
    def held(self) -> Decimal:
        """What is held back, with ``undecided="hold"``."""
        return self.shared.held

    @property
    def ties(self) -> tuple[tuple[str, ...], ...]:
        """Owners whose parties share in equal parts, with ``undecided="equal"``."""
        return self.shared.ties

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
    def amount_intervals(self) -> tuple[tuple[Decimal, Decimal] | None, ...]:
        """95% intervals of the amounts; None if they are not known.

        Values are drawn from their joint distribution and split by the policy, always with the
        same draws. The interval ends at a minimum and at 0 if the policy does.
        """
        return self.shared.intervals

    @cached_property
    def undecided(self) -> tuple[tuple[str, str], ...]:
        """Pairs of owners whose order is uncertain: their values differ within the error of it.

        Owners who hold only labels that were not valued are in no pair: their share was agreed on.
        """
        undecided = find_undecided(self.values, range(len(self.owners)), self.errors)
        held = np.flatnonzero(self.ownership.project(self.valuation.blocks).hold_blocks).tolist()
        return tuple(
            (self.owners[i], self.owners[j]) for i, j in combinations(held, 2) if undecided[i, j]
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the payout, one sentence each; printed below the table."""
        return tuple(_iter_notes(self))

    def list_findings(self) -> dict[str, list[str]]:
        """Return the findings of the gate by kind and owners: how many, and what they would move.

        The columns are ``finding``, ``owners``, ``found`` (rows of the first owner, or pairs of
        columns) and ``would move``, in money; findings that move most come first. What was not
        checked is in :attr:`notes`.
        """
        values = dict(zip(self.owners, map(float, self.values), strict=True))
        found = [finding for finding in self.findings if finding.kind != NOT_CHECKED]
        return group_findings(found, values, self.amount, self.currency)

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
            "amount_low": [
                None if ends is None else str(ends[0]) for ends in self.amount_intervals
            ],
            "amount_high": [
                None if ends is None else str(ends[1]) for ends in self.amount_intervals
            ],
        }
        return frame(columns, backend or self.valuation.backend)

    def plan(self, width: float | None = None) -> IntervalPlan | None:
        """Say how many validation rows would halve the intervals of amounts.

        Parameters
        ----------
        width : float, default=None
            Width that the widest interval may have, in money. None means half of the present one.

        Without ``X_val``, validation rows are those of the table.

        Returns
        -------
        IntervalPlan or None
            None if the intervals or the number of validation rows are not known, or have no width.
        """
        known = [float(ends[1] - ends[0]) for ends in self.amount_intervals if ends is not None]
        widest, scores = max(known, default=0.0), self.valuation.scores
        if widest == 0 or scores is None or self.errors.validation is None:
            return None
        if width is not None and not 0 < width < widest:
            raise ValueError(
                f"width must be above 0 and below {widest:,}, the width of the widest interval, "
                f"got {width}."
            )
        then = widest / 2 if width is None else float(width)
        factor = shrink_errors(
            self.policy,
            self.ownership.share_of_labels(),
            self.shared,
            amount=self.amount,
            part=then / widest,
        )
        times = 1 / factor**2
        rows = scores.n_validation_rows
        # Draws of coalitions in a nearest-neighbor run are as many as its validation rows.
        of_neighbors = "KNN" in self.valuation.provenance.method["name"]
        samples = not of_neighbors and self.errors.sampled * (times - 1) > _NEGLIGIBLE
        return IntervalPlan(
            self.currency, widest, then, rows, math.ceil(rows * times), times if samples else 1.0
        )

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

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        time: datetime | None = None,
    ) -> str:
        """Write a bundle that ``verify_bundle`` can replay, and return its digest.

        Parameters
        ----------
        folder : path
            Must be new or empty.
        time : datetime with time zone, default=None
            Time of the bundle, which must not precede its agreement or the bundle before; None
            means now.

        Returns
        -------
        str
            Hash of the whole bundle. Give it to all owners: it reveals any later change.
        """
        return write_bundle(
            folder,
            valuation=self.valuation,
            holdings=self.ownership.project(self.valuation.blocks),
            labels=self.ownership.share_of_labels(),
            payout=self._to_plain(_check_time(time)),
            agreement=self.agreement,
        )

    def _to_plain(self, time: datetime) -> dict[str, Any]:
        agreed = self.agreement
        return {
            **serialize_allocation(self.shared, self.valuation),
            "amount": str(self.amount),
            "policy": asdict(self.policy),
            "brought": dict(self.brought),
            "findings": [asdict(finding) for finding in self.findings],
            "agreement_sha256": None if agreed is None else sha256(agreed.encode()).hexdigest(),
            "previous": self.previous,
            "time": time.isoformat(),
            **serialize_provenance(self.valuation),
        }

    def __repr__(self) -> str:
        lines = [_make_title(self), *table_lines(_list_owners(self)), *_list_more(self)]
        found = _shorten(self.list_findings())
        listed = table_lines(found, left=("finding", "owners", "found")) if found else []
        return "\n".join([*lines, *listed])

    def _repr_html_(self) -> str:
        """Show owners, amounts and findings in Jupyter."""
        bars = draw_bars(np.array(self.amounts[:_LINES_SHOWN], dtype=np.float64))
        listed = html_table(_list_owners(self), bars=bars)
        found = _shorten(self.list_findings())
        parts = [heading(_make_title(self)), listed, *map(paragraph, _list_more(self))]
        return view(*parts, *([html_table(found)] if found else []))


def _format_ends(ends: Sequence[Decimal | str] | None) -> str:
    return "not known" if ends is None else " to ".join(f"{Decimal(end):,}" for end in ends)


def _check_time(time: Any) -> datetime:
    if time is None:
        return datetime.now(UTC).replace(microsecond=0)
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise ValueError(f"time must be a datetime with a time zone, got {time!r}.")
    return time


def _describe_unassigned(payout: Payout) -> str:
    """Return what has no owner: cells, labels or both."""
    free = payout.ownership.project(payout.valuation.blocks).find_unassigned_columns()
    is_label = payout.valuation.blocks.columns.labels == LABEL
    parts = [("cells", ~is_label), ("labels", is_label)]
    return " and ".join(name for name, here in parts if free[here].any()).capitalize()


def _make_title(payout: Payout) -> str:
    n_owners, rule = len(payout.owners), payout.policy.negative
    people = "1 owner" if n_owners == 1 else f"{n_owners} owners"
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
        yield f"Ranking undecided: {'; '.join(pairs[:_LINES_SHOWN])}{more}."
    if payout.unassigned:
        yield (
            f"{_describe_unassigned(payout)} without an owner have a value of "
            f"{payout.unassigned:.4f}, which is not paid out."
        )
    yield from _iter_score_notes(payout.valuation)
    if payout.policy.game != "cells":
        yield f"Note: {PER_HEAD}."
    for tie in payout.ties:
        yield f"Paid in equal parts, because their order is not decided: {join_names(tie)}."
    if payout.held:
        yield f"Held back until the values are known better: {payout.held:,} {payout.currency}."
    for name, value in payout.carried.items():
        yield f"Carried to the next payout: {name} {value:.4f}."
    values = dict(zip(payout.owners, map(float, payout.values), strict=True))
    for sentence in describe_findings(payout.findings, values, payout.amount, payout.currency):
        yield f"Check first: {sentence}"


def split_revenue(
    valuation: Valuation,
    owners: Owners,
    *,
    amount: str | int | Decimal,
    policy: Policy | None = None,
    carried: Mapping[str, float] | str | os.PathLike[str] | None = None,
    agreement: str | None = None,
    X_val: TableLike | None = None,
    y: VectorLike | None = None,
    y_val: VectorLike | None = None,
    reserve: tuple[TableLike, VectorLike] | None = None,
) -> Payout:
    """Split an amount of money among the owners of a table, in proportion to their values.

    Parameters
    ----------
    valuation : Valuation
        Values of single cells; or of owners' blocks, with ``Policy(game="blocks")``; or of owners
        by :class:`~cellworth.payouts.OwnerValuer`, with ``Policy(game="owners")``.
    owners : Owners
        Who holds which cells. Pass them to ``fit`` of the valuer as well: the errors of their sums
        are then estimated, and not only bounded.
    amount : str, int or Decimal
        The amount to split, such as "100000.00".
    policy : Policy, default=None
        Currency, rounding, treatment of negative values and of labels, and the checks to run.
        None means ``Policy()``.
    carried : path or mapping of str to float, default=None
        Folder of the bundle before, which the new one then names by its digest: its shortfalls
        are carried over, also those of owners who left. Or ``payout.carried`` of the previous
        payout. There are shortfalls only with ``Policy(negative="carry")``.
    agreement : str, default=None
        Text of the agreement file, which the payout keeps;
        :meth:`~cellworth.payouts.Agreement.split` passes it.
    X_val : table, default=None
        Validation rows, to check that no owner's rows are copies of them. A valuation that was
        just fitted knows them; one that was loaded has hashes of them, by which only equal rows
        are found.
    y, y_val : array-like, default=None
        Labels of the owners' table and of the validation rows; only a reserve needs them.
    reserve : tuple of a table and its labels, default=None
        Rows that no owner can know, for the gate, as in :func:`check_owners`.

    Returns
    -------
    Payout

    See Also
    --------
    Policy, check_owners, cellworth.plots.owners

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> split_revenue(valuation, owners, amount="100.00")
    Payout of 100.00 EUR to 2 owners; negative: signed
    owner   value       95% interval   share  amount    95% of amount
      ann  0.3750   0.1453 to 0.6047  75.00%   75.00  28.60 to 121.40
      bob  0.1250  -0.1047 to 0.3547  25.00%   25.00  -21.40 to 71.40
    Ranking undecided: ann and bob.
    The whole table scores 1 neighbor agreement (K = 1) on 4 validation rows.
    Accuracy: 1 by majority vote, 0.5 by guessing the most frequent class.
    0.5000 of the score is the baseline (empty='prior') and is not allocated to any owner.
    """
    policy = check_policy(policy)
    check_valuation(valuation)
    check_owners_type(owners)
    money = parse_money(amount, "amount", Decimal(policy.unit))
    data: dict[str, Any] = {"y": y, "X_val": X_val, "y_val": y_val}
    owners = add_label_owner(owners, policy, valuation)
    holdings = owners.project(valuation.blocks)
    check_same_table(owners, valuation)
    check_players(valuation, policy)
    _check_copies_shared(policy, owners)
    previous = None
    if isinstance(carried, str | os.PathLike):
        previous, carried = read_previous(carried)
    brought = check_carried(
        carried, holdings.names, policy.negative, absent_ok=previous is not None
    )
    valued = OwnerValues(valuation, holdings)
    findings = _run_gate(owners, valued, policy, data, reserve)
    _apply_gate(findings, policy, valued.by_name, money, agreed=agreement is not None)
    shared = allocate(policy, valued, owners.share_of_labels(), amount=money, brought=brought)
    return Payout(shared, money, policy, findings, valuation, owners, brought, agreement, previous)


def _run_gate(
    owners: Owners,
    valued: OwnerValues,
    policy: Policy,
    data: Mapping[str, Any],
    reserve: tuple[TableLike, VectorLike] | None,
) -> tuple[OwnerFinding, ...]:
    """Return the findings of the gate; none if it is off."""
    if policy.gate == "off":
        if reserve is not None:
            raise ValueError("reserve is for the gate, which is off; leave out one of them.")
        return ()
    if reserve is not None:
        check_model_arguments(None, data, None, reserve)
    return tuple(run_checks(owners, valued, data, reserve))


def _check_copies_shared(policy: Policy, owners: Owners) -> None:
    """Check that equal rows were merged, if the policy says so."""
    n_copies = count_copies(owners) if policy.duplicates == "share" else 0
    if n_copies:
        rows = "1 row equals" if n_copies == 1 else f"{n_copies:,} rows equal"
        raise ValueError(
            f"duplicates='share' needs values of distinct rows, but {rows} an earlier one; value "
            "the table under an agreement (or what share_copies returns), or split with "
            "duplicates='pay'."
        )


def _apply_gate(
    findings: Sequence[OwnerFinding],
    policy: Policy,
    values: Mapping[str, float],
    money: Decimal,
    *,
    agreed: bool,
) -> None:
    """Warn of findings of the gate; raise ValueError if they forbid a split."""
    for finding in findings:
        # Shares of noise are no one's due, whatever else the parties have agreed on.
        if finding.kind == WITHIN_NOISE:
            raise ValueError(
                f"nothing was split: {finding.sentence} Give more validation rows, or "
                f"{_advise_gate('off', agreed)}"
            )
    # An owner who pays for a negative value gains nothing by it.
    harmless = (*NOTES, BELOW_ZERO) if policy.negative == "signed" else NOTES
    found = [finding for finding in findings if finding.kind not in harmless]
    notes = [finding.sentence for finding in findings if finding.kind in harmless]
    sentences = list(describe_findings(found, values, money, policy.currency))
    if found and policy.gate == "refuse":
        raise ValueError(
            f"nothing was split: {' '.join(sentences)} Leave out the rows or columns in question "
            f"and value the table again, or {_advise_gate('warn', agreed)}"
        )
    for sentence in [*sentences, *notes]:
        warnings.warn(sentence, UserWarning, stacklevel=3)


def _advise_gate(gate: str, agreed: bool) -> str:
    """Return how to split in spite of findings."""
    if agreed:
        return (
            f"agree on gate={gate!r} in an amendment (Agreement.amend, cellworth draft --amends)."
        )
    return f"pass gate={gate!r} to split anyway."


def describe_findings(
    findings: Sequence[OwnerFinding],
    values: Mapping[str, float],
    money: Decimal,
    currency: str,
) -> Iterator[str]:
    """Yield the sentences of findings, kind by kind: those that move most, and how many more."""
    by_kind: dict[str, list[tuple[Decimal, OwnerFinding]]] = {}
    for finding in findings:
        gain = estimate_stake(finding, values, money)
        by_kind.setdefault(finding.kind, []).append((gain or Decimal(0), finding))
    for kind, found in by_kind.items():
        # Sorting keeps the order of findings without money.
        ranked = sorted(found, key=lambda pair: -pair[0])
        for gain, finding in ranked[:_SENTENCES_SHOWN]:
            name = finding.owners[0]
            less = f" Without them, {name} would get about {gain:,} {currency} less."
            yield f"{finding.sentence}{less * (gain > 0)}"
        rest = ranked[_SENTENCES_SHOWN:]
        if rest:
            together = sum((gain for gain, _ in rest), Decimal(0))
            moved = f", about {together:,} {currency} together" * (together > 0)
            yield f"there are {len(rest):,} more findings of {kind}{moved}."


def group_findings(
    findings: Sequence[OwnerFinding],
    values: Mapping[str, float],
    money: Decimal,
    currency: str,
) -> dict[str, list[str]]:
    """Return findings by kind and owners as columns of a table; empty without findings."""
    groups: dict[tuple[str, frozenset[str]], list[OwnerFinding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, frozenset(finding.owners)), []).append(finding)
    lines = []
    for (kind, _), found in groups.items():
        gains = [estimate_stake(finding, values, money) for finding in found]
        gain = sum((one for one in gains if one is not None), Decimal(0))
        counts = [finding.count for finding in found if finding.count is not None]
        unit = "pair of columns" if kind == "copied columns" else "row"
        units = unit.replace("pair", "pairs") if " " in unit else "rows"
        count = f"{sum(counts):,} {unit if sum(counts) == 1 else units}" if counts else ""
        moved = f"{gain:,} {currency}" if gain else ""
        lines.append((gain, [kind, ", ".join(found[0].owners), count, moved]))
    lines.sort(key=lambda line: -line[0])
    if not lines:
        return {}
    columns = zip(*(cells for _, cells in lines), strict=True)
    return dict(zip(_GROUPED, map(list, columns), strict=True))


def _shorten(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the first lines of a table, and how many are left out."""
    more = max((len(column) for column in columns.values()), default=0) - _LINES_SHOWN
    shown = {name: column[:_LINES_SHOWN] for name, column in columns.items()}
    if more > 0:
        for name, column in shown.items():
            column.append(f"... and {more:,} more" if name == _GROUPED[0] else "")
    return shown


def estimate_stake(
    finding: OwnerFinding, values: Mapping[str, float], money: Decimal
) -> Decimal | None:
    """Return how much less the first owner would get if its copies had no value, if known."""
    name = finding.owners[0]
    if finding.stake is None or name not in values:
        return None
    others = sum(max(value, 0.0) for owner, value in values.items() if owner != name)
    own = values[name]
    now, then = (max(v, 0.0) / (others + max(v, 0.0) or 1.0) for v in (own, own - finding.stake))
    return (money * Decimal(max(now - then, 0.0))).quantize(Decimal(1))
