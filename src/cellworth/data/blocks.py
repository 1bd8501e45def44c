"""Blocks: how rows and columns are grouped, and how groups are labeled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Labels, Mask, Positions, is_integer
from cellworth.data.column import is_missing
from cellworth.data.tables import label_array
from cellworth.data.text import preview

Groups: TypeAlias = Sequence[Any] | NDArray[Any] | Mapping[Any, Iterable[Any]] | None
# Name of the column of labels, if labels are valued.
LABEL = "(label)"


@dataclass(frozen=True, eq=False)
class Axis:
    """The players along one side of the table, and the ids that each of them holds."""

    # Names of the players.
    labels: Labels
    # The user's row ids or column names, in the table's order.
    ids: Labels
    # Position of the player that holds each id.
    codes: Positions

    @classmethod
    def from_groups(cls, ids: Labels, groups: Groups = None, *, what: str) -> Axis:
        """Make groups the players, in order of first appearance; without groups, every id."""
        if groups is None:
            return cls(ids, ids, np.arange(len(ids)))
        if isinstance(groups, Mapping):
            order, labels = list(groups), _find_members(ids, groups, what)
        else:
            labels = _check_labels(ids, groups, what)
            order = list(dict.fromkeys(labels))
        code_of = {label: code for code, label in enumerate(order)}
        codes = np.fromiter((code_of[label] for label in labels), dtype=np.intp, count=len(labels))
        return cls(label_array(order, what=f"{what} group"), ids, codes)

    def __len__(self) -> int:
        return len(self.labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Axis):
            return NotImplemented
        names = ("labels", "ids", "codes")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    @property
    def grouped(self) -> bool:
        """Whether players are groups that the user named, rather than single ids."""
        return self.labels is not self.ids

    def position(self, label: Any, *, what: str) -> int:
        """Return the position of the player with this label."""
        key = label_array([label], what=what)
        numeric = {self.labels.dtype.kind, key.dtype.kind} <= set("iuf")
        comparable = numeric or self.labels.dtype.kind == key.dtype.kind
        found = np.flatnonzero(self.labels == key[0]) if comparable else np.empty(0, dtype=np.intp)
        if len(found) == 1:
            return int(found[0])
        if len(found) == 0:
            raise KeyError(
                f"no {what} is called {label!r}; labels are {preview(self.labels)}. "
                "Use values to look up by position."
            )
        raise KeyError(
            f"{len(found)} {what}s are called {label!r}; look at one of them with "
            f"valuation.{what}(position), positions are {preview(found)}."
        )

    def positions(self, coalition: Mask) -> Positions:
        """Return the positions of the ids that a coalition of players holds."""
        return np.flatnonzero(coalition[self.codes])

    def some_labels(self, players: slice | Positions) -> Labels:
        """Return the labels of the players at some positions."""
        return np.asarray(self.labels[players])


class NumberedAxis(Axis):
    """Players labeled 0, 1, 2, ...; arrays are created on access only."""

    n_players: int

    def __init__(self, n_players: int) -> None:
        object.__setattr__(self, "n_players", n_players)

    @property
    def labels(self) -> Labels:
        """Label of each player: its position."""
        return np.arange(self.n_players)

    # Every player holds one row.
    ids = labels

    @property
    def codes(self) -> Positions:
        """Position of the player that holds each id: its own."""
        return np.arange(self.n_players)

    @property
    def grouped(self) -> bool:
        """Return False: players are single ids."""
        return False

    def __len__(self) -> int:
        return self.n_players

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumberedAxis):
            return self.n_players == other.n_players
        return super().__eq__(other)

    __hash__: ClassVar[None] = None

    def position(self, label: Any, *, what: str) -> int:
        """Return the position of the player with this label."""
        key = label_array([label], what=what)
        if key.dtype.kind in "iuf" and 0 <= key[0] < self.n_players and key[0] % 1 == 0:
            return int(key[0])
        raise KeyError(
            f"no {what} is called {label!r}; labels are integers from 0 to {self.n_players - 1}."
        )

    def some_labels(self, players: slice | Positions) -> Labels:
        """Return the labels of the players at some positions."""
        return np.asarray(range(self.n_players)[players] if isinstance(players, slice) else players)


@dataclass(frozen=True)
class Blocks:
    """The blocks that are valued: row players times column players.

    Parameters
    ----------
    rows, columns : Axis
        Players among the rows and among the columns; :meth:`cut` makes them from labels.

    See Also
    --------
    cellworth.Owners, cellworth.Valuation

    Examples
    --------
    >>> from cellworth.data.blocks import Blocks
    >>> blocks = Blocks.cut(["ann", "bob", "eve"], ["age", "sex", "pay"],
    ...                     column_groups={"person": ["age", "sex"], "money": ["pay"]})
    >>> blocks.shape
    (3, 2)
    >>> blocks.columns.ids[blocks.columns.codes == 0]
    array(['age', 'sex'], dtype=object)
    """

    rows: Axis
    columns: Axis

    @classmethod
    def cut(
        cls,
        row_ids: Iterable[Any],
        column_names: Iterable[Any],
        *,
        row_groups: Groups = None,
        column_groups: Groups = None,
    ) -> Blocks:
        """Cut a table into blocks; without groups, every row and every column is a player."""
        ids, names = label_array(row_ids, what="row"), label_array(column_names, what="column")
        return cls(
            Axis.from_groups(ids, row_groups, what="row"),
            Axis.from_groups(names, column_groups, what="column"),
        )

    @classmethod
    def from_shape(cls, shape: Sequence[int]) -> Blocks:
        """Return the blocks of a game without a table, labeled by position."""
        sides = tuple(shape) if isinstance(shape, Iterable) else ()
        if len(sides) != 2 or not all(is_integer(n) and n >= 1 for n in sides):
            raise ValueError(
                f"shape must be two integers of at least 1, the numbers of row and column players, "
                f"got {shape!r}."
            )
        return cls.cut(np.arange(sides[0]), np.arange(sides[1]))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of players among the rows and among the columns."""
        return len(self.rows), len(self.columns)

    def with_labels(self) -> Blocks:
        """Return the blocks with the labels as one more column; all names become strings."""
        own = self.columns
        labels, ids = (
            label_array([*map(str, side.tolist()), LABEL], what="column")
            for side in (own.labels, own.ids)
        )
        if len(set(labels)) < len(labels) or len(set(ids)) < len(ids):
            raise ValueError(f"X has a column called {LABEL!r}, the name of the labels; rename it.")
        players = labels if own.grouped else ids
        return Blocks(self.rows, Axis(players, ids, np.append(own.codes, len(own.labels))))


