"""Allocation: amounts as a pure function of values, holdings and policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats, Mask
from cellworth.data.holdings import Holdings
from cellworth.data.owners import check_owners
from cellworth.payouts.policy import (
    Policy,
    compute_quotas,
    count_units,
    round_to_units,
    share_equally,
)
from cellworth.sampling.moments import WIDTH_95, draw_errors, widening
from cellworth.valuation.valuation import Valuation

# Values are rounded once to this many binary digits below the largest. Sums of integers are exact,
# so the order of rows and the division into cells cannot matter.
_DIGITS = 52
_HALF = 26
# Values below this share of the scores are rounding errors and count as 0.
_ROUNDING = 1e-12
# Draws of owners' values, from which the intervals of amounts follow.
_SEED = 22
_MAX_DRAWS, _MIN_DRAWS, _NUMBERS_DRAWN = 4_000, 400, 4_000_000
# The last digits of simulated amounts may differ between processors.
_PART_OF_UNIT = 1e-6


@dataclass(frozen=True, eq=False)
class OwnerErrors:
    """Standard errors of owners' values, by their source; arrays of shape (n_owners,).

    They are NaN, not known, if values are estimated and ``fit`` did not get these owners.
    """

    sampling: Floats
    # None if the valuation knows no validation errors.
    validation: Floats | None
    # Draws of both errors together, with the covariances that the run observed, always the same;
    # shape (n_draws, n_owners).
    drawn: Floats

    @property
    def together(self) -> Floats:
        """Both errors combined."""
        validation = 0.0 if self.validation is None else self.validation
        return np.asarray(np.hypot(self.sampling, validation))


@dataclass(frozen=True, eq=False)
class Allocation:
    """Amounts, values and errors of all owners; ``Payout`` says what each field is."""

    owners: tuple[str, ...]
    keys: tuple[str, ...]
    amounts: tuple[Decimal, ...]
    amount_intervals: tuple[tuple[Decimal, Decimal] | None, ...]
    values: Floats
    errors: OwnerErrors
    carried: Mapping[str, float]
    unassigned: float
    held: Decimal
    ties: tuple[tuple[str, ...], ...]


def allocate(
    policy: Policy,
    valuation: Valuation,
    holdings: Holdings,
    *,
    amount: Decimal,
    brought: Mapping[str, float],
) -> Allocation:
    """Divide an amount among the owners; a pure function of the content of a bundle."""
    names, keys = holdings.names, holdings.keys
    errors = compute_owner_errors(valuation, holdings)
    exact, unassigned = sum_owner_values(valuation, holdings)
    exact = [
        value + Fraction(brought.get(name, 0.0)) for value, name in zip(exact, names, strict=True)
    ]
    values = np.array([float(value) for value in exact])
    quotas = compute_quotas(Fraction(amount), exact, policy.negative)
    ties = []
    if policy.undecided == "equal":
        ties = _find_ties(find_undecided(values, errors), exact)
    unit = Decimal(policy.unit)
    amounts = round_to_units(share_equally(quotas, ties), unit, keys)
    simulated = simulate_quotas(policy, float(amount), values + errors.drawn)
    intervals = [_find_interval(*one, unit) for one in zip(amounts, simulated.T, strict=True)]
    if policy.undecided == "hold":
        amounts = [interval[0] for interval in intervals if interval is not None]
        if len(amounts) < len(intervals):
            raise ValueError(
                "undecided='hold' needs the errors of the values, which are not known; pass owners "
                "to fit, or agree on 'pay'."
            )
    # Who left still carries its shortfall.
    carried = {name: value for name, value in brought.items() if name not in names}
    carried |= {name: float(value) for name, value in zip(names, exact, strict=True) if value < 0}
    return Allocation(
        names,
        keys,
        tuple(amounts),
        tuple(intervals),
        values,
        errors,
        carried if policy.negative == "carry" else {},
        float(unassigned),
        amount - sum(amounts),
        tuple(tuple(sorted((names[i] for i in tie), key=names.index)) for tie in ties),
    )


def _find_ties(undecided: Mask, values: Sequence[Fraction]) -> list[list[int]]:
    """Return groups of owners of undecided order.

    From the largest value down, an owner joins the group before it if its order with the group's
    first owner is undecided.
    """
    groups: list[list[int]] = []
    for one in sorted(range(len(values)), key=lambda i: (-values[i], i)):
        if groups and undecided[groups[-1][0], one]:
            groups[-1].append(one)
        else:
            groups.append([one])
    return [group for group in groups if len(group) > 1]


def find_undecided(values: Floats, errors: OwnerErrors) -> Mask:
    """Return of which owners, by their values and draws of errors, the order is undecided.

    The difference of their values is then within 1.96 standard errors of it, or its error is not
    known.
    """
    products = errors.drawn.T @ errors.drawn / len(errors.drawn)
    variances = np.add.outer(np.diag(products), np.diag(products))
    of_differences = np.sqrt(np.maximum(variances - 2 * products, 0.0))
    # Differences due to rounding do not count.
    limits = WIDTH_95 * of_differences + _ROUNDING * np.abs(values).max()
    return np.asarray(~(np.abs(np.subtract.outer(values, values)) > limits))


def compute_owner_errors(valuation: Valuation, holdings: Holdings) -> OwnerErrors:
    """Return the errors of owners' values that the run observed, with draws of them."""
    held, owned = holdings.hold_blocks, valuation.owned
    mine = [key for key, holds in zip(holdings.keys, held.tolist(), strict=True) if holds]
    sampling, validation = np.zeros(len(held)), np.zeros(len(held))
    if owned is None or not set(mine) <= set(owned.keys):
        if valuation.status != "exact":
            sampling[held] = np.nan
        if valuation.validation is None:
            return OwnerErrors(sampling, None, sampling[np.newaxis])
        validation[held] = np.nan
        return OwnerErrors(sampling, validation, (sampling + validation)[np.newaxis])
    positions, n_summed = [owned.keys.index(key) for key in mine], len(owned.names)
    sums, normals = valuation.owners(), _draw_normals(n_summed)
    drawn, both_errors = np.zeros((normals.shape[1], len(held))), [owned.validation]
    if valuation.status != "exact":
        both_errors.append(owned.moments.sampling_se * widening(owned.moments.count))
    for of_sums, numbers in zip(both_errors, normals, strict=False):
        if of_sums is not None:
            drawn[:, held] += draw_errors(of_sums, n_summed, numbers)[:, positions]
    sampling[held] = sums.sampling_se[positions]
    if sums.validation_se is None:
        return OwnerErrors(sampling, None, drawn)
    validation[held] = sums.validation_se[positions]
    return OwnerErrors(sampling, validation, drawn)


