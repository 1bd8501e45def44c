"""The result of a valuer: values, errors, sums, provenance, and how they are stored."""

from __future__ import annotations

import os

from cellworth.data.blocks import Blocks, NumberedAxis
from cellworth.data.io import Options, to_path
from cellworth.valuation.column_info import ColumnInfo, ColumnTable
from cellworth.valuation.known_utilities import Utilities
from cellworth.valuation.provenance import Provenance, Scores
from cellworth.valuation.sharded_valuation import ShardedValuation, StoredMoments
from cellworth.valuation.storage import read_cells, read_columns, read_folder
from cellworth.valuation.valuation import RowChunk, Valuation, check_total, read_plain
from cellworth.valuation.values import ValueList

__all__ = [
    "ColumnInfo",
    "ColumnTable",
    "Provenance",
    "RowChunk",
    "Scores",
    "ShardedValuation",
    "Utilities",
    "Valuation",
    "ValueList",
    "load",
]


def load(folder: str | os.PathLike[str], storage_options: Options | None = None) -> Valuation:
    """Read a saved valuation; nothing in the folder is executed.

    Parameters
    ----------
    folder : path or address
        Folder that :meth:`~cellworth.Valuation.save` or ``cellworth value`` wrote.
    storage_options : dict, default=None
        Options of fsspec for an address, such as keys.

    Returns
    -------
    Valuation
        Values of a sharded table stay in their files and are read on demand.

    See Also
    --------
    Valuation

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, load
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> folder = Path(tempfile.mkdtemp()) / "values"
    >>> valuation.save(folder)
    >>> bool((load(folder).values == valuation.values).all())
    True
    """
    path = to_path(folder, "folder", storage_options)
    try:
        manifest, tables, files = read_folder(path)
        plain = read_plain(manifest)
        if not files:
            blocks, moments, validation = read_cells(tables)
            check_total(moments.mean, plain)
            if (known := tables.get("utilities")) is not None:
                spec, backend = plain["provenance"].problem_spec, plain["backend"]
                plain["utilities"] = Utilities.from_table(known, blocks, spec, backend)
            return Valuation(blocks, moments, validation=validation, **plain)
        columns, sums, validation = read_columns(tables)
        check_total(sums.mean, plain)
        stored = StoredMoments(path, files, sums)
        blocks = Blocks(NumberedAxis(stored.shape[0]), columns)
        return ShardedValuation(blocks, stored, validation=validation, **plain)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        # A file that is damaged is named.
        if str(error).startswith((f"{path}/", f"{path}\\")):
            raise
        # All hashes are right, so the folder was written by something else.
        raise ValueError(
            f"the parts of {path} do not fit together ({error!r}); restore it from a copy."
        ) from error
