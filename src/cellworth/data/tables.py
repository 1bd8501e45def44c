"""Tables: one reader for pandas, polars, pyarrow and NumPy."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cellworth.data.arguments import ColumnType, Labels, Mask, Positions
from cellworth.data.column import Column, object_array
from cellworth.data.equal_rows import add_length, column_sha256, hash_rows
from cellworth.data.text import preview

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame, IntoSeries
else:
    # At run time, types of older releases of narwhals cannot be evaluated.
    IntoDataFrame = IntoSeries = Any


def default_backend() -> str:
    """Return the name of the first installed data-frame library."""
    known = (lib for lib in ("pandas", "polars") if importlib.util.find_spec(lib))
    return next(known, "pyarrow")


def frame(columns: Mapping[str, Any], backend: str | None) -> Any:
    """Create a native data frame from columns, which are lists or arrays."""
    name = backend or default_backend()
    try:
        return nw.from_dict(dict(columns), backend=name).to_native()  # type: ignore[arg-type]
    except (ValueError, TypeError, ModuleNotFoundError, AssertionError) as error:
        raise ValueError(
            f"backend must be an installed library: 'pandas', 'polars' or 'pyarrow', got {name!r}."
        ) from error


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table with column names and row ids, indexed by position."""

    data: nw.DataFrame[Any] | NDArray[Any]
    # The user's column names; ``x0, x1, ...`` for arrays.
    names: Labels
    # The index of a pandas table, otherwise 0, 1, 2, ...
    row_ids: Labels

    @classmethod
    def from_data(cls, X: TableLike, *, called: str) -> Table:
        """Read a pandas, polars or Arrow table, a NumPy array or a list of rows."""
        if isinstance(X, cls):
            return X
        _check_table(X, called)
        frame = _as_frame(X, called)
        if frame is None:
            array = _as_array(X, called)
            names = label_array(map("x{}".format, range(array.shape[1])), what="column")
            table = cls(array, names, np.arange(len(array)))
        else:
            names = label_array(frame.columns, what="column")
            if names.dtype.kind == "f" and np.isnan(names).any():
                raise ValueError(
                    f"{called} must have a name for every column, got nan; name all columns."
                )
            table = cls(frame, names, _row_ids(frame))
        for size, thing in zip(table.shape, ("sample", "feature"), strict=True):
            if size == 0:
                raise ValueError(
                    f"Found {called} with 0 {thing}(s) (shape={table.shape}) while a minimum of 1 "
                    "is required; give at least one row and one column."
                )
        return table

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self.row_ids), len(self.names)

    @property
    def backend(self) -> str | None:
        """Name of the user's data-frame library; None for arrays."""
        if isinstance(self.data, np.ndarray):
            return None
        return str(self.data.implementation.value)

    @property
    def native(self) -> Any:
        """The whole table in the user's own type."""
        return self.data if isinstance(self.data, np.ndarray) else self.data.to_native()

    def take(self, rows: Positions, columns: Positions) -> Any:
        """Return some rows and columns in the user's own type, as models expect it."""
        if isinstance(self.data, np.ndarray):
            return self.data[np.ix_(rows, columns)]
        return self.data[rows, columns].to_native()

    def column(self, position: int) -> NDArray[Any]:
        """Return one column by position; missing values are NaN, NaT or None."""
        if isinstance(self.data, np.ndarray):
            return self.data[:, position]
        return series_array(self.data[:, position])

    def read(self, position: int, declared: ColumnType | None = None) -> Column:
        """Read one column by position, as the user declares it or as what it is."""
        name = self.names.tolist()[position]
        type_ = None if isinstance(self.data, np.ndarray) else self._dtypes[position]
        return Column(name, self.column(position), type_, declared)

    @property
    def types(self) -> dict[str, str]:
        """Types of all columns by name; a model may depend on them."""
        return dict(zip(map(str, self.names.tolist()), map(str, self._dtypes), strict=True))

    @cached_property
    def _dtypes(self) -> list[Any]:
        if isinstance(self.data, np.ndarray):
            return [self.data.dtype] * len(self.names)
        return list(self.data.schema.values())

    def find_rows(self, ids: Any, *, called: str) -> Positions:
        """Return the positions of the rows with these ids."""
        return np.flatnonzero(find_labels(self.row_ids, ids, called, "row"))

    def select(self, columns: Positions) -> Table:
        """Return a table of these columns, in this order."""
        return Table(self.data[:, columns], self.names[columns], self.row_ids)

    def keep(self, rows: Positions) -> Table:
        """Return a table of these rows with their ids, in this order."""
        try:
            return Table(self.data[rows], self.names, self.row_ids[rows])
        # Arrow takes no rows of views and of runs.
        except NotImplementedError as error:
            raise TypeError(
                f"rows of X cannot be taken ({error}); cast such columns to text or numbers."
            ) from error

    def align(self, X: TableLike, *, called: str) -> Table:
        """Read a table with the columns of this one in their order, by name if both have names."""
        other = Table.from_data(X, called=called)
        if self.backend is None or other.backend is None:
            if self.shape[1] != other.shape[1]:
                raise ValueError(
                    f"{called} must have the {self.shape[1]} columns of X, got {other.shape[1]}; "
                    "give both the same columns."
                )
            return Table(other.data, self.names, other.row_ids)
        wanted, found = self.names.tolist(), other.names.tolist()
        lacking, more = set(wanted) - set(found), set(found) - set(wanted)
        if lacking or more:
            has, other_has = ("lacks", "has") if lacking else ("has", "lacks")
            raise ValueError(
                f"{called} {has} the columns {', '.join(sorted(map(repr, lacking or more)))} that "
                f"X {other_has}; give both the same columns."
            )
        return other.select(np.array([found.index(name) for name in wanted]))

    def hash_rows(self) -> NDArray[np.uint64]:
        """Return a number for each row, equal for equal rows of any table."""
        return hash_rows(map(self.read, range(self.shape[1])))

    def sha256(self) -> str:
        """Return the hash of names and cells; it does not depend on the library."""
        digest = hashlib.sha256()
        for position, name in enumerate(self.names.tolist()):
            digest.update(add_length(str(name).encode()))
            digest.update(column_sha256(self.column(position)))
        return digest.hexdigest()


