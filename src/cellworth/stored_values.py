"""ValueFile: what a manifest says of a file of values, and how the file is read and checked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.files import written_atomically
from cellworth.value_files import all_names, names_of

Floats = NDArray[np.float64]

_NAME = re.compile(r"values-\d{5,}-[0-9a-f]{12}\.parquet")
_BYTES_AT_ONCE = 2**20
# So many rows of a transposed group stay in a processor's cache.
_ROWS_TURNED_AT_ONCE = 1024
_COLUMNS_AT_ONCE = 16


@dataclass(frozen=True)
class Extent:
    """Lowest and highest figure of each group of rows.

    Parameters
    ----------
    lowest, highest : tuples of float, one per group
    """

    lowest: tuple[float, ...]
    highest: tuple[float, ...]


@dataclass(frozen=True)
class ValueFile:
    """What a manifest says of a file with the values of some rows.

    Parameters
    ----------
    file, sha256, n_bytes : str, str, int
        Its name, its fingerprint and its size.
    first_row, n_rows, n_columns : int
        Which rows it holds, and how many values each of them has.
    group_rows : int
        Rows that are read at once; the last group may have fewer.
    with_spread : bool
        Whether it tells how observations differ; one observation does not.
    cells, rows : Extent
        Of values of cells, and of sums of rows.
    squares, spreads, largest_spread, largest_row_spread : float
        Sum of squared values and of spreads, and the largest spread of a cell and of a row's sum.
    """

    file: str
    sha256: str
    n_bytes: int
    first_row: int
    n_rows: int
    n_columns: int
    group_rows: int
    with_spread: bool
    cells: Extent
    rows: Extent
    squares: float
    spreads: float
    largest_spread: float
    largest_row_spread: float

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ValueFile:
        """Read what a manifest says; it may come from anyone."""
        given = {entry.name: plain[entry.name] for entry in fields(cls)}
        for name in ("cells", "rows"):
            ends = {end: tuple(map(float, given[name][end])) for end in ("lowest", "highest")}
            given[name] = Extent(**ends)
        found = cls(**given)
        # It must not reach beyond its own folder.
        if not isinstance(found.file, str) or not _NAME.fullmatch(found.file):
            raise ValueError(f"{found.file!r} is no name of a file of values")
        sizes = (found.first_row, found.n_rows - 1, found.n_columns - 1, found.group_rows - 1)
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise ValueError(f"{found.file!r} has rows or columns that cannot be")
        if any(
            len(ends) != found.n_groups
            for part in (found.cells, found.rows)
            for ends in (part.lowest, part.highest)
        ):
            raise ValueError(f"{found.file!r} has {found.n_groups} groups of rows, but others told")
        return found

    @property
    def end(self) -> int:
        """First row behind the last one."""
        return self.first_row + self.n_rows

    @property
    def n_groups(self) -> int:
        """Groups of rows that are read at once."""
        return -(-self.n_rows // self.group_rows)

    def extent(self, part: str) -> Extent:
        """Lowest and highest means, of cells or of rows."""
        return self.rows if part.startswith("row") else self.cells

    def group(self, number: int) -> slice:
        """Rows of one group, by position in the whole table."""
        start = self.first_row + number * self.group_rows
        return slice(start, min(start + self.group_rows, self.end))

    def groups_of(self, first: int, end: int) -> range:
        """Groups that hold rows of this stretch of the whole table."""
        first, end = max(first, self.first_row), min(end, self.end)
        if first >= end:
            return range(0)
        last = (end - 1 - self.first_row) // self.group_rows
        return range((first - self.first_row) // self.group_rows, last + 1)

    def check(self, folder: Path) -> None:
        """Read the file from end to end and refuse one that is not what was written."""
        self._stream(folder, lambda content: None)

    def copy(self, folder: Path, to: Path) -> None:
        """Copy the file to another folder, checked on the way."""
        with written_atomically(to / self.file) as file:
            self._stream(folder, file.write)

    def to_plain(self) -> dict[str, Any]:
        """Plain numbers and text, as :func:`cellworth.value_files.write_values` gave them."""
        return asdict(self)

    def _stream(self, folder: Path, to: Callable[[bytes], Any]) -> None:
        self.refuse_other_size(folder)
        digest = hashlib.sha256()
        with (folder / self.file).open("rb") as file:
            while content := file.read(_BYTES_AT_ONCE):
                digest.update(content)
                to(content)
        if digest.hexdigest() != self.sha256:
            raise ValueError(
                f"{folder / self.file} is not the file that was saved (its sha256 differs); "
                "restore it from a copy."
            )

    def read(
        self,
        folder: Path,
        parts: Sequence[str],
        groups: Sequence[int],
        columns: Sequence[int] | None = None,
    ) -> Iterator[tuple[slice, dict[str, Floats]]]:
        """Rows of each of these groups, and the figures that are asked for.

        Size and shape of the file and the check sums of what is read are looked at, not the
        fingerprint of the whole; see :meth:`check`.

        Parameters
        ----------
        folder : path
        parts : sequence of {"mean", "spread", "row_mean", "row_spread"}
            No spreads unless the file has them.
        groups : sequence of int
        columns : sequence of int, default=None
            Which columns, by position; None means all of them.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.refuse_other_size(folder)
        places = range(self.n_columns) if columns is None else columns
        names = {part: names_of(part, places) for part in parts}
        try:
            with pq.ParquetFile(folder / self.file, page_checksum_verification=True) as file:
                self._refuse_other_content(file)
                for number in groups:
                    yield (
                        self.group(number),
                        {part: _read(file, number, listed) for part, listed in names.items()},
                    )
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{folder / self.file} cannot be read ({error}); restore it from a copy."
            ) from error

    def refuse_other_size(self, folder: Path) -> None:
        """Refuse a file that is not there, or has another size; a look at the folder is enough."""
        path = folder / self.file
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} lacks the file {self.file!r} that its manifest names: the folder was "
                "removed, or holds a later result of its checkpoint; value the table again, and "
                "save a valuation elsewhere, valuation.save(folder), before its run goes on."
            )
        if path.stat().st_size != self.n_bytes:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes, but {self.n_bytes} were saved; restore "
                "it from a copy."
            )

    def _refuse_other_content(self, file: Any) -> None:
        found = file.metadata
        rows = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
        told = [self.group(number) for number in range(self.n_groups)]
        names = all_names(self.n_columns, self.with_spread)
        if rows != [group.stop - group.start for group in told] or file.schema_arrow.names != names:
            raise ValueError(
                f"{self.file} holds other rows or columns than its manifest says; restore both "
                "from a copy."
            )


def _read(file: Any, number: int, names: list[str]) -> Floats:
    """Columns of one group, as one array that lies in memory row by row; one of sums as it is."""
    n_rows = file.metadata.row_group(number).num_rows
    turned = np.empty((n_rows, len(names)))
    for first in range(0, len(names), _COLUMNS_AT_ONCE):
        some = names[first : first + _COLUMNS_AT_ONCE]
        # Threads of Arrow can abort a process that ends soon after.
        table = file.read_row_group(number, columns=some, use_threads=False)
        _turn([table[name].to_numpy() for name in some], turned[:, first : first + len(some)])
    return turned[:, 0] if names[0].startswith("row") else turned


def _turn(columns: list[Floats], turned: Floats) -> None:
    for start in range(0, len(turned), _ROWS_TURNED_AT_ONCE):
        some = slice(start, start + _ROWS_TURNED_AT_ONCE)
        for place, column in enumerate(columns):
            turned[some, place] = column[some]