def _check_labels(ids: Labels, groups: Any, what: str) -> list[Any]:
    """Return the label of the group of each id."""
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise TypeError(
            f"{what}_groups must be one label per {what} or a mapping {{group: [{what} ids]}}, got "
            f"{groups!r}; one group of all is [{groups!r}] * {len(ids)}."
        )
    labels = np.asarray(groups).tolist() if hasattr(groups, "__array__") else list(groups)
    odd = next((label for label in labels if not isinstance(label, Hashable)), None)
    if odd is not None:
        raise TypeError(
            f"{what}_groups must hold numbers, strings or dates, got {odd!r} for one {what}."
        )
    if len(labels) != len(ids):
        raise ValueError(
            f"{what}_groups must have one entry for each of {len(ids)} {what}s of X, got "
            f"{len(labels)}."
        )
    missing = [position for position, label in enumerate(labels) if is_missing(label)]
    if missing:
        raise ValueError(
            f"{what}_groups must give every {what} a group, got none at position {missing[0]} "
            f"({len(missing)} in all)."
        )
    return labels


def _find_members(ids: Labels, groups: Mapping[Any, Iterable[Any]], what: str) -> list[Any]:
    """Return the label of the group of each id, from the ids of each group."""
    members_of: dict[Any, list[Any]] = {}
    for group, members in groups.items():
        if isinstance(members, str) or not isinstance(members, Iterable):
            raise TypeError(
                f"{what}_groups[{group!r}] must be a list of {what} ids, such as [{members!r}], "
                f"got {members!r}."
            )
        members_of[group] = label_array(members, what=what).tolist()
        if not members_of[group]:
            raise ValueError(
                f"{what}_groups[{group!r}] must not be empty; give it a {what} or leave it out."
            )
    named = Counter(key for members in members_of.values() for key in members)
    known = Counter(ids.tolist())
    wrong = {
        "got others": [key for key in named if key not in known],
        "got twice": [key for key in named if named[key] > 1],
        "left out": [key for key in known if key not in named],
    }
    for how, keys in wrong.items():
        if keys:
            raise ValueError(
                f"{what}_groups must name every {what} of X once, {how}: {preview(keys)}; its "
                f"{what}s are {preview(ids)}."
            )
    label_of = {key: group for group, members in members_of.items() for key in members}
    return [label_of[key] for key in ids.tolist()]
