"""Shrinkage of noisy values, and validation errors of values that were estimated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.sampling.moments import Moments, UtilityLog, append_margins, widening

_LEAST_LEFT = 0.25


@dataclass(frozen=True, eq=False)
class Component:
    """A part of the values (row effects, column effects or the rest), with its sampling variances.

    Parameters
    ----------
    effects : array of shape (n_rows, n_columns), or one that spreads to it
    variances : array of the same shape
        Sampling variance of each effect.
    noise : float
        Their mean.
    freedom : int
        How many of the effects can vary freely.
    """

    effects: Floats
    variances: Floats
    noise: float
    freedom: int

    @property
    def kept(self) -> float:
        """Share of the effects to keep: the part of their variance that noise does not explain.

        Noise must be exceeded by more than chance allows, or nothing is kept: equal shares are
        then the better guess.
        """
        signal = max(self._signal - self._luck * self.noise, 0.0)
        return signal / (signal + self.noise) if self.noise > 0 else 1.0

    def errors_squared(self, wider: float) -> Floats:
        """Squared errors to be expected: of chance, where it was kept, and of what was not kept."""
        # An effect far beyond its noise loses more than the usual one.
        signal = np.maximum(self.usual, self.effects**2 - self.variances)
        of_chance: Floats = (wider * self.kept) ** 2 * self.variances
        return of_chance + (1.0 - self.kept) ** 2 * signal

    @property
    def usual(self) -> float:
        """Square of a true effect, as large as chance allows."""
        return self._signal + self._luck * max(self._mean_square, self.noise)

    @property
    def _mean_square(self) -> float:
        return float(np.mean(self.effects**2))

    @property
    def _signal(self) -> float:
        return max(self._mean_square - self.noise, 0.0)

    @property
    def _luck(self) -> float:
        """Standard deviation of a mean square, as a share of it."""
        return float(np.sqrt(2.0 / max(self.freedom, 1)))


def compute_share_errors(moments: Moments, total: float, shares: Floats) -> Floats:
    """Errors of sums of blocks, each with a share, of values that :func:`shrunk` gives.

    Row effects, column effects and the rest are shrunk apart, as those of the values are.

    Parameters
    ----------
    moments, total
        As in :func:`shrunk`.
    shares : array of shape (n_sums, n_rows, n_columns)
    """
    n_rows, n_columns = shares.shape[1:]
    n_seen = int(moments.count.min())
    if n_seen < 2:
        return np.full(len(shares), np.nan)
    equal = np.full((n_rows, n_columns), total / (n_rows * n_columns))
    wider = float(widening(n_seen))
    by_row, by_column = shares.sum(axis=2, keepdims=True), shares.sum(axis=1, keepdims=True)
    level = shares.mean(axis=(1, 2), keepdims=True)
    rest = shares - by_row / n_columns - by_column / n_rows + level
    chance, usual, lost = (np.zeros(len(shares)) for _ in range(3))
    of_parts = by_row - level * n_columns, by_column - level * n_rows, rest
    for part, own in zip(_parts(moments, equal), of_parts, strict=True):
        left = 1.0 - part.kept
        chance += (wider * part.kept) ** 2 * (own**2 * part.variances).sum(axis=(1, 2))
        usual += left**2 * (own**2).sum(axis=(1, 2)) * part.usual
        lost += left * (own * part.effects).sum(axis=(1, 2))
    # A sum may lose the same way in all of its parts.
    return np.asarray(np.sqrt(chance + np.maximum(usual, lost**2)))


@dataclass(frozen=True)
class Kept:
    """Shares of row effects, of column effects and of the rest that :func:`shrunk` keeps."""

    rows: float
    columns: float
    rest: float

    @classmethod
    def of(cls, moments: Moments, total: float) -> Kept:
        """Shares that are kept of what these Moments show."""
        n_rows, n_columns = moments.mean.shape[0] - 1, moments.mean.shape[1] - 1
        if int(moments.count.min()) < 2:
            return cls(0.0, 0.0, 0.0)
        equal = np.full((n_rows, n_columns), total / (n_rows * n_columns))
        return cls(*(part.kept for part in _parts(moments, equal)))

    def of_deviations(self, blocks: Floats) -> Floats:
        """Shrink deviations, shape (n_rows, n_columns, k), as the values are; append sums."""
        equal = blocks.mean(axis=(0, 1), keepdims=True)
        rows = blocks.mean(axis=1, keepdims=True) - equal
        columns = blocks.mean(axis=0, keepdims=True) - equal
        rest = blocks - equal - rows - columns
        return append_margins(equal + self.rows * rows + self.columns * columns + self.rest * rest)

    def of_variances(self, variances: Floats) -> Floats:
        """Shrink sampling variances of blocks, shape (n_rows + 1, n_columns + 1), and of sums."""
        of_rows, of_columns, of_rest = _variances_of_parts(variances)
        n_rows, n_columns = variances.shape[0] - 1, variances.shape[1] - 1
        shrunk_ones = np.zeros(variances.shape)
        shrunk_ones[:-1, :-1] = (
            self.rows**2 * of_rows + self.columns**2 * of_columns + self.rest**2 * of_rest
        )
        shrunk_ones[:-1, -1:] = self.rows**2 * of_rows * n_columns**2
        shrunk_ones[-1:, :-1] = self.columns**2 * of_columns * n_rows**2
        return shrunk_ones


def shrunk(moments: Moments, total: float) -> tuple[Floats, Floats]:
    """Values and errors that are drawn towards equal shares as far as noise may explain them.

    A short run shows differences between blocks that are mostly noise; giving every block the same
    share of the total is then nearer to the truth. Row effects, column effects and what remains are
    estimated apart. With more tasks noise shrinks, and the values become those of the Moments.

    Parameters
    ----------
    moments : Moments of shape (n_rows + 1, n_columns + 1)
        Of equally many observations for all entries, each of which adds up to the total.
    total : float
        What all values add up to.

    Returns
    -------
    values, errors : arrays of shape (n_rows + 1, n_columns + 1)
        With sums at the margins. Errors of short runs are widened, so that 1.96 of them to either
        side are a 95 % interval; NaN for fewer than two observations.
    """
    n_rows, n_columns = moments.mean.shape[0] - 1, moments.mean.shape[1] - 1
    equal = np.full((n_rows, n_columns), total / (n_rows * n_columns))
    n_seen = int(moments.count.min())
    if n_seen < 2:
        return append_margins(equal), np.full(moments.mean.shape, np.nan)
    rows, columns, rest = _parts(moments, equal)
    values = append_margins(equal + sum(part.kept * part.effects for part in (rows, columns, rest)))
    wider = float(widening(n_seen))
    squares = np.zeros(moments.mean.shape)
    squares[:-1, :-1] = sum(part.errors_squared(wider) for part in (rows, columns, rest))
    squares[:-1, -1] = rows.errors_squared(wider)[:, 0] * n_columns**2
    squares[-1, :-1] = columns.errors_squared(wider)[0] * n_rows**2
    return values, np.sqrt(squares)


def _parts(moments: Moments, equal: Floats) -> tuple[Component, Component, Component]:
    n_rows, n_columns = equal.shape
    variances = moments.sampling_se**2
    of_blocks = variances[:-1, :-1]
    of_rows, of_columns, of_rest = _variances_of_parts(variances)
    rest_noise = float(of_blocks.mean() - of_rows.mean() - of_columns.mean())
    deviations = moments.mean[:-1, :-1] - equal
    rows = deviations.mean(axis=1, keepdims=True)
    columns = deviations.mean(axis=0, keepdims=True)
    rest = deviations - rows - columns
    return (
        Component(rows, of_rows, float(of_rows.mean()), n_rows - 1),
        Component(columns, of_columns, float(of_columns.mean()), n_columns - 1),
        Component(rest, of_rest, max(rest_noise, 0.0), (n_rows - 1) * (n_columns - 1)),
    )


def _variances_of_parts(variances: Floats) -> tuple[Floats, Floats, Floats]:
    """Sampling variances of row effects, of column effects and of the rest."""
    n_rows, n_columns = variances.shape[0] - 1, variances.shape[1] - 1
    of_blocks = variances[:-1, :-1]
    of_rows = variances[:-1, -1:] / n_columns**2
    of_columns = variances[-1:, :-1] / n_rows**2
    # In the mean over all blocks the three variances add up; single blocks may differ a little.
    of_rest = np.maximum(of_blocks - of_rows - of_columns, of_blocks / 4)
    if 1 in (n_rows, n_columns):
        of_rest = np.zeros_like(of_blocks)
    return of_rows, of_columns, of_rest


@dataclass(frozen=True, eq=False)
class MomentsWithErrors:
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
        cls,
        utility_log: UtilityLog,
        *,
        samples: bool,
        shrink_to: float | None,
        shares: Floats | None,
    ) -> MomentsWithErrors:
        """Estimate values and their deviations from the same utilities.

        Values are sums of utilities, each with a weight, and so are their deviations. Deviations
        also hold the chance in which coalitions were sampled; what it adds to their squares is
        taken off, because standard errors tell of it, but never more than three quarters.

        Parameters
        ----------
        utility_log : Looks
        samples : bool
            Whether the standard errors in the Moments are those of sampled coalitions.
        shrink_to : float or None
            The total to equal shares of which values are drawn, where they are.
        shares : array of shape (n_owners, n_rows, n_columns) or None
            What owners have of each block.
        """
        moments, kept = None, None
        squares, noise, owned = np.zeros(()), np.zeros(()), np.zeros(())
        for seen in utility_log.deviation_moments():
            if moments is None:
                moments = Moments(seen.count[..., 0], seen.mean[..., 0], seen.sum_sq[..., 0])
                kept = None if shrink_to is None else Kept.of(moments, shrink_to)
            blocks = seen.values[:-1, :-1, 1:]
            deviations = append_margins(blocks) if kept is None else kept.of_deviations(blocks)
            squares = squares + (deviations**2).sum(axis=-1)
            if shares is not None:
                of_owners = np.tensordot(shares, deviations[:-1, :-1], axes=2)
                owned = owned + (of_owners**2).sum(axis=-1)
            noise = noise + (seen.sampling_se[..., 1:] ** 2).sum(axis=-1)
        if moments is None:
            return cls(utility_log.moments, None)
        if samples:
            noise = np.nan_to_num(noise)
            noise = noise if kept is None else kept.of_variances(noise)
            squares = np.maximum(squares - noise, _LEAST_LEFT * squares)
        if np.isnan(squares[moments.count > 0]).any():
            return cls(moments, None)
        return cls(moments, np.sqrt(squares), None if shares is None else np.sqrt(owned))
