"""AbsentTable: a table in shards, of which names, shape and fingerprint are at hand."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from cellworth.blocks import Labels, label_array
from cellworth.tables import Table


class AbsentTable(Table):
    """A table whose rows are called by position and whose cells are not at hand.

    Parameters
    ----------
    source : any object with ``shape`` and ``names``
        And ``sha256()``, where it knows the fingerprint of its cells.
    """

    def __init__(self, source: Any) -> None:
        """Take what is small."""
        names = label_array(source.names, what="column")
        for name, thing in (("_source", source), ("names", names)):
            object.__setattr__(self, name, thing)

    _source: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return int(self._source.shape[0]), len(self.names)

    @property
    def row_ids(self) -> Labels:
        """Positions, made when they are asked for."""
        return np.arange(self.shape[0])

    @property
    def data(self) -> NoReturn:
        """Refuse to show cells."""
        raise ValueError(
            "the table is in shards, and its cells are not at hand here; give a table that is held "
            "in memory, or leave out what looks at cells."
        )

    def __repr__(self) -> str:
        """Say how large it is."""
        return f"AbsentTable({self.shape[0]} x {self.shape[1]})"

    def sha256(self) -> str:
        """Fingerprint of names and cells, as the source tells it; empty where it does not."""
        return str(self._source.sha256()) if hasattr(self._source, "sha256") else ""


def is_absent(X: Any) -> bool:
    """Tell whether this is a table in shards: it has names and a shape, and no cells to show."""
    if isinstance(X, Table) or any(hasattr(X, cells) for cells in ("__array__", "columns")):
        return False
    return hasattr(X, "names") and hasattr(X, "shape")
