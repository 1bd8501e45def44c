"""value_game: values of any game, with or without a table behind it."""

from __future__ import annotations

from typing import Any, cast

from cellworth.blocks import Blocks
from cellworth.estimates import Estimator
from cellworth.games import Game
from cellworth.runtime import Runtime, StoppingRule
from cellworth.semivalues import Semivalue
from cellworth.valuation import Valuation
from cellworth.valuers.exact import MOST_UTILITIES, exact_valuation
from cellworth.valuers.monte_carlo import monte_carlo_valuation
from cellworth.valuers.settings import Settings, checked_seed


def value_game(
    game: Game,
    shape: tuple[int, int] | Blocks | None = None,
    *,
    row_semivalue: Semivalue | None = None,
    column_semivalue: Semivalue | None = None,
    estimator: Estimator | None = None,
    stop: StoppingRule | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    runtime: Runtime | None = None,
    max_utilities: int = MOST_UTILITIES,
) -> Valuation:
    """Value every block of a game: exactly, or by Monte Carlo given an estimator or a rule.

    Parameters
    ----------
    game : Game
        Anything with a method ``value(rows, columns)``.
    shape : tuple of int or Blocks, default=None
        How many row players and column players there are, or blocks with names. Games that are
        made from a table know their blocks.
    row_semivalue, column_semivalue : Semivalue, default=None
        How coalitions are weighed by size; None means ``Shapley()``.
    estimator, stop : default=None
        Neither: all coalitions, exactly. Otherwise estimates as of :class:`MonteCarloValuer`.
    random_state : int or None, default=None
        Seed of the random coalitions.
    n_jobs : int, default=None
        Number of workers of the default executor, -1 for all cores; None as in :class:`Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed, without a partition.
    max_utilities : int, default=2**20
        Refuse to start an exact run beyond this.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Examples
    --------
    A game in which every row adds 1 to what every column earns:

    >>> class Counting:
    ...     def value(self, rows, columns):
    ...         return rows.sum() * columns.sum()
    >>> value_game(Counting(), (3, 2)).values
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """
    if isinstance(game, type) or not isinstance(game, Game):
        raise TypeError(
            f"game is {game!r}; give an object with a method value(rows, columns) -> float."
        )
    blocks = _blocks(game, shape)
    settings = Settings.checked(
        row_semivalue,
        column_semivalue,
        n_jobs=n_jobs,
        runtime=runtime,
    )
    if settings.runtime.partition is not None:
        raise ValueError("partition is for valuers; value_game returns all values.")
    if stop is None and estimator is None:
        valued = exact_valuation(game, blocks, settings, max_utilities=max_utilities)
    else:
        seed = checked_seed(random_state, runtime)
        valued = monte_carlo_valuation(
            game, blocks, settings, estimator=estimator, stop=stop, seed=seed
        )
    # Only partitions have none.
    return cast(Valuation, valued)


def _blocks(game: Game, shape: tuple[int, int] | Blocks | None) -> Blocks:
    if isinstance(shape, Blocks):
        given = shape
    else:
        given = Blocks.of_shape(getattr(game, "shape", None) if shape is None else shape)
    own = tuple(getattr(game, "shape", given.shape))
    if own != given.shape:
        raise ValueError(f"shape is {given.shape}, but the game has {own}; give that shape.")
    named = getattr(game, "blocks", None)
    return given if isinstance(shape, Blocks) or named is None else named
