"""Payouts: from the values of cells to amounts of money, one per owner."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.applications.gate import Finding, check_owners
from cellworth.applications.money import (
    Negative,
    checked_money,
    in_units,
    quotas,
    weights,
)
from cellworth.applications.policies import (
    PER_HEAD,
    Game,
    Gate,
    Policy,
    checked_carried,
    refuse_other_game,
    with_label_owner,
)
from cellworth.applications.shares import (
    OwnerErrors,
    owner_errors,
    owner_values,
    refuse_other_table,
)
from cellworth.applications.statements import Statement
from cellworth.blocks import LABEL
from cellworth.listing import frame, table_lines
from cellworth.owners import Holdings, Owners, listed_names
from cellworth.valuation import Valuation

Floats = NDArray[np.float64]

# Half the width of a 95 % interval, in standard errors.
_WIDTH = 1.959963984540054

_ROUNDING = 1e-12
_LINES_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Shared:
    """What follows from values, holdings and policy.

    Parameters
    ----------
    owners : tuple of str
    keys : tuple of str
        Fingerprint of what each of them holds.
    amounts : tuple of Decimal
        They add up to the amount, to the cent.
    values : array of shape (n_owners,)
        Sum of the values of each owner's cells, with what was carried over.
    errors : OwnerErrors
        Sampling errors and errors from the choice of validation rows.
    carried : mapping of str to float
        What is set against the next payout, under the policy "carry".
    nobody : float
        Value of cells and labels that no owner holds; it is in no amount.
    """

    owners: tuple[str, ...]
    keys: tuple[str, ...]
    amounts: tuple[Decimal, ...]
    values: Floats
    errors: OwnerErrors
    carried: Mapping[str, float]
    nobody: float


@dataclass(frozen=True, eq=False)
class Payout:
    """Who gets how much, and how sure that is; made by :func:`split`.

    Parameters
    ----------
    shared : Shared
        Amounts, values and errors of all owners.
    amount : Decimal
    policy : Policy
    findings : tuple of Finding
        What the gate found.
    valuation : Valuation
    ownership : Owners
    brought : mapping of str to float
        What was carried over from an earlier payout.
    agreement : str or None
        Text of the agreement file, where there is one.
    """

    shared: Shared
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
        """What each owner gets; they add up to ``amount``, to the cent."""
        return self.shared.amounts

    @property
    def values(self) -> Floats:
        """What each owner's cells are worth together, with what was carried over."""
        return self.shared.values

    @property
    def errors(self) -> OwnerErrors:
        """Errors of the values."""
        return self.shared.errors

    @property
    def carried(self) -> Mapping[str, float]:
        """What is set against the next payout, under the policy "carry"."""
        return self.shared.carried

    @property
    def nobody(self) -> float:
        """Value of cells and labels that no owner holds; it is in no amount."""
        return self.shared.nobody

    @property
    def currency(self) -> str:
        """What amounts are in."""
        return self.policy.currency

    @property
    def shares(self) -> Floats:
        """Part of the amount that each owner gets."""
        whole = float(self.amount) or 1.0
        return np.array([float(amount) / whole for amount in self.amounts])

    @property
    def intervals(self) -> Floats:
        """95 % intervals of the values, shape (n_owners, 2); both kinds of errors together."""
        half = _WIDTH * self.errors.together
        return np.column_stack([self.values - half, self.values + half])

    @property
    def undecided(self) -> tuple[tuple[str, str], ...]:
        """Pairs of owners whose intervals overlap: who is worth more cannot be told.

        Who holds nothing but labels that did not play is in none: its share was agreed on.
        """
        intervals = self.intervals
        held = np.flatnonzero(self.ownership.on(self.valuation.blocks).hold_blocks).tolist()
        # What differs by rounding alone is equal.
        intervals = intervals + _ROUNDING * np.abs(self.values).max() * np.array([-1.0, 1.0])
        return tuple(
            (self.owners[i], self.owners[j])
            for i, j in combinations(held, 2)
            # An unknown error decides nothing.
            if not (intervals[i, 0] > intervals[j, 1] or intervals[j, 0] > intervals[i, 1])
        )

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one line per owner; amounts as text, exact to the cent."""
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
        """What may be shown to one owner: totals, and its own cells only."""
        if owner not in self.owners:
            raise KeyError(f"no owner is called {owner!r}; owners are {listed_names(self.owners)}.")
        return Statement.of(self, owner)

    def save(self, folder: str | os.PathLike[str], *, utilities: Any = None) -> str:
        """Write a bundle that :func:`verify` can replay, and return its seal.

        Parameters
        ----------
        folder : path
            Must be new or empty.
        utilities : FileCache, default=None
            Utilities that a model valuation looked at, to be kept with it.

        Returns
        -------
        str
            Fingerprint of the whole bundle. Give it to all owners: who has it can tell whether
            anything was changed since.
        """
        from cellworth.applications.bundles import write_bundle

        return write_bundle(folder, self, utilities)

    def __repr__(self) -> str:
        """Show a table, and what to know about it."""
        return "\n".join(_summary(self))


def split(
    valuation: Valuation,
    owners: Owners,
    *,
    amount: str | int | Decimal,
    currency: str = "EUR",
    unit: str | int | Decimal = "0.01",
    negative: Negative = "floor",
    minimum: str | int | Decimal = "0",
    label_owner: str | None = None,
    label_share: str | Decimal | None = None,
    game: Game = "cells",
    gate: Gate = "warn",
    carried: Mapping[str, float] | None = None,
) -> Payout:
    """Split an amount of money among the owners of a table, by what their cells are worth.

    Parameters
    ----------
    valuation : Valuation
        Of single cells; or of owners' blocks, with ``game="blocks"``.
    owners : Owners
        Who holds which cells. Pass them to the ``fit`` of a KNNValuer as well: what an owner's
        cells are worth together then has errors of its own, and not only a bound.
    amount : str, int or Decimal
        Such as "100000.00".
    currency : str, default="EUR"
    unit : str, int or Decimal, default="0.01"
        Smallest amount that is paid.
    negative : {"floor", "carry", "signed"}, default="floor"
        What becomes of owners whose cells are worth less than nothing: they get nothing; or nothing
        now, and ``payout.carried`` says what to pass as ``carried`` next time; or they pay. With
        "signed" nobody gains by appearing under two names; with the others an owner who moves bad
        cells to a second name does.
    minimum : str, int or Decimal, default="0"
        What every owner gets at least.
    label_owner : str, default=None
        Who holds the labels: their values, where labels were players (``value_labels=True``), else
        ``label_share`` of the amount.
    label_share : str or Decimal, default=None
        Agreed share of the amount for the labels, where they were no players.
    game : {"cells", "blocks"}, default="cells"
        "cells" adds up the values of single cells: it does not matter under how many names somebody
        owns them. "blocks" takes a valuation in which whole groups were the players. That game is
        legitimate too, but pays nearly per head: measured, owners of 120, 60 and 60 rows got 34, 33
        and 33 %, and one who came as two gained 16 points.
    gate : {"warn", "refuse", "off"}, default="warn"
        Whether copies of rows or columns across owners, and owners worth less than nothing, are
        warned of, refused, or not looked for; see :func:`check_owners`.
    carried : mapping of str to float, default=None
        What an earlier payout carried over; only with ``negative="carry"``.

    Returns
    -------
    Payout

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> split(valuation, owners, amount="100.00")
    Payout of 100.00 EUR to 2 owners; negative: floor
    owner   value     95 % interval   share  amount
      ann  0.3750  0.2525 to 0.4975  75.00%   75.00
      bob  0.1250  0.0025 to 0.2475  25.00%   25.00
    Of the score, 0.5000 is there before any cell is used (empty policy 'prior'); nobody earned it.
    """
    policy = Policy(
        currency,
        _as_text(unit, "unit"),
        negative,
        _as_text(minimum, "minimum"),
        label_owner,
        None if label_share is None else _as_text(label_share, "label_share"),
        game,
        gate,
    )
    return split_by(policy, valuation, owners, amount=amount, carried=carried)


def _as_text(given: str | int | Decimal, called: str) -> str:
    return given if isinstance(given, str) else str(checked_money(given, called, example="0.10"))


def split_by(
    policy: Policy,
    valuation: Valuation,
    owners: Owners,
    *,
    amount: str | int | Decimal,
    carried: Mapping[str, float] | None = None,
    agreement: str | None = None,
) -> Payout:
    """Split an amount as a policy says."""
    _refuse_other_kinds(valuation, owners)
    money = checked_money(amount, "amount", Decimal(policy.unit))
    owners = with_label_owner(owners, policy, valuation)
    holdings = owners.on(valuation.blocks)
    refuse_other_table(owners, valuation)
    refuse_other_game(valuation, policy)
    brought = checked_carried(carried, holdings.names, policy.negative)
    shared = shared_out(
        policy, valuation, holdings, owners.share_of_labels(), amount=money, brought=brought
    )
    findings = _passed(policy, owners, valuation)
    return Payout(shared, money, policy, findings, valuation, owners, brought, agreement)


def shared_out(
    policy: Policy,
    valuation: Valuation,
    holdings: Holdings,
    labels: Mapping[str, int],
    *,
    amount: Decimal,
    brought: Mapping[str, float],
) -> Shared:
    """Share an amount; a pure function of what an audit keeps."""
    names, keys = holdings.names, holdings.keys
    exact, nobody = owner_values(valuation, holdings)
    exact = [
        value + Fraction(brought.get(name, 0.0)) for value, name in zip(exact, names, strict=True)
    ]
    values = np.array([float(value) for value in exact])
    for_labels = _label_quotas(amount, policy, names, labels)
    shares = quotas(
        Fraction(amount) - sum(for_labels),
        weights(exact, policy.negative),
        Fraction(Decimal(policy.minimum)),
    )
    shares = [cells + label for cells, label in zip(shares, for_labels, strict=True)]
    return Shared(
        names,
        keys,
        tuple(in_units(shares, Decimal(policy.unit), keys)),
        values,
        owner_errors(valuation, holdings),
        _left_over(policy, names, values),
        float(nobody),
    )


def _refuse_other_kinds(valuation: Any, owners: Any) -> None:
    if not isinstance(valuation, Valuation):
        raise TypeError(
            f"valuation is of type {type(valuation).__name__}; give what a valuer's fit left in "
            "valuation_."
        )
    if not isinstance(owners, Owners):
        raise TypeError(f"owners is of type {type(owners).__name__}; give Owners(X).assign(...).")
    if not owners.names:
        raise ValueError("owners names nobody; give cells to somebody with assign(...).")


def _left_over(policy: Policy, names: tuple[str, ...], values: Floats) -> dict[str, float]:
    if policy.negative != "carry":
        return {}
    return {name: float(v) for name, v in zip(names, values, strict=True) if v < 0}


def _label_quotas(
    money: Decimal, policy: Policy, names: tuple[str, ...], labels: Mapping[str, int]
) -> list[Fraction]:
    """What each owner gets for labels, before the rest is shared by cells."""
    if policy.label_share is None:
        return [Fraction(0)] * len(names)
    for_labels = Fraction(money) * Fraction(Decimal(policy.label_share))
    total = sum(labels.values())
    return [for_labels * Fraction(labels.get(name, 0), total) for name in names]


def _passed(policy: Policy, owners: Owners, valuation: Valuation) -> tuple[Finding, ...]:
    """What the gate finds; with "refuse" nobody is paid if it finds anything."""
    if policy.gate == "off":
        return ()
    findings = tuple(check_owners(owners, valuation))
    if findings and policy.gate == "refuse":
        told = " ".join(finding.sentence for finding in findings)
        raise ValueError(
            f"nothing is split: {told} Settle this first, or pass gate='warn' to split all the "
            "same."
        )
    for finding in findings:
        warnings.warn(finding.sentence, UserWarning, stacklevel=4)
    return findings


def _free(payout: Payout) -> str:
    """What it is that nobody owns."""
    free = payout.ownership.on(payout.valuation.blocks).of_nobody()
    is_label = payout.valuation.blocks.columns.labels == LABEL
    kinds = [("cells", ~is_label), ("labels", is_label)]
    return " and ".join(name for name, here in kinds if free[here].any()).capitalize()


def _summary(payout: Payout) -> Iterator[str]:
    n_owners, policy = len(payout.owners), payout.policy
    people = "1 owner" if n_owners == 1 else f"{n_owners} owners"
    yield f"Payout of {payout.amount:,} {payout.currency} to {people}; negative: {policy.negative}"
    known = not np.isnan(payout.errors.together).any()
    intervals = [f"{low:.4f} to {high:.4f}" for low, high in payout.intervals]
    columns = {
        "owner": list(payout.owners),
        "value": [f"{value:.4f}" for value in payout.values],
        "95 % interval": intervals if known else ["not known"] * n_owners,
        "share": [f"{share:.2%}" for share in payout.shares],
        "amount": [f"{amount:,}" for amount in payout.amounts],
    }
    lines = table_lines({name: column[:_LINES_SHOWN] for name, column in columns.items()})
    yield from lines
    if n_owners > _LINES_SHOWN:
        yield f"... and {n_owners - _LINES_SHOWN:,} more, in to_frame()"
    if payout.valuation.status == "interrupted":
        yield "The valuation was broken off before its time; run it to its end before you pay."
    if payout.errors.bounded:
        yield (
            "Intervals are bounds, wider than need be: errors of sums are known only if fit gets "
            "the owners."
        )
    if payout.errors.validation is None:
        yield "Intervals leave out the choice of validation rows, whose error is not known here."
    if payout.undecided:
        pairs = [" and ".join(pair) for pair in payout.undecided]
        more = f"; {len(pairs) - _LINES_SHOWN:,} more pairs" if len(pairs) > _LINES_SHOWN else ""
        yield f"Ranking undecided (intervals overlap): {'; '.join(pairs[:_LINES_SHOWN])}{more}."
    if payout.nobody:
        yield (
            f"{_free(payout)} that nobody owns are worth {payout.nobody:.4f}; nobody is paid for "
            "them."
        )
    if not np.isnan(payout.valuation.unearned):
        yield (
            f"Of the score, {payout.valuation.unearned:.4f} is there before any cell is used "
            f"(empty policy {payout.valuation.empty!r}); nobody earned it."
        )
    if policy.game == "blocks":
        yield f"Note: {PER_HEAD}."
    for name, value in payout.carried.items():
        yield f"Carried to the next payout: {name} {value:.4f}."
    for finding in payout.findings:
        yield f"Look at this first: {finding.sentence}"
