"""Moments that lie in files: read strip by strip, by position, or best first; never all unasked."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cellworth.files import local_path
from cellworth.moments import Counts, Moments
from cellworth.stored_values import ValueFile
from cellworth.value_files import GROUP_ROWS, write_groups

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Figures = dict[str, Floats]

# About a gigabyte of each figure.
MOST_HELD = 2**27

_FIGURES_AT_ONCE = 2**22


class StoredMoments(Moments):
    """Moments of a table's cells and of their sums by row, column and in all, with files behind.

    Parameters
    ----------
    folder : Path
        Where the files lie.
    files : sequence of ValueFile
        In any order; together they hold all rows, each once.
    sums : Moments of shape (n_columns + 1,)
        Of the sums of columns and of the total.
    """

    def __init__(self, folder: Path, files: Sequence[ValueFile], sums: Moments) -> None:
        """Look at the files' entries, not yet at the files."""
        self.folder = folder
        self.files = tuple(sorted(files, key=lambda file: file.first_row))
        self.sums = sums
        self._checked: dict[str, tuple[int, int]] = {}
        self._lodging: _Lodging | None = None
        _refuse_gaps(self.files, len(sums.mean) - 1, self.n_observations)

    folder: Path
    files: tuple[ValueFile, ...]
    sums: Moments

    def __repr__(self) -> str:
        """Say where they lie."""
        return f"StoredMoments in {len(self.files)} files in {self.folder}"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns, without the sums."""
        return self.files[-1].end, self.files[-1].n_columns

    @property
    def n_observations(self) -> int:
        """How often each cell was seen."""
        return int(self.sums.count[-1])

    @property
    def largest_spread(self) -> float:
        """Largest spread of a cell, as the files' entries tell."""
        return max(file.largest_spread for file in self.files)

    @property
    def largest_row_spread(self) -> float:
        """Largest spread of a row's sum."""
        return max(file.largest_row_spread for file in self.files)

    def largest(self, part: str) -> float:
        """Size of the largest mean, of cells or of rows."""
        found = [file.extent(part) for file in self.files]
        return max(max(-min(one.lowest), *one.highest) for one in found)

    @property
    def count(self) -> Counts:
        """How often each entry was seen, sums included."""
        n_rows, n_columns = self.shape
        return np.broadcast_to(np.int64(self.n_observations), (n_rows + 1, n_columns + 1))

    @property
    def mean(self) -> Floats:
        """Means of all entries, sums included; read when asked for, and not kept."""
        return self._with_sums("mean")

    @property
    def spread(self) -> Floats:
        """Spreads of all entries, sums included; read when asked for, and not kept."""
        return self._with_sums("spread")

    def refuse_too_many(self, what: str, n_figures: int | None = None) -> None:
        """Refuse to hold more figures at once than a machine may have room for."""
        n_rows, n_columns = self.shape
        n_figures = n_rows * n_columns if n_figures is None else n_figures
        if n_figures > MOST_HELD:
            raise MemoryError(
                f"{what} of {n_rows:,} x {n_columns:,} blocks are {n_figures:,} figures, and at "
                f"most {MOST_HELD:,} are held at once; use strips(), loc or lowest()."
            )

    def strips(
        self,
        n_rows: int = GROUP_ROWS,
        parts: Sequence[str] = ("mean", "spread"),
        *,
        first: int = 0,
        end: int | None = None,
    ) -> Iterator[tuple[slice, Figures]]:
        """Go through some rows from top to bottom, n_rows at a time.

        Each file is first checked against its fingerprint, once for these Moments.
        """
        end = self.shape[0] if end is None else end
        start, held = first, _Held(min(n_rows, end - first))
        for rows, figures in self._pieces(self._known(parts), first, end):
            at = rows.start
            while at < rows.stop:
                stop = min(rows.stop, start + n_rows)
                held.add(
                    {
                        name: part[at - rows.start : stop - rows.start]
                        for name, part in figures.items()
                    }
                )
                at = stop
                if stop in (start + n_rows, end):
                    yield slice(start, stop), held.taken()
                    start, held = stop, _Held(min(n_rows, end - stop))
            # What was read is let go before more is read.
            del figures

    def all_of(self, part: str) -> Floats:
        """Return one figure of all cells, or of all rows."""
        n_rows, n_columns = self.shape
        of_rows = part.startswith("row")
        self.refuse_too_many("row sums" if of_rows else "values", n_rows if of_rows else None)
        found = np.zeros(n_rows if of_rows else (n_rows, n_columns))
        if self._known((part,)):
            for rows, figures in self.strips(GROUP_ROWS, (part,)):
                found[rows] = figures[part]
        return found

    def at(self, rows: Places, columns: Sequence[int], parts: Sequence[str]) -> Figures:
        """Figures of some rows, which are sorted and differ; only their groups are read."""
        wide = (len(rows), len(columns))
        found = {part: np.zeros(wide[:1] if part.startswith("row") else wide) for part in parts}
        for file in self.files:
            near, far = np.searchsorted(rows, (file.first_row, file.end))
            groups = np.unique((rows[near:far] - file.first_row) // file.group_rows).tolist()
            if not groups:
                continue
            for group, figures in file.read(self.folder, self._known(parts), groups, columns):
                here = slice(*np.searchsorted(rows, (group.start, group.stop)))
                for part, figure in figures.items():
                    found[part][here] = figure[rows[here] - group.start]
        return found

    def entries(self, places: Places, *parts: str) -> list[Floats]:
        """Figures of single entries, by their position in a list of all cells or of all rows."""
        width = 1 if parts[0].startswith("row") else self.shape[1]
        rows, columns = np.divmod(places, width)
        found = [np.zeros(len(places)) for _ in parts]
        for some in _by_rows(rows, max(_FIGURES_AT_ONCE // width, 1)):
            near, back = np.unique(rows[some], return_inverse=True)
            figures = self.at(near, range(width), parts)
            for figure, part in zip(found, parts, strict=True):
                figure[some] = figures[part].reshape(-1, width)[back, columns[some]]
        return found

    def best(self, part: str, k: int, *, lowest: bool) -> Places:
        """Positions of the k lowest or highest entries, best first; ties in the table's order.

        Only groups are read that may hold one of them, as their entries tell.
        """
        width = 1 if part.startswith("row") else self.shape[1]
        k = min(k, self.shape[0] * width)
        self.refuse_too_many("the best values", k)
        places, values = np.empty(0, dtype=np.intp), np.empty(0)
        for bound, start, file, number in self._by_promise(part, lowest):
            if len(values) == k and (bound, start * width) > (values[-1], places[-1]):
                break
            ((rows, figures),) = file.read(self.folder, (part,), [number])
            entries = figures[part].ravel() if lowest else -figures[part].ravel()
            near = _k_lowest(entries, k)
            places = np.concatenate([places, near + rows.start * width])
            values = np.concatenate([values, entries[near]])
            kept = np.lexsort((places, values))[:k]
            places, values = places[kept], values[kept]
        return places

    def merge(self, other: Moments, folder: str | os.PathLike[str] | None = None) -> StoredMoments:
        """Moments of both sets of observations, in files of their own.

        Without a folder they lie in a temporary one, which goes when the result goes.
        """
        if not isinstance(other, StoredMoments):
            raise TypeError("Moments in files merge with Moments in files; save the others first.")
        place = local_path(mkdtemp(prefix="cellworth-") if folder is None else folder, "folder")
        files = [
            write_groups(place, number, file.first_row, self._merged(other, file))
            for number, file in enumerate(self.files)
        ]
        sums = self.sums.merge(other.sums)
        merged = StoredMoments(place, [ValueFile.from_plain(file) for file in files], sums)
        if folder is None:
            merged.lodge_in(place)
        return merged

    def lodge_in(self, folder: Path) -> None:
        """Have a folder with the files removed when the last copy of these Moments is gone."""
        self._lodging = _Lodging(folder)

    def refuse_missing(self) -> None:
        """Refuse files that are not there, or not of their size; their content is not read."""
        for file in self.files:
            file.refuse_other_size(self.folder)

    def check(self, file: ValueFile) -> None:
        """Hold a file against its fingerprint, unless that was done since it was last changed."""
        file.refuse_other_size(self.folder)
        seen = (self.folder / file.file).stat()
        state = seen.st_mtime_ns, seen.st_size
        if self._checked.get(file.file) != state:
            file.check(self.folder)
            self._checked[file.file] = state

    def _merged(self, other: StoredMoments, file: ValueFile) -> Iterator[Mapping[str, Floats]]:
        both = (
            moments.strips(
                GROUP_ROWS,
                ("mean", "spread", "row_mean", "row_spread"),
                first=file.first_row,
                end=file.end,
            )
            for moments in (self, other)
        )
        for (_, one), (_, two) in zip(*both, strict=True):
            merged: dict[str, Floats] = {}
            for side in ("", "row_"):
                seen = [
                    _moments(moments.n_observations, figures, side)
                    for moments, figures in ((self, one), (other, two))
                ]
                joint = seen[0].merge(seen[1])
                merged |= {f"{side}mean": joint.mean, f"{side}spread": joint.spread}
            yield merged

    def _known(self, parts: Sequence[str]) -> list[str]:
        """Figures that all files have; after one observation there is no spread."""
        spread = all(file.with_spread for file in self.files)
        return [part for part in parts if spread or not part.endswith("spread")]

    def _pieces(
        self, parts: Sequence[str], first: int, end: int
    ) -> Iterator[tuple[slice, Figures]]:
        for file in self.files:
            groups = file.groups_of(first, end)
            if not groups:
                continue
            self.check(file)
            for rows, figures in file.read(self.folder, parts, groups):
                cut = slice(max(first - rows.start, 0), min(end, rows.stop) - rows.start)
                some = {name: part[cut] for name, part in figures.items()}
                del figures
                yield slice(rows.start + cut.start, rows.start + cut.stop), some
                del some

    def _by_promise(self, part: str, lowest: bool) -> list[tuple[float, int, ValueFile, int]]:
        """Groups by their best entry, with their first row, file and number."""
        found = []
        for file in self.files:
            extent = file.extent(part)
            for number in range(file.n_groups):
                bound = extent.lowest[number] if lowest else -extent.highest[number]
                found.append((bound, file.group(number).start, file, number))
        return sorted(found, key=lambda entry: entry[:2])

    def _with_sums(self, part: str) -> Floats:
        n_rows, n_columns = self.shape
        self.refuse_too_many("values")
        found = np.zeros((n_rows + 1, n_columns + 1))
        if self._known((part,)):
            for rows, figures in self.strips(GROUP_ROWS, (part, f"row_{part}")):
                found[rows, :-1] = figures[part]
                found[rows, -1] = figures[f"row_{part}"]
        found[-1] = getattr(self.sums, part)
        return found


def _by_rows(rows: Places, at_once: int) -> Iterator[Places]:
    """Positions in an array of rows, some at a time, so that rows that lie together stay so."""
    order = np.argsort(rows, kind="stable")
    for start in range(0, len(order), at_once):
        yield order[start : start + at_once]


class _Lodging:
    """A temporary folder, which goes with the last who holds on to this; copies share it."""

    def __init__(self, folder: Path) -> None:
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Lodging:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "the values lie in a temporary folder, which goes with this process, so that they "
            "cannot be pickled; save the valuation first and load it there."
        )


class _Held:
    """Some rows of figures that are put together from pieces; one piece stays what it is."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows, self._filled = n_rows, 0
        self._figures: Figures = {}

    def add(self, piece: Figures) -> None:
        n_new = len(next(iter(piece.values())))
        if n_new == self._n_rows:
            self._figures = piece
        for name, part in piece.items() if n_new < self._n_rows else ():
            if name not in self._figures:
                self._figures[name] = np.empty((self._n_rows, *part.shape[1:]))
            self._figures[name][self._filled : self._filled + n_new] = part
        self._filled += n_new

    def taken(self) -> Figures:
        """Give away what was put together."""
        figures, self._figures = self._figures, {}
        return figures


def _k_lowest(entries: Floats, k: int) -> Places:
    """Positions of the k lowest entries, in any order but with the first of equals."""
    if len(entries) <= k:
        return np.arange(len(entries))
    bound = np.partition(entries, k - 1)[k - 1]
    below, at = np.flatnonzero(entries < bound), np.flatnonzero(entries == bound)
    return np.concatenate([below, at[: k - len(below)]])


def _moments(count: int, figures: Figures, side: str) -> Moments:
    mean = figures[f"{side}mean"]
    spread = figures.get(f"{side}spread", np.zeros(mean.shape))
    return Moments(np.full(mean.shape, count), mean, spread)


def _refuse_gaps(files: Sequence[ValueFile], n_columns: int, count: int) -> None:
    if not files:
        raise ValueError("no shards of values came; give those of all rows.")
    at = 0
    for file in files:
        if file.first_row != at:
            what = "twice" if file.first_row < at else "not at all"
            ends = sorted((file.first_row, at))
            raise ValueError(
                f"rows {ends[0]} to {ends[1] - 1} are held {what} by the shards of values; give "
                "shards that hold each row once."
            )
        if file.n_columns != n_columns:
            raise ValueError(
                f"{file.file} has values of {file.n_columns} columns, but there are {n_columns}."
            )
        if count > 1 and not file.with_spread:
            raise ValueError(
                f"{file.file} does not tell how its {count} observations differ; give spreads."
            )
        at = file.end
