"""MonteCarloValuer: two-dimensional values from random orders of rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Blocks
from cellworth.designs import Grid, PermutationGrids
from cellworth.execution import AfterTasks, StoppingRule
from cellworth.games import EmptyPolicy, Game
from cellworth.games.base import utilities
from cellworth.moments import Contribution, Moments, with_margins
from cellworth.semivalues import Semivalue, prefix_ratios
from cellworth.valuation import Valuation
from cellworth.valuers.base import Method, Settings, Valuer, value_blocks

_TASKS_BY_DEFAULT = 100
_TASKS_PER_ROUND = 16


class MonteCarloValuer(Valuer):
    """Estimated two-dimensional values, with standard errors, for any number of blocks.

    Each task draws one order of the rows and one of the columns and looks at every pair of their
    prefixes: one utility per block. The second differences of that grid are an unbiased view of
    all values at once.

    Parameters
    ----------
    model : classifier or regressor
        Trained on every coalition; see :class:`ModelGame`.
    scoring : str or callable, default=None
        How it is judged; None means accuracy or R squared.
    empty : {"prior", "zero"}, default="prior"
        What no rows or no columns are worth; see :class:`ModelGame`.
    row_semivalue, column_semivalue : Semivalue, default=None
        How coalitions are weighed by size; None means ``Shapley()``.
    stop : StoppingRule, default=None
        When the run is long enough; None means ``AfterTasks(100)``. Join rules with ``|``, ``&``.
    random_state : int or None, default=None
        Seed of the orders; None draws one, which the provenance records.
    cv : int or splitter, default=5
        Used when ``fit`` gets no validation set.
    executor : Executor, default=None
        Where tasks run: ``Serial()`` (None), ``Threads(n)`` or ``Processes(n)``. The values are
        the same everywhere, bit for bit.
    journal : Journal, default=None
        Where the run is written down, so that another ``fit`` with a larger budget continues it.
    progress : bool, default=True
        Whether runs longer than two seconds show a bar.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        One-dimensional values: sums of the blocks.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = MonteCarloValuer(DecisionTreeClassifier(), stop=AfterTasks(50), random_state=0)
    >>> valuer.fit(X, y, X_val=X, y_val=y).valuation_.shape
    (4, 2)
    """

    def __init__(
        self,
        model: Any = None,
        *,
        scoring: Any = None,
        empty: EmptyPolicy = "prior",
        row_semivalue: Semivalue | None = None,
        column_semivalue: Semivalue | None = None,
        stop: StoppingRule | None = None,
        random_state: Any = None,
        cv: Any = 5,
        executor: Any = None,
        journal: Any = None,
        progress: bool = True,
    ) -> None:
        """Keep the parameters; they are checked by ``fit``."""
        self.model = model
        self.scoring = scoring
        self.empty = empty
        self.row_semivalue = row_semivalue
        self.column_semivalue = column_semivalue
        self.stop = stop
        self.random_state = random_state
        self.cv = cv
        self.executor = executor
        self.journal = journal
        self.progress = progress

    def _value(self, game: Game, blocks: Blocks, backend: str | None) -> Valuation:
        settings = Settings.checked(
            self.row_semivalue, self.column_semivalue, self.executor, self.journal, self.progress
        )
        seed = checked_seed(self.random_state, self.journal)
        return monte_carlo_valuation(
            game, blocks, settings, stop=self.stop, seed=seed, backend=backend
        )


@dataclass(frozen=True, eq=False)
class GridDifferences:
    """What one grid adds: the second difference of its utilities at every block.

    Ratios turn the uniform sizes of prefixes into those that a semivalue asks for.
    """

    game: Game
    row_ratios: NDArray[np.float64]
    column_ratios: NDArray[np.float64]

    def __call__(self, grid: Grid) -> Contribution:
        """Look at the utilities of all pairs of prefixes and difference them."""
        seen, tally = utilities(self.game, grid)
        prefixes = seen.reshape(len(grid.row_order) + 1, len(grid.column_order) + 1)
        differences = np.diff(np.diff(prefixes, axis=0), axis=1)
        blocks = np.empty_like(differences)
        blocks[np.ix_(grid.row_order, grid.column_order)] = differences * np.outer(
            self.row_ratios, self.column_ratios
        )
        return Contribution(Moments.of(with_margins(blocks)), tally)


def monte_carlo_valuation(
    game: Game,
    blocks: Blocks,
    settings: Settings,
    *,
    stop: StoppingRule | None,
    seed: int,
    backend: str | None = None,
) -> Valuation:
    """Estimate the values of a game from random orders."""
    rule = AfterTasks(_TASKS_BY_DEFAULT) if stop is None else stop
    if not isinstance(rule, StoppingRule):
        raise TypeError(
            f"stop is {stop!r}; give a rule such as AfterTasks(200) or AfterSeconds(60), "
            "joined with | or &."
        )
    n_rows, n_columns = blocks.shape
    method = Method(
        name="permutation grids",
        design=PermutationGrids(blocks.shape, seed),
        contribution=GridDifferences(
            game,
            prefix_ratios(settings.row_semivalue, n_rows),
            prefix_ratios(settings.column_semivalue, n_columns),
        ),
        stop=rule,
        seed=seed,
        tasks_per_round=_TASKS_PER_ROUND,
    )
    return value_blocks(game, blocks, method, settings, backend)


def checked_seed(random_state: Any, journal: Any) -> int:
    """Turn a random_state into the seed that names every task of the run."""
    if random_state is None:
        if journal is not None:
            raise ValueError(
                "a journal needs random_state to be a whole number, so that a later session "
                "draws the same tasks."
            )
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise TypeError(
            f"random_state is {random_state!r}; give a whole number, None or a RandomState."
        )
    if random_state < 0:
        raise ValueError(f"random_state is {random_state}; give a whole number of at least 0.")
    return int(random_state)
