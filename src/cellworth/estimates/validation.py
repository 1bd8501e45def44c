"""Validation errors: how far other validation rows would have moved estimated values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cellworth.counts import Floats
from cellworth.estimates.looks import Looks
from cellworth.moments import Moments, with_margins
from cellworth.shrinkage import Kept

_LEAST_LEFT = 0.25


@dataclass(frozen=True, eq=False)
class Judged:
    """Moments of a run, with validation errors.

    Parameters
    ----------
    moments : Moments of shape (n_rows + 1, n_columns + 1)
    errors : array of the same shape, or None
        Errors that come from the choice of validation rows, where they are known.
    owners : array of shape (n_owners,) or None
        The same of what owners hold, where there are any.
    """

    moments: Moments
    errors: Floats | None
    owners: Floats | None = None

    @classmethod
    def of(
        cls, looks: Looks, *, samples: bool, shrink_to: float | None, shares: Floats | None
    ) -> Judged:
        """Estimate values and their deviations from the same utilities.

        Values are sums of utilities, each with a weight, and so are their deviations. Deviations
        also hold the chance in which coalitions were sampled; what it adds to their squares is
        taken off, because standard errors tell of it, but never more than three quarters.

        Parameters
        ----------
        looks : Looks
        samples : bool
            Whether the standard errors in the Moments are those of sampled coalitions.
        shrink_to : float or None
            The total to equal shares of which values are drawn, where they are.
        shares : array of shape (n_owners, n_rows, n_columns) or None
            What owners have of each block.
        """
        moments, kept = None, None
        squares, noise, owned = np.zeros(()), np.zeros(()), np.zeros(())
        for seen in looks.judged_moments():
            if moments is None:
                moments = Moments(seen.count[..., 0], seen.mean[..., 0], seen.spread[..., 0])
                kept = None if shrink_to is None else Kept.of(moments, shrink_to)
            blocks = seen.values[:-1, :-1, 1:]
            deviations = with_margins(blocks) if kept is None else kept.of_deviations(blocks)
            squares = squares + (deviations**2).sum(axis=-1)
            if shares is not None:
                of_owners = np.tensordot(shares, deviations[:-1, :-1], axes=2)
                owned = owned + (of_owners**2).sum(axis=-1)
            noise = noise + (seen.standard_errors[..., 1:] ** 2).sum(axis=-1)
        if moments is None:
            return cls(looks.moments, None)
        if samples:
            noise = np.nan_to_num(noise)
            noise = noise if kept is None else kept.of_variances(noise)
            squares = np.maximum(squares - noise, _LEAST_LEFT * squares)
        if np.isnan(squares[moments.count > 0]).any():
            return cls(moments, None)
        return cls(moments, np.sqrt(squares), None if shares is None else np.sqrt(owned))
