"""AbsentTable: a sharded table, of which only names, shape and hash are at hand."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from cellworth.blocks import label_array
from cellworth.counts import Labels
from cellworth.tables import Table


class AbsentTable(Table):
    """A table whose row ids are positions and whose cells cannot be read.

    Parameters
    ----------
    source : object with ``shape`` and ``names``
        And ``sha256()``, if it knows the hash of its cells.
    """

    _source: Any

    def __init__(self, source: Any) -> None:
        """Read the names."""
        object.__setattr__(self, "_source", source)
        object.__setattr__(self, "names", label_array(source.names, what="column"))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return int(self._source.shape[0]), len(self.names)

    @property
    def row_ids(self) -> Labels:
        """Positions, made on access."""
        return np.arange(self.shape[0])

    @property
    def data(self) -> NoReturn:
        """Raise an error: there are no cells."""
        raise ValueError(
            "the table is in shards, and its cells are not at hand here; give a table in memory, "
            "or leave out what reads cells."
        )

    def __repr__(self) -> str:
        """Return the size."""
        return f"AbsentTable({self.shape[0]} x {self.shape[1]})"

    def sha256(self) -> str:
        """Return the hash of names and cells from the source; empty if it has none."""
        return str(self._source.sha256()) if hasattr(self._source, "sha256") else ""


def is_absent(X: Any) -> bool:
    """Return whether X is a sharded table: it has names and a shape, but no cells."""
    if isinstance(X, Table) or any(hasattr(X, cells) for cells in ("__array__", "columns")):
        return False
    return hasattr(X, "names") and hasattr(X, "shape")
