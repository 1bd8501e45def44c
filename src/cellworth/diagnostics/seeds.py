"""Seeds that users give: what starts random draws, or one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from cellworth.data.arguments import is_integer


def generator_of(random_state: Any) -> np.random.Generator:
    """Start random draws from a seed, None (another start each time) or a Generator."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state is {random_state!r}; give a whole number of at least 0, None or a "
            "Generator."
        ) from error


def checked_seed(random_state: Any) -> int:
    """Return a whole number of at least 0, or refuse it with a sentence."""
    if not is_integer(random_state) or random_state < 0:
        raise ValueError(
            f"random_state is {random_state!r}; give a whole number of at least 0, so that the "
            "same call gives the same draws."
        )
    return int(random_state)
