"""Allocation: amounts as a pure function of values, holdings and policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats
from cellworth.data.holdings import Holdings
from cellworth.data.owners import Owners
from cellworth.payouts.policy import Policy, compute_quotas, compute_weights, round_to_units
from cellworth.valuation.sharded_valuation import ShardedValuation
from cellworth.valuation.valuation import Valuation

# Values are rounded once to this many binary digits below the largest. Sums of integers are exact,
# so the order of rows and the division into cells cannot matter.
_DIGITS = 52
_HALF = 26
# Values below this share of the scores are rounding errors and count as 0.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class OwnerErrors:
    """Standard errors of owners' values, by their source; arrays of shape (n_owners,)."""

    sampling: Floats
    # None if unknown.
    validation: Floats | None
    # Whether some are upper bounds: the sum of the errors of an owner's blocks.
    bounded: bool

    @property
    def together(self) -> Floats:
        """Both errors combined."""
        validation = 0.0 if self.validation is None else self.validation
        both: Floats = np.hypot(self.sampling, validation)
        return both


@dataclass(frozen=True, eq=False)
class Allocation:
    """Amounts, values and errors of all owners; see the attributes of Payout."""

    owners: tuple[str, ...]
    # Hash of the cells that each owner holds.
    keys: tuple[str, ...]
    amounts: tuple[Decimal, ...]
    values: Floats
    errors: OwnerErrors
    carried: Mapping[str, float]
    unassigned: float


def allocate(
    policy: Policy,
    valuation: Valuation,
    holdings: Holdings,
    labels: Mapping[str, int],
    *,
    amount: Decimal,
    brought: Mapping[str, float],
) -> Allocation:
    """Divide an amount among the owners; a pure function of the content of an audit."""
    names, keys = holdings.names, holdings.keys
    exact, unassigned = sum_owner_values(valuation, holdings)
    exact = [
        value + Fraction(brought.get(name, 0.0)) for value, name in zip(exact, names, strict=True)
    ]
    values = np.array([float(value) for value in exact])
    for_labels = _compute_label_quotas(amount, policy, names, labels)
    shares = compute_quotas(
        Fraction(amount) - sum(for_labels),
        compute_weights(exact, policy.negative),
        Fraction(Decimal(policy.minimum)),
    )
    shares = [cells + label for cells, label in zip(shares, for_labels, strict=True)]
    return Allocation(
        names,
        keys,
        tuple(round_to_units(shares, Decimal(policy.unit), keys)),
        values,
        compute_owner_errors(valuation, holdings),
        _find_shortfalls(names, values) if policy.negative == "carry" else {},
        float(unassigned),
    )


def _find_shortfalls(names: tuple[str, ...], values: Floats) -> dict[str, float]:
    return {name: float(v) for name, v in zip(names, values, strict=True) if v < 0}


def _compute_label_quotas(
    amount: Decimal, policy: Policy, names: tuple[str, ...], labels: Mapping[str, int]
) -> list[Fraction]:
    """Return what each owner gets for labels; the rest is shared by the values of cells."""
    if policy.label_share is None:
        return [Fraction(0)] * len(names)
    for_labels = Fraction(amount) * Fraction(Decimal(policy.label_share))
    total = sum(labels.values())
    return [for_labels * Fraction(labels.get(name, 0), total) for name in names]


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


def estimate_rounding(valuation: Valuation) -> float:
    """Return the size below which a value, or a sum of values, is a rounding error."""
    return _estimate_rounding(valuation, _find_largest(valuation))


def check_owners_type(owners: Any, *, empty_ok: bool = False) -> None:
    """Raise TypeError unless this is an Owners object, ValueError if it has no owner."""
    if not isinstance(owners, Owners):
        raise TypeError(
            f"owners must be Owners, got {type(owners).__name__}; pass Owners(X).assign(...)."
        )
    if not owners.names and not empty_ok:
        raise ValueError("owners must have an owner; assign cells with owners.assign(...).")


def check_same_table(owners: Owners, valuation: Valuation) -> None:
    """Check by hash, if known, that the owners' table, which the gate reads, was valued."""
    owners.check_cells(valuation.provenance.problem_spec.get("data_sha256", {}).get("X"))


def compute_owner_errors(valuation: Valuation, holdings: Holdings) -> OwnerErrors:
    """Return the errors of owners' values: as the run observed them, else upper bounds.

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
    return OwnerErrors(
        sampling, validation if known else None, bounded=inexact and bool((n_blocks > 1).any())
    )


def _get_observed_errors(valuation: Valuation, holdings: Holdings) -> OwnerErrors | None:
    """Return the errors that the run observed; None unless for all owners of blocks."""
    held = holdings.hold_blocks
    mine = [key for key, holds in zip(holdings.keys, held, strict=True) if holds]
    if valuation.owned is None or not set(mine) <= set(valuation.owned.keys):
        return None
    positions = [valuation.owned.keys.index(key) for key in mine]
    observed = valuation.owners()
    sampling, validation = np.zeros(len(held)), np.zeros(len(held))
    sampling[held] = observed.sampling_se[positions]
    if observed.validation_se is None:
        return OwnerErrors(sampling, None, bounded=False)
    validation[held] = observed.validation_se[positions]
    return OwnerErrors(sampling, validation, bounded=False)


def _get_column_errors(valuation: ShardedValuation, holdings: Holdings) -> OwnerErrors | None:
    """Return errors from those of whole columns; unknown if rows have different owners."""
    (used,) = np.nonzero(holdings.rows_of_lines)
    if len(used) > 1:
        unknown = np.full(len(holdings.names), np.nan)
        return None if valuation.status == "exact" else OwnerErrors(unknown, unknown, bounded=False)
    claims = holdings.claims[holdings.lines[used[0]]]
    shares = claims / np.maximum(claims.sum(axis=1, keepdims=True), 1)
    columns = valuation.columns()
    sampling, validation = columns.sampling_se, columns.validation_se
    positions = np.arange(len(claims))
    # The error of a sum of columns is at most the sum of their errors.
    several = bool((claims.sum(axis=0) > 1).any())
    return OwnerErrors(
        _sum_weighted(positions, sampling, shares),
        None if validation is None else _sum_weighted(positions, validation, shares),
        bounded=several and (valuation.status != "exact" or validation is not None),
    )


def _estimate_rounding(valuation: Valuation, largest: float) -> float:
    # A score that is unknown (NaN) is ignored.
    sizes = [valuation.baseline, valuation.expected_total, largest]
    return _ROUNDING * max(abs(size) for size in sizes if not math.isnan(size))


def _find_largest(valuation: Valuation) -> float:
    """Return the size of the largest value; raise ValueError if a value is unknown."""
    if isinstance(valuation, ShardedValuation):
        # All values in shards are known, and the largest is stored.
        return valuation.moments.largest("mean")
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
