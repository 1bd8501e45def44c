"""Shrinkage of noisy values, and validation errors of estimated values."""

from __future__ import annotations

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.sampling.moments import (
    Addition,
    Moments,
    UtilityLog,
    append_margins,
    append_pairs,
    deviation_noise,
    widening,
)

# Share of squared deviations that the correction for sampling errors never removes.
_MIN_LEFT = 0.25


# Row effects, column effects or the remaining effects of the values, which broadcast to (n_rows,
# n_columns); the sampling variance of each; the share of them to keep; and an upper estimate of the
# mean square of the true effects.
_Component = tuple[Floats, Floats, float, float]


def compute_share_errors(moments: Moments, total: float, shares: Floats) -> Floats:
    """Return the errors of weighted sums of blocks after shrinkage.

    ``shares`` are the weights, of shape (n_sums, n_rows, n_columns).
    """
    n_rows, n_columns = shares.shape[1:]
    n_seen = int(moments.count.min())
    if n_seen < 2:
        return np.full(len(shares), np.nan)
    wider = float(widening(n_seen))
    by_row, by_column = shares.sum(axis=2, keepdims=True), shares.sum(axis=1, keepdims=True)
    level = shares.mean(axis=(1, 2), keepdims=True)
    rest = shares - by_row / n_columns - by_column / n_rows + level
    sampling, usual, lost = (np.zeros(len(shares)) for _ in range(3))
    weights = by_row - level * n_columns, by_column - level * n_rows, rest
    for component, weight in zip(_components(moments, total), weights, strict=True):
        effects, variances, kept, usual_square = component
        left = 1.0 - kept
        sampling += (wider * kept) ** 2 * (weight**2 * variances).sum((1, 2))
        usual += left**2 * (weight**2).sum(axis=(1, 2)) * usual_square
        lost += left * (weight * effects).sum(axis=(1, 2))
    # All components of a sum may lose in the same direction.
    return np.asarray(np.sqrt(sampling + np.maximum(usual, lost**2)))


def _find_kept(moments: Moments, total: float) -> tuple[float, ...]:
    """Return the shares of row effects, column effects and the rest that shrinkage keeps."""
    if int(moments.count.min()) < 2:
        return 0.0, 0.0, 0.0
    return tuple(kept for _, _, kept, _ in _components(moments, total))


def _shrink_deviations(blocks: Floats, kept: tuple[float, ...]) -> Floats:
    """Shrink deviations of shape (n_rows, n_columns, k) like the values; append sums."""
    equal = blocks.mean(axis=(0, 1), keepdims=True)
    rows = blocks.mean(axis=1, keepdims=True) - equal
    columns = blocks.mean(axis=0, keepdims=True) - equal
    rest = blocks - equal - rows - columns
    return append_margins(equal + kept[0] * rows + kept[1] * columns + kept[2] * rest)


def _add_up(rows: Floats, columns: Floats, rest: Floats) -> Floats:
    """Return the variances of blocks and sums from those of row effects, column effects and rest.

    The variance of the total is 0.
    """
    n_rows, n_columns = rest.shape
    variances = np.zeros((n_rows + 1, n_columns + 1))
    variances[:-1, :-1] = rows + columns + rest
    variances[:-1, -1:] = rows * n_columns**2
    variances[-1:, :-1] = columns * n_rows**2
    return variances


def shrink_values(moments: Moments, total: float) -> tuple[Floats, Floats]:
    """Shrink values towards equal shares as far as noise explains their differences.

    In a short run most differences between blocks are noise, and equal shares of the total are
    closer to the truth. Row effects, column effects and the rest are shrunk separately. With more
    tasks the noise decreases, and the values converge to the means of the Moments.

    All arrays have shape (n_rows + 1, n_columns + 1), with sums at the margins. The number of
    observations must be the same for all entries, and each observation must add up to the total.
    Errors of short runs are widened such that values plus or minus 1.96 errors are 95% intervals;
    they are NaN for fewer than two observations.
    """
    n_rows, n_columns = moments.mean.shape[0] - 1, moments.mean.shape[1] - 1
    equal = np.full((n_rows, n_columns), total / (n_rows * n_columns))
    n_seen = int(moments.count.min())
    if n_seen < 2:
        return append_margins(equal), np.full(moments.mean.shape, np.nan)
    components = _components(moments, total)
    values = append_margins(equal + sum(kept * effects for effects, _, kept, _ in components))
    wider = float(widening(n_seen))
    return values, np.sqrt(_add_up(*(_expect_squares(each, wider) for each in components)))