def label_array(labels: Iterable[Any], *, what: str) -> Labels:
    """Return labels as an array of integers, floats, dates or strings (as Python objects)."""
    labels = labels if hasattr(labels, "__array__") else list(labels)
    with_tuples = any(isinstance(label, tuple) for label in labels)
    array = np.asarray(labels, dtype=object if with_tuples else None)
    if array.ndim != 1:
        raise ValueError(
            f"{what} labels must be one number, string or date per {what}, got "
            f"{max(array.ndim, 2)} levels."
        )
    if array.dtype.kind == "M":
        # NumPy returns finer units as integers.
        micros = array.astype("datetime64[us]")
        if np.array_equal(micros, array, equal_nan=True):
            return micros
        raise TypeError(
            f"{what} labels must be dates in microseconds, got finer ones; round them or use "
            "integers."
        )
    if array.dtype.kind in "iufb":
        return array
    # NumPy may have converted a mix of numbers and strings to strings.
    labels = list(labels)
    if all(isinstance(label, str) for label in labels):
        try:
            "".join(labels).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{what} labels must be whole characters, got half of one ({error}); rename it."
            ) from error
        return object_array([str(label) for label in labels])
    if all(isinstance(label, date) and getattr(label, "tzinfo", None) is None for label in labels):
        return np.array(labels, dtype="datetime64[us]")
    types = sorted({type(label).__name__ for label in labels})
    raise TypeError(
        f"{what} labels must be of one type: integers, floats, strings or dates without a time "
        f"zone, got {' and '.join(types)}."
    )


def find_labels(ids: Labels, wanted: Iterable[Any], called: str, what: str) -> Mask:
    """Return which ids are among those that a user named; an unknown one raises ValueError."""
    kept, known = set(label_array(wanted, what=what).tolist()), ids.tolist()
    missing = kept - set(known)
    if missing:
        raise ValueError(
            f"{called} must be {what}s of X, got {preview(sorted(missing, key=str))}; its "
            f"{what}s are {preview(known)}."
        )
    return np.fromiter((key in kept for key in known), dtype=bool, count=len(known))


# A pandas, polars or Arrow table, an array, a list of rows or a Table; and a column of labels.
TableLike: TypeAlias = IntoDataFrame | ArrayLike | Sequence[object] | Table
VectorLike: TypeAlias = IntoSeries | ArrayLike | Sequence[object]


def array_as_given(cells: Any) -> NDArray[Any]:
    """Return an array in which numbers among strings stay numbers."""
    array = np.asarray(cells)
    # NumPy silently converts the 1 of ["no", 1] to "1".
    mixed_up = array.dtype.kind == "U" and not isinstance(cells, np.ndarray)
    return np.asarray(cells, dtype=object) if mixed_up else array


def check_row_ids(given: Any, row_ids: Labels, called: str) -> None:
    """Check that data with row ids, of any kind, has those of a table in their order."""
    index = getattr(given, "index", None)
    # The index of a list is a method.
    if index is None or callable(index):
        return
    if not np.array_equal(label_array(index, what="row"), row_ids):
        raise ValueError(
            f"{called} must have the row ids of the table ({preview(row_ids)}) in the "
            f"same order, got {preview(index)}; or pass an array."
        )


