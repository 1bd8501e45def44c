"""ValueFile: the manifest entry of a file of values, and how the file is read and checked."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellworth.counts import Floats
from cellworth.files import written_atomically
from cellworth.value_files import hash_file, name_all_columns, name_columns

if TYPE_CHECKING:
    import pyarrow as pa


_NAME = re.compile(r"values-\d{5,}-[0-9a-f]{12}\.parquet")
_STATISTICS = (
    "lowest",
    "highest",
    "row_lowest",
    "row_highest",
    "squares",
    "spreads",
    "largest_spread",
    "largest_row_spread",
)


@dataclass(frozen=True)
class ValueFile:
    """The manifest entry of a file that holds the values of some consecutive rows.

    Parameters
    ----------
    file, sha256, n_bytes : str, str, int
        Name, hash and size.
    first_row, n_columns : int
        Position of the first row in the whole table, and the number of columns.
    with_spread : bool
        Whether the file has spreads; after one observation there are none.
    groups : mapping of str to list, one entry per row group
        ``n_rows``; ``lowest`` and ``highest`` value of a cell, ``row_lowest`` and ``row_highest``
        row sum; sums ``squares`` of squared values and ``spreads`` of spreads; and
        ``largest_spread`` of a cell, ``largest_row_spread`` of a row sum.
    """

    file: str
    sha256: str
    n_bytes: int
    first_row: int
    n_columns: int
    with_spread: bool
    groups: Mapping[str, list[float]]

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ValueFile:
        """Read an entry of a manifest, which is untrusted."""
        entry = cls(**{field.name: plain[field.name] for field in fields(cls)})
        # The name must not lead out of the folder.
        if not isinstance(entry.file, str) or not _NAME.fullmatch(entry.file):
            raise ValueError(f"{entry.file!r} is not the name of a file of values")
        group_rows = entry.groups["n_rows"]
        sizes = (entry.first_row, entry.n_columns - 1, len(group_rows) - 1)
        if not all(isinstance(n, int) and n >= 0 for n in (*sizes, *(n - 1 for n in group_rows))):
            raise ValueError(f"{entry.file!r} has an impossible number of rows or columns")
        if any(
            len([float(n) for n in entry.groups[name]]) != len(group_rows) for name in _STATISTICS
        ):
            raise ValueError(
                f"{entry.file!r} has {len(group_rows)} row groups, but not in all lists"
            )
        return entry

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(sum(self.groups["n_rows"]))

    def read(
        self, folder: Path, group: int, parts: Sequence[str], columns: Sequence[int]
    ) -> pa.Table:
        """Read one row group.

        Check size and schema of the file and the checksums of the pages read; :meth:`check` checks
        the hash of the file.

        Parameters
        ----------
        folder : path
        group : int
        parts : sequence of {"mean", "spread", "row_mean", "row_spread"}
        columns : sequence of int
            Positions of the table's columns.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.check_size(folder)
        names = [name for part in parts for name in name_columns(part, columns)]
        try:
            with pq.ParquetFile(folder / self.file, page_checksum_verification=True) as file:
                self._check_content(file)
                # Threads of Arrow can abort a process that ends soon after.
                return file.read_row_group(group, columns=names, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"cannot read {folder / self.file} ({error}); restore it from a copy."
            ) from error

    def copy(self, folder: Path, to: Path) -> None:
        """Copy the file to another folder and check the copy."""
        self.check_size(folder)
        with written_atomically(to / self.file) as copy, (folder / self.file).open("rb") as file:
            shutil.copyfileobj(file, copy)
            copy.flush()
            self._check_hash(copy.name, folder)

    def check(self, folder: Path) -> None:
        """Refuse a file that differs from the one that was written, by its hash."""
        self.check_size(folder)
        self._check_hash(folder / self.file, folder)

    def check_size(self, folder: Path) -> None:
        """Refuse a file that is missing or has another size, without reading it."""
        path = folder / self.file
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} lacks the file {self.file!r} that its manifest names: the folder was "
                "removed, or holds a later result of its checkpoint; value the table again, and "
                "save a valuation elsewhere, valuation.save(folder), before its run resumes."
            )
        if path.stat().st_size != self.n_bytes:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes, but {self.n_bytes} were saved; restore "
                "it from a copy."
            )

    def _check_hash(self, path: str | Path, folder: Path) -> None:
        if hash_file(path) != self.sha256:
            raise ValueError(
                f"{folder / self.file} is not the file that was saved (its sha256 differs); "
                "restore it from a copy."
            )

    def _check_content(self, file: Any) -> None:
        found = file.metadata
        rows = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
        names = name_all_columns(self.n_columns, self.with_spread)
        if rows != list(self.groups["n_rows"]) or file.schema_arrow.names != names:
            raise ValueError(
                f"{self.file} has other rows or columns than its manifest says; restore both from "
                "a copy."
            )


def to_array(table: pa.Table, part: str, columns: Sequence[int]) -> Floats:
    """Return one statistic of a table that :meth:`ValueFile.read` read, row by row in memory."""
    if part.startswith("row"):
        return np.asarray(table[part])
    found = np.empty((table.num_rows, len(columns)))
    for column, name in zip(found.T, name_columns(part, columns), strict=True):
        column[:] = table[name]
    return found