def _components(moments: Moments, total: float) -> tuple[_Component, _Component, _Component]:
    """Split the values' deviations from equal shares into row effects, column effects and rest."""
    n_rows, n_columns = moments.mean.shape[0] - 1, moments.mean.shape[1] - 1
    variances = moments.sampling_se**2
    of_rows, of_columns, of_rest = _split_variances(variances)
    rest_noise = float(variances[:-1, :-1].mean() - of_rows.mean() - of_columns.mean())
    deviations = moments.mean[:-1, :-1] - total / (n_rows * n_columns)
    rows = deviations.mean(axis=1, keepdims=True)
    columns = deviations.mean(axis=0, keepdims=True)
    return (
        _find_component(rows, of_rows, float(of_rows.mean()), n_rows - 1),
        _find_component(columns, of_columns, float(of_columns.mean()), n_columns - 1),
        _find_component(
            deviations - rows - columns,
            of_rest,
            max(rest_noise, 0.0),
            (n_rows - 1) * (n_columns - 1),
        ),
    )


def _find_component(effects: Floats, variances: Floats, noise: float, freedom: int) -> _Component:
    """Return effects with the share of them to keep: the part that noise does not explain.

    ``noise`` is the mean of the variances. Nothing is kept unless the mean square of the effects
    exceeds it by more than chance explains, given their degrees of freedom. Equal shares are then
    the better estimate.
    """
    mean_square = float(np.mean(effects**2))
    signal = max(mean_square - noise, 0.0)
    # Standard deviation of a mean square, as a share of it.
    relative_sd = float(np.sqrt(2.0 / max(freedom, 1)))
    clear = max(signal - relative_sd * noise, 0.0)
    kept = clear / (clear + noise) if noise > 0 else 1.0
    return effects, variances, kept, signal + relative_sd * max(mean_square, noise)


def _expect_squares(component: _Component, wider: float) -> Floats:
    """Return expected squared errors: sampling of what is kept, bias of what is not."""
    effects, variances, kept, usual = component
    # A large effect loses more to shrinkage than a typical one.
    signal = np.maximum(usual, effects**2 - variances)
    sampling: Floats = (wider * kept) ** 2 * variances
    return sampling + (1.0 - kept) ** 2 * signal


def _split_variances(variances: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the sampling variances of row effects, of column effects and of the rest."""
    n_rows, n_columns = variances.shape[0] - 1, variances.shape[1] - 1
    of_blocks = variances[:-1, :-1]
    of_rows = variances[:-1, -1:] / n_columns**2
    of_columns = variances[-1:, :-1] / n_rows**2
    # On average over all blocks the three variances add up; single blocks may differ.
    of_rest = np.maximum(of_blocks - of_rows - of_columns, of_blocks / 4)
    if 1 in (n_rows, n_columns):
        of_rest = np.zeros_like(of_blocks)
    return of_rows, of_columns, of_rest


def estimate_with_errors(
    added: Addition, *, samples: bool, shrink_to: float | None, shares: Floats | None
) -> tuple[Moments, Floats | None, Floats | None]:
    """Estimate values and their deviations from the same utilities, if they are known.

    Values are weighted sums of utilities, and so are their deviations. Deviations also contain the
    sampling error of coalitions, which standard errors report separately. Its share of their
    squares is subtracted, but never more than three quarters of them.

    ``samples`` says whether coalitions were sampled. ``shrink_to`` is the total of the equal shares
    towards which values are shrunk, if they are. ``shares`` has the owners' shares in each block,
    shape (n_owners, n_rows, n_columns).

    Returns
    -------
    moments : Moments of shape (n_rows + 1, n_columns + 1)
    errors : array of the same shape
        Validation errors of blocks and sums; None if they are not known.
    owners : array
        Validation errors of the owners' sums, and of their pairs' (see append_pairs).
    """
    if not isinstance(added, UtilityLog):
        return added.moments, None, None
    moments, kept = None, None
    squares, noise, owned = np.zeros(()), np.zeros(()), np.zeros(())
    for seen in added.deviation_moments():
        if moments is None:
            moments = Moments(seen.count[..., 0], seen.mean[..., 0], seen.sum_sq[..., 0])
            kept = None if shrink_to is None else _find_kept(moments, shrink_to)
        blocks = seen.values[:-1, :-1, 1:]
        deviations = append_margins(blocks) if kept is None else _shrink_deviations(blocks, kept)
        squares = squares + (deviations**2).sum(axis=-1)
        if shares is not None:
            # Deviations come first, owners last.
            of_owners = np.tensordot(deviations[:-1, :-1], shares, axes=([0, 1], [1, 2]))
            owned = owned + (append_pairs(of_owners) ** 2).sum(axis=0)
        noise = noise + deviation_noise(seen)
    if moments is None:
        return added.moments, None, None
    if samples:
        noise = np.nan_to_num(noise)
        if kept is not None:
            parts = zip(kept, _split_variances(noise), strict=True)
            noise = _add_up(*(share**2 * own for share, own in parts))
        squares = np.maximum(squares - noise, _MIN_LEFT * squares)
    if np.isnan(squares[moments.count > 0]).any():
        return moments, None, None
    return moments, np.sqrt(squares), None if shares is None else np.sqrt(owned)
