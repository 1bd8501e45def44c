"""Allocation: amounts as a pure function of values, holdings and policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask
from cellworth.data.holdings import Holdings
from cellworth.data.owners import check_owners
from cellworth.payouts.policy import (
    Policy,
    compute_quotas,
    compute_weights,
    count_units,
    round_to_units,
    share_equally,
)
from cellworth.sampling.moments import WIDTH_95, draw_errors, widening
from cellworth.valuation.sharded_valuation import ShardedValuation
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
# Sampling errors, validation errors if known, and whether they are upper bounds.
_Errors: TypeAlias = tuple[Floats, Floats | None, bool]
# The last digits of simulated amounts may differ between processors.
_PART_OF_UNIT = 1e-6


@dataclass(frozen=True, eq=False)
class OwnerErrors:
    """Standard errors of owners' values, by their source; arrays of shape (n_owners,)."""

    sampling: Floats
    # None if unknown.
    validation: Floats | None
    # Whether some are upper bounds: the sum of the errors of an owner's blocks.
    bounded: bool
    # Draws of both errors together, shape (n_draws, n_owners), always the same; NaN: not known.
    drawn: Floats
    # Whether draws have the covariances that the run observed, because fit got the owners.
    # Otherwise, errors are drawn as if they were not correlated.
    observed: bool

    @property
    def together(self) -> Floats:
        """Both errors combined."""
        validation = 0.0 if self.validation is None else self.validation
        both: Floats = np.hypot(self.sampling, validation)
        return both

    @property
    def sampled(self) -> float:
        """Largest part of an owner's variance that is due to sampling."""
        together = self.together
        known = together > 0
        return float(((self.sampling[known] / together[known]) ** 2).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Allocation:
    """Amounts, values and errors of all owners; see the attributes of Payout."""

    owners: tuple[str, ...]
    # Hash of the cells that each owner holds.
    keys: tuple[str, ...]
    amounts: tuple[Decimal, ...]
    # 95% intervals of the amounts; None if errors are not known.
    intervals: tuple[tuple[Decimal, Decimal] | None, ...]
    values: Floats
    errors: OwnerErrors
    carried: Mapping[str, float]
    unassigned: float
    # What is not paid, and owners who share in equal parts, as the policy's "undecided" says.
    held: Decimal
    ties: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class OwnerValues:
    """What the owners' blocks are worth, with errors; computed once, when it is asked for."""

    valuation: Valuation
    holdings: Holdings

    @cached_property
    def sums(self) -> tuple[list[Fraction], Fraction]:
        """The exact value of each owner's blocks, and of those without an owner."""
        return sum_owner_values(self.valuation, self.holdings)

    @cached_property
    def by_name(self) -> dict[str, float]:
        """The value of each owner's blocks."""
        return dict(zip(self.holdings.names, map(float, self.sums[0]), strict=True))

    @cached_property
    def errors(self) -> OwnerErrors:
        """The errors of the owners' values."""
        return compute_owner_errors(self.valuation, self.holdings)


def allocate(
    policy: Policy, valued: OwnerValues, *, amount: Decimal, brought: Mapping[str, float]
) -> Allocation:
    """Divide an amount among the owners; a pure function of the content of a bundle."""
    holdings, errors = valued.holdings, valued.errors
    names, keys = holdings.names, holdings.keys
    exact, unassigned = valued.sums
    exact = [
        value + Fraction(brought.get(name, 0.0)) for value, name in zip(exact, names, strict=True)
    ]
    values = np.array([float(value) for value in exact])
    quotas = compute_quotas(Fraction(amount), compute_weights(exact, policy.negative))
    ties = []
    if policy.undecided == "equal":
        ties = _find_ties(find_undecided(values, errors), exact)
    unit = Decimal(policy.unit)
    amounts = round_to_units(share_equally(quotas, ties), unit, keys)
    simulated = simulate_quotas(policy, float(amount), values + errors.drawn)
    intervals = [_find_interval(*one, unit) for one in zip(amounts, simulated.T, strict=True)]
    if policy.undecided == "hold":
        amounts = [_get_low_end(interval) for interval in intervals]
    return Allocation(
        names,
        keys,
        tuple(amounts),
        tuple(intervals),
        values,
        errors,
        _find_shortfalls(names, exact, brought) if policy.negative == "carry" else {},
        float(unassigned),
        amount - sum(amounts),
        tuple(tuple(sorted((names[i] for i in tie), key=names.index)) for tie in ties),
    )


def _get_low_end(interval: tuple[Decimal, Decimal] | None) -> Decimal:
    if interval is None:
        raise ValueError(
            "undecided='hold' needs the errors of the values, which are not known; pass owners to "
            "fit, or agree on 'pay'."
        )
    return interval[0]


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
    known. If errors are only bounded, that of a difference is at most their sum.
    """
    if errors.bounded:
        of_differences = np.add.outer(errors.together, errors.together)
    else:
        products = errors.drawn.T @ errors.drawn / len(errors.drawn)
        variances = np.add.outer(np.diag(products), np.diag(products))
        of_differences = np.sqrt(np.maximum(variances - 2 * products, 0.0))
    # Differences due to rounding do not count.
    limits = WIDTH_95 * of_differences + _ROUNDING * np.abs(values).max()
    undecided: Mask = ~(np.abs(np.subtract.outer(values, values)) > limits)
    return undecided


def _draw_observed_errors(valuation: Valuation, holdings: Holdings) -> Floats | None:
    """Return draws of the errors that the run observed; None unless for all owners of blocks."""
    held, positions, owned = (
        holdings.hold_blocks,
        find_observed(valuation, holdings),
        valuation.owned,
    )
    if positions is None or owned is None:
        return None
    n_owners = len(owned.names)
    normals = _draw_normals(n_owners)
    drawn = np.zeros((normals.shape[1], len(held)))
    both_errors = [owned.validation]
    if valuation.status != "exact":
        both_errors.append(owned.moments.sampling_se * widening(owned.moments.count))
    for of_sums, numbers in zip(both_errors, normals, strict=False):
        if of_sums is not None:
            drawn[:, held] += draw_errors(of_sums, n_owners, numbers)[:, positions]
    return drawn


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
    quotas: Floats = weights[kept] * (amount / weights[kept].sum(axis=1))[:, np.newaxis]
    return quotas


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


def _find_shortfalls(
    names: tuple[str, ...], values: Sequence[Fraction], brought: Mapping[str, float]
) -> dict[str, float]:
    """Return what owners carry to the next payout; who left still carries it."""
    left = {name: value for name, value in brought.items() if name not in names}
    pairs = zip(names, values, strict=True)
    return left | {name: float(value) for name, value in pairs if value < 0}


def sum_owner_values(valuation: Valuation, holdings: Holdings) -> tuple[list[Fraction], Fraction]:
    """Return exact sums over the blocks of each owner, and over those of none; 0 for rounding."""
    largest = _find_largest(valuation)
    # Binary exponent of the last digit that is kept of every value.
    unit = math.frexp(largest)[1] - _DIGITS
    sums = [0] * len(holdings.claims)
    for chunk in valuation.iter_rows():
        rounded = np.rint(np.ldexp(chunk.values, -unit)).astype(np.int64)
        codes = holdings.codes(chunk.rows)
        # Two halves, so that no sum of many cells overflows.
        high, low = rounded >> _HALF, rounded & ((1 << _HALF) - 1)
        for code in np.unique(codes).tolist():
            here = codes == code
            sums[code] += (int(high[here].sum()) << _HALF) + int(low[here].sum())
    scale = Fraction(2) ** unit
    n_claims = holdings.claims.sum(axis=1).tolist()
    unassigned = sum(
        (s * scale for s, n in zip(sums, n_claims, strict=True) if n == 0), Fraction(0)
    )
    values = [
        sum((Fraction(sums[code], n_claims[code]) * scale for code in np.flatnonzero(mine)),
            Fraction(0))
        for mine in holdings.claims.T
    ]  # fmt: skip
    nothing = Fraction(_estimate_rounding(valuation, largest))
    values = [Fraction(0) if abs(value) <= nothing else value for value in values]
    return values, Fraction(0) if abs(unassigned) <= nothing else unassigned


def check_any_owner(owners: Any) -> None:
    """Raise TypeError unless this is an Owners object, ValueError if it has no owner."""
    if not check_owners(owners).names:
        raise ValueError("owners must have an owner; assign cells with owners.assign(...).")


def compute_owner_errors(valuation: Valuation, holdings: Holdings) -> OwnerErrors:
    """Return the errors of owners' values, with draws: as the run observed them, else bounds."""
    sampling, validation, bounded = _estimate_errors(valuation, holdings)
    drawn = _draw_observed_errors(valuation, holdings)
    if drawn is not None:
        return OwnerErrors(sampling, validation, bounded, drawn, observed=True)
    n_owners = len(holdings.names)
    together = np.hypot(sampling, 0.0 if validation is None else validation)
    drawn = np.asarray(_draw_normals(n_owners)[0][:, :n_owners] * together)
    return OwnerErrors(sampling, validation, bounded, drawn, observed=False)


def _estimate_errors(valuation: Valuation, holdings: Holdings) -> _Errors:
    """Return sampling and validation errors, and whether they are upper bounds.

    The sum of errors over the cells of a sharded table is far above the error of their sum, so
    these errors are NaN, unknown, unless owners hold whole columns.
    """
    observed = _get_observed_errors(valuation, holdings)
    if observed is None and isinstance(valuation, ShardedValuation):
        observed = _get_column_errors(valuation, holdings)
    if observed is not None:
        return observed
    shares = holdings.shares
    sampling, validation = np.zeros(shares.shape[1]), np.zeros(shares.shape[1])
    n_blocks = np.zeros(shares.shape[1])
    for chunk in valuation.iter_rows():
        codes = holdings.codes(chunk.rows).ravel()
        sampling += _sum_weighted(codes, chunk.sampling_se, shares)
        n_blocks += _sum_weighted(codes, np.ones(len(codes)), holdings.claims)
        if chunk.validation_se is not None:
            validation += _sum_weighted(codes, chunk.validation_se, shares)
    known = valuation.validation_se is not None
    # The error of one block is known; that of a sum is at most the sum of errors.
    inexact = bool(known or sampling.any() or np.isnan(sampling).any())
    bounded = inexact and bool((n_blocks > 1).any())
    return sampling, validation if known else None, bounded


def _get_observed_errors(valuation: Valuation, holdings: Holdings) -> _Errors | None:
    """Return the errors that the run observed; None unless for all owners of blocks."""
    held, positions = holdings.hold_blocks, find_observed(valuation, holdings)
    if positions is None:
        return None
    observed = valuation.owners()
    sampling, validation = np.zeros(len(held)), np.zeros(len(held))
    sampling[held] = observed.sampling_se[positions]
    if observed.validation_se is None:
        return sampling, None, False
    validation[held] = observed.validation_se[positions]
    return sampling, validation, False


def find_observed(valuation: Valuation, holdings: Holdings) -> list[int] | None:
    """Return the positions of owners of blocks among those that the run observed, if all were."""
    mine = [key for key, holds in zip(holdings.keys, holdings.hold_blocks, strict=True) if holds]
    if valuation.owned is None or not set(mine) <= set(valuation.owned.keys):
        return None
    return [valuation.owned.keys.index(key) for key in mine]


def _get_column_errors(valuation: ShardedValuation, holdings: Holdings) -> _Errors | None:
    """Return errors from those of whole columns; unknown if rows have different owners."""
    (used,) = np.nonzero(holdings.rows_of_lines)
    if len(used) > 1:
        unknown = np.full(len(holdings.names), np.nan)
        return None if valuation.status == "exact" else (unknown, unknown, False)
    claims = holdings.claims[holdings.lines[used[0]]]
    shares = claims / np.maximum(claims.sum(axis=1, keepdims=True), 1)
    columns = valuation.columns()
    sampling, validation = columns.sampling_se, columns.validation_se
    positions = np.arange(len(claims))
    # The error of a sum of columns is at most the sum of their errors.
    several = bool((claims.sum(axis=0) > 1).any())
    return (
        _sum_weighted(positions, sampling, shares),
        None if validation is None else _sum_weighted(positions, validation, shares),
        several and (valuation.status != "exact" or validation is not None),
    )


def _estimate_rounding(valuation: Valuation, largest: float) -> float:
    # A score that is unknown (NaN) is ignored.
    sizes = [valuation.baseline, valuation.expected_total, largest]
    return _ROUNDING * max(abs(size) for size in sizes if not math.isnan(size))


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


def _sum_weighted(codes: NDArray[Any], figures: Floats, shares: NDArray[Any]) -> Floats:
    by_code = np.bincount(codes, weights=figures.ravel(), minlength=len(shares))
    # An unknown error must not affect owners who have no share in it.
    return np.array([by_code[mine > 0] @ mine[mine > 0] for mine in shares.T])
