"""Sharing: what follows from values, holdings and policy, and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cellworth.applications.money import in_units, quotas, weights
from cellworth.applications.policies import Policy
from cellworth.applications.shares import OwnerErrors, owner_errors, owner_values
from cellworth.owners import Holdings
from cellworth.valuation import Valuation

Floats = NDArray[np.float64]


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
