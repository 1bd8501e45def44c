"""Contrasts: with and without, on both sides, over uniform coalitions; these are Banzhaf values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cellworth.counts import Floats
from cellworth.designs import CoalitionPairs
from cellworth.moments import Moments, Sums, with_margins

_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])


def contrast_moments(
    tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats], sums: Sums = with_margins
) -> Moments:
    """Moments of what quads of pairs tell about all blocks, one observation a task.

    The Banzhaf value of block (i, j) is 4 E[h(S, F) s_i s_j], where s is 1 for members and -1 for
    others, over uniformly random coalitions. A quad holds S and its complement with F and its
    complement: their memberships have opposite signs, so that the quad's signed sum times
    s_i s_j is an unbiased view of every block, free of what depends on one side alone.
    """
    return Moments.of_all([sums(_observed(*look)) for look in zip(tasks, utilities, strict=True)])


def _observed(task: CoalitionPairs, utilities: Floats) -> Floats:
    quads = utilities.reshape(-1, len(_SIGNS), *utilities.shape[1:])
    contrasts = np.tensordot(quads, _SIGNS, axes=(1, 0))
    rows = np.where(task.rows[:: len(_SIGNS)], 1.0, -1.0)
    columns = np.where(task.columns[:: len(_SIGNS)], 1.0, -1.0)
    signs = rows[:, :, None] * columns[:, None, :]
    observed: Floats = np.tensordot(signs, contrasts, axes=(0, 0)) / len(contrasts)
    return observed