def series_array(series: nw.Series[Any]) -> NDArray[Any]:
    """Return a column of a data frame; missing values are NaN, NaT or None."""
    try:
        array = series.to_numpy()
        is_category = isinstance(series.dtype, nw.Categorical | nw.Enum)
        missing = series.is_null().to_numpy() if array.dtype.kind == "O" or is_category else None
    # Each library has its own errors for types that NumPy does not know.
    except Exception as error:
        raise TypeError(
            f"column {series.name!r} must have numbers, dates, strings or categories, got cells of "
            f"type {series.dtype} that cannot be read ({error}); drop it, or convert it."
        ) from error
    if array.ndim > 1:
        # One object per cell: NumPy has made a table of lists.
        array = object_array([cell.tolist() for cell in array])
    if missing is None or not missing.any():
        return array
    if array.dtype.kind in "iufb":
        # Of categories that are numbers, pandas makes floats, and Arrow loses missing cells.
        array = np.array(series.to_list(), dtype=object)
    # Libraries represent missing values differently; here they are None, or NaT.
    array = array.copy()
    array[missing] = None
    return array


@dataclass(frozen=True, eq=False)
class HashedRows:
    """Hashes of a table's rows, by which equal rows are found without keeping the rows.

    Someone who guesses all cells of a row can confirm the guess. The key, which is the hash of the
    table, makes hashes of the same row in two tables differ.
    """

    key: str
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, table: Table) -> HashedRows:
        """Hash the rows of a table."""
        key = table.sha256()
        return cls(key, cls(key, np.zeros(0, dtype=np.uint64)).hash(table))

    def hash(self, table: Table) -> NDArray[np.uint64]:
        """Return the hashes of another table's rows, with the same key."""
        key = bytes.fromhex(self.key)
        rows = table.hash_rows().astype("<u8").tobytes()
        # Without this, the cells of a narrow table could be computed from the hashes.
        keyed = (
            hashlib.blake2b(rows[i : i + 8], digest_size=8, key=key).digest()
            for i in range(0, len(rows), 8)
        )
        return np.frombuffer(b"".join(keyed), dtype="<u8").astype(np.uint64)

    def to_plain(self) -> dict[str, str]:
        """Return the key and all hashes as text."""
        return {"key": self.key, "hashes": self.hashes.astype("<u8").tobytes().hex()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, str]) -> HashedRows:
        """Create HashedRows from the output of :meth:`to_plain`."""
        hashes = np.frombuffer(bytes.fromhex(plain["hashes"]), dtype="<u8")
        return cls(plain["key"], hashes.astype(np.uint64))

    def __len__(self) -> int:
        return len(self.hashes)


def _check_table(X: Any, called: str) -> None:
    if sparse.issparse(X):
        raise TypeError(
            f"{called} must not be a sparse matrix; pass {called}.toarray() or a data frame."
        )
    if np.ma.isMaskedArray(X):
        raise TypeError(f"{called} must not be a masked array; pass {called}.filled(np.nan).")
    # Recognized by its attributes, because sharded_table imports this file.
    if hasattr(X, "n_shards") and hasattr(X, "files_sha256"):
        raise TypeError(
            f"{called} must be a table in memory, got a ShardedTable; use ShardedKNNValuer for "
            "a sharded table."
        )
    if X is None or isinstance(X, str | bytes | dict) or np.isscalar(X):
        advice: dict[Any, str] = {
            str: "; read the file first",
            dict: f"; pass pandas.DataFrame({called})",
        }
        raise TypeError(
            f"{called} must be a pandas, polars or Arrow table or a two-dimensional array, got "
            f"{type(X).__name__}{advice.get(type(X), '')}."
        )


def _as_frame(X: Any, called: str) -> nw.DataFrame[Any] | None:
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        *_, named = str(error).split("got:")
        raise ValueError(
            f"{called} must have unique column names, got {' '.join(named.split()).lstrip('- ')}; "
            "rename the others."
        ) from error
    if isinstance(frame, nw.DataFrame):
        return frame
    if isinstance(nw.from_native(X, pass_through=True), nw.LazyFrame):
        raise TypeError(f"{called} must not be a lazy table; call collect() on it first.")
    return None


def _as_array(X: Any, called: str) -> NDArray[Any]:
    try:
        array = array_as_given(X)
    except ValueError as error:
        raise ValueError(
            f"{called} must have the same number of cells in every row, got different lengths."
        ) from error
    if array.dtype == object and array.ndim == 1 and all(isinstance(cell, dict) for cell in array):
        raise TypeError(f"{called} must be a table, got a list of dict; pass DataFrame({called}).")
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead: {called} must have rows and "
            "columns. Reshape your data with reshape(-1, 1) if it is a single column."
        )
    if np.iscomplexobj(array):
        raise ValueError(f"Complex data not supported: {called} holds complex numbers.")
    cells = array.flat if array.dtype.kind == "O" else ()
    nested = next((cell for cell in cells if isinstance(cell, dict | list | set)), None)
    if nested is not None:
        raise TypeError(
            f"{called} holds the cell {nested!r}; every cell argument must be a string, "
            "a number or missing."
        )
    return array


def _row_ids(frame: nw.DataFrame[Any]) -> Labels:
    index = nw.maybe_get_index(frame)
    if index is None:
        return np.arange(len(frame))
    if getattr(index, "nlevels", 1) > 1:
        raise ValueError(
            f"X must have one id per row, got an index of {index.nlevels} levels; call "
            "reset_index()."
        )
    return label_array(index, what="row")