def _draw_normals(n_owners: int) -> Floats:
    """Return standard normal numbers of shape (2, n_draws, n_owners + 1), always the same."""
    half = min(max(_NUMBERS_DRAWN // n_owners, _MIN_DRAWS), _MAX_DRAWS) // 2
    generator = np.random.Generator(np.random.Philox(_SEED))
    numbers = generator.standard_normal((2, half, n_owners + 1))
    # Each draw comes with its opposite, so that their mean is the estimate.
    return np.concatenate([numbers, -numbers], axis=1)


def simulate_quotas(policy: Policy, amount: float, values: Floats) -> Floats:
    """Return the shares of an amount for draws of owners' values, shape (n_draws, n_owners).

    Draws by which nothing could be split, because no weight is above 0, are left out. Ties are not
    shared: intervals are those of the estimates.
    """
    weights = values if policy.negative == "signed" else np.maximum(values, 0.0)
    # A draw that is not known (NaN) is kept: it makes the interval unknown.
    kept = ~(weights.sum(axis=1) <= _ROUNDING * np.abs(weights).sum(axis=1))
    return np.asarray(weights[kept] * (amount / weights[kept].sum(axis=1))[:, np.newaxis])


def _find_interval(
    amount: Decimal, simulated: Floats, unit: Decimal
) -> tuple[Decimal, Decimal] | None:
    """Return the 95% interval of an amount: percentiles of simulated ones; None if not known."""
    if len(simulated) == 0 or np.isnan(simulated).any():
        return None
    ordered = np.sort(simulated)
    if ordered[-1] - ordered[0] <= _ROUNDING * abs(ordered[0]):
        return amount, amount
    outside, size = round(len(ordered) / 40), float(unit)
    low = math.floor(ordered[outside] / size + _PART_OF_UNIT)
    high = math.ceil(ordered[-1 - outside] / size - _PART_OF_UNIT)
    return min(count_units(low, unit), amount), max(count_units(high, unit), amount)


def sum_owner_values(valuation: Valuation, holdings: Holdings) -> tuple[list[Fraction], Fraction]:
    """Return exact sums over the blocks of each owner, and over those of none; 0 for rounding."""
    largest = _find_largest(valuation)
    # Binary exponent of the last digit that is kept of every value.
    unit = math.frexp(largest)[1] - _DIGITS
    # Two halves, so that no sum of many cells overflows.
    high, low = np.zeros((2, len(holdings.claims)), dtype=np.int64)
    for chunk in valuation.iter_rows():
        rounded = np.rint(np.ldexp(chunk.values, -unit)).astype(np.int64)
        codes = holdings.codes(chunk.rows)
        np.add.at(high, codes, rounded >> _HALF)
        np.add.at(low, codes, rounded & ((1 << _HALF) - 1))
    sums = [(one << _HALF) + other for one, other in zip(high.tolist(), low.tolist(), strict=True)]
    scale = Fraction(2) ** unit
    n_claims = holdings.claims.sum(axis=1).tolist()
    unassigned = scale * sum(one for one, n in zip(sums, n_claims, strict=True) if n == 0)
    values = [
        sum((Fraction(sums[code], n_claims[code]) * scale for code in np.flatnonzero(mine)),
            Fraction(0))
        for mine in holdings.claims.T
    ]  # fmt: skip
    # A score that is unknown (NaN) is ignored.
    sizes = [abs(size) for size in (valuation.baseline, valuation.expected_total, largest)]
    nothing = Fraction(_ROUNDING * max(size for size in sizes if not math.isnan(size)))
    values = [Fraction(0) if abs(value) <= nothing else value for value in values]
    return values, Fraction(0) if abs(unassigned) <= nothing else unassigned


def check_any_owner(owners: Any) -> None:
    """Raise TypeError unless this is an Owners object, ValueError if it has no owner."""
    if not check_owners(owners).names:
        raise ValueError("owners must have an owner; assign cells with owners.assign(...).")


def _find_largest(valuation: Valuation) -> float:
    """Return the size of the largest value; raise ValueError if a value is unknown."""
    largest = 0.0
    for chunk in valuation.iter_rows():
        unvisited = int(np.isnan(chunk.values).sum())
        if unvisited:
            raise ValueError(
                f"{unvisited} blocks or more were never visited and have no value; run the valuer "
                "for longer before you split an amount."
            )
        if np.isinf(chunk.values).any():
            raise ValueError("values must be finite to split an amount, got infinity for a block.")
        largest = max(largest, float(np.abs(chunk.values).max()))
    return largest
