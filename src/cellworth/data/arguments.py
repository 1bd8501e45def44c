"""Array types and checks of plain arguments that all packages share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellworth.data.text import preview

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Positions = NDArray[np.intp]
Mask = NDArray[np.bool_]
Labels = NDArray[Any]
# Codes of the categories of a column, and the code of a missing value.
Codes = NDArray[np.int32]
MISSING = -1
# Column type, and the unit of numeric columns.
ColumnType = Literal["numeric", "categorical"]
Scale = Literal["robust", "std"] | None
# Mapping is invariant in its keys: only Any takes dictionaries of names of every type.
ColumnTypes: TypeAlias = Mapping[Any, ColumnType]
RandomState = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None


@dataclass(frozen=True)
class WithoutParameters:
    """Base of settings without parameters: all objects of a class are equal."""


class Model(Protocol):
    """A scikit-learn classifier or regressor."""

    def fit(self, X: Any, y: Any, /) -> Any:
        """Train the model."""

    def get_params(self, deep: bool = ...) -> Mapping[str, Any]:
        """Return the parameters of the constructor."""


class Splitter(Protocol):
    """A scikit-learn cross-validation splitter."""

    def split(self, X: Any, y: Any, groups: Any, /) -> Iterable[tuple[Any, Any]]:
        """Yield the positions of training rows and of validation rows, fold by fold."""


# Name of a scikit-learn score, function of a fitted model, a table and labels, or the default.
Scoring: TypeAlias = str | Callable[[Any, Any, Any], float] | None
# A number of folds, a splitter, or positions of training and of validation rows, fold by fold.
CrossValidation: TypeAlias = int | Splitter | Iterable[tuple[ArrayLike, ArrayLike]]


def is_integer(number: Any) -> bool:
    """Return whether this is an integer; booleans are not."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def check_count(number: Any, called: str) -> int:
    """Return a positive integer, or raise ValueError."""
    if not is_integer(number) or number < 1:
        raise ValueError(f"{called} must be an integer of at least 1, got {number!r}.")
    return int(number)


def check_columns(given: Iterable[Any], names: Sequence[Any], *, called: str, of: str) -> None:
    """Raise ValueError for the first given name that no column has."""
    for name in given:
        if name not in names:
            raise ValueError(
                f"{called} must be among the columns of {of}, got {name!r}; its columns are "
                f"{preview(names)}."
            )


def check_random_state(random_state: RandomState) -> int:
    """Return a seed: the integer itself, or one drawn from the generator; None draws a new one."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if not is_integer(random_state) or random_state < 0:
        raise ValueError(
            "random_state must be an integer of at least 0, None, a numpy Generator or a "
            f"RandomState, got {random_state!r}."
        )
    return int(random_state)
