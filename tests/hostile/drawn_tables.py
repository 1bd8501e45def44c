"""Tables that nobody hands in on purpose, drawn from a seed: types and traps of all libraries.

``python tests/hostile/drawn_tables.py SEED`` prints one.
"""

import datetime
import decimal
import fractions
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

DAY = datetime.datetime(2024, 2, 28, 12)
ZONE = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
LIBRARIES = ("pandas", "polars", "pyarrow", "numpy", "rows")


def pick(rng, choices):
    """Choose without converting to an array."""
    return choices[int(rng.integers(len(choices)))]


def among(*cells):
    """Return a generator of cells that are drawn from these."""
    return lambda rng, n: [pick(rng, cells) for _ in range(n)]


def ints(low, high):
    return lambda rng, n: [
        int(low) + int(part * (int(high) - int(low))) for part in rng.random(n).tolist()
    ]


def floats(scale):
    return lambda rng, n: (rng.normal(size=n) * scale).tolist()


def days(step):
    return lambda rng, n: [DAY + step * int(k) for k in rng.integers(-5, 40, n)]


def dates(rng, n):
    return [moment.date() for moment in days(datetime.timedelta(days=1))(rng, n)]


# Cells that most tables have.
PLAIN: dict[str, Callable[..., list[Any]]] = {
    "floats": floats(1),
    "integers": ints(0, 9),
    "counts": lambda rng, n: list(range(n)),
    "words": among("red", "green", "blue"),
    "booleans": among(True, False),
    "dates": dates,
    "moments": days(datetime.timedelta(hours=7)),
    "numbers as text": among("1", "2.5", "-3", "10"),
}
# Cells that some table has once.
ODD: dict[str, Callable[..., list[Any]]] = {
    "one value": among(3),
    "nothing": among(None),
    "not a number": among(float("nan")),
    "infinity": among(1.0, 2.0, float("inf")),
    "zeros of both signs": among(0.0, -0.0, 1.0),
    "tiny": floats(1e-300),
    "smallest": among(5e-324, 0.0, 1e-323),
    "huge": floats(1e300),
    "largest": among(1.7976931348623157e308, -1.7976931348623157e308, 0.0),
    "nearly equal": lambda rng, n: (1.0 + rng.integers(0, 3, n) * 2.0**-52).tolist(),
    "beyond 2**53": ints(2**53, 2**53 + 5),
    "beyond 2**63": ints(2**63, 2**64 - 2**12),
    "lowest integers": among(-(2**63), 2**63 - 1, 0),
    "beyond floats": among(10**400, 1),
    "decimals": among(decimal.Decimal("1.5"), decimal.Decimal("-2"), decimal.Decimal("1E+3")),
    "decimals not a number": among(decimal.Decimal("NaN"), decimal.Decimal(1)),
    "signalling": among(decimal.Decimal("sNaN"), decimal.Decimal(1)),
    "infinite decimals": among(decimal.Decimal("Infinity"), decimal.Decimal(1)),
    "fractions": among(fractions.Fraction(1, 3), fractions.Fraction(2, 3), 1),
    "complex": among(1j, 2j, 0j),
    "first and last days": among(datetime.date.min, datetime.date.max),
    "both zones": among(DAY, DAY.replace(tzinfo=ZONE)),
    "zoned": lambda rng, n: [
        each.replace(tzinfo=ZONE) for each in days(datetime.timedelta(minutes=9))(rng, n)
    ],
    "times": among(datetime.time(1, 2, 3), datetime.time.max, datetime.time.min),
    "durations": among(datetime.timedelta(days=1), datetime.timedelta(microseconds=-1)),
    "longest durations": among(datetime.timedelta.max, datetime.timedelta.min),
    "bytes": among(b"a", b"\xff\x00", b""),
    "lists": among([1, 2], [3], []),
    "dictionaries": among({"a": 1}, {"a": 2}),
    "sets": among({1}, {2}),
    "tuples": among((1, 2), (3, 4)),
    "arrays": among(np.arange(2), np.arange(3)),
    "marks": among("?", "n/a", "", "NULL", "-", "7", "8"),
    "blanks": among(" ", "  a", "a ", "\t", "\n"),
    "long": among("a" * 5000, "b" * 5000, "ab"),
    "half characters": among("\ud800", "x", "\udfff"),
    "hidden": among("\x00", "a\x00", "\u202e", "\ufeff", "a"),
    "composed": among("\u00e9", "e\u0301", "E\u0301"),
    "emoji": among("\U0001f468\u200d\U0001f469", "\U0001f468"),
    "right to left": among("\u05d0\u05d1", "\u0627\u0644"),
    "formulas": among("=1+1", "@x", "<script>alert(1)</script>", "+1"),
    "numbers and text": among(1, "1", 1.0, True, "one"),
    "booleans and numbers": among(True, 1, 0, 2.5),
    "missing values of all kinds": among(None, float("nan"), pd.NA, pd.NaT, "x", 1),
    "types": among(int, str, None),
    "text of NumPy": among(np.str_("a"), np.str_("b")),
    "numbers of NumPy": among(np.float32(0.1), np.int8(3), np.bool_(True)),
    "periods": among(pd.Period("2020-01"), pd.Period("2020-02")),
    "intervals": among(pd.Interval(0, 1), pd.Interval(1, 2)),
    "stamps": among(pd.Timestamp("2020-01-01"), pd.Timestamp.max, pd.Timestamp.min),
}
# Types that a column is cast to, if its library can; None is what the library finds.
PANDAS_TYPES = [
    None, object, "Int64", "Float64", "boolean", "string", "string[python]", "string[pyarrow]",
    "category", "datetime64[ns]", "datetime64[s]", "timedelta64[ns]", "float32", "float16",
    "uint8", "uint64", "Sparse[float]", "period[M]", "datetime64[ns, Asia/Kolkata]",
    pd.ArrowDtype(pa.int64()), pd.ArrowDtype(pa.string()), pd.ArrowDtype(pa.decimal128(9, 2)),
    pd.ArrowDtype(pa.date32()), pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())),
    pd.ArrowDtype(pa.timestamp("ns", "UTC")), pd.ArrowDtype(pa.list_(pa.int64())),
]  # fmt: skip
POLARS_TYPES = [
    None, pl.Object, pl.Int8, pl.UInt64, pl.Int128, pl.Float32, pl.Float64, pl.Decimal(20, 2),
    pl.String, pl.Categorical, pl.Enum(["red", "green", "blue"]), pl.Date, pl.Datetime("ns"),
    pl.Datetime("ms", "Asia/Kolkata"), pl.Time, pl.Duration("ns"), pl.Binary, pl.List(pl.Int64),
    pl.Array(pl.Int64, 2), pl.Struct({"a": pl.Int64}), pl.Null, pl.Boolean,
]  # fmt: skip
ARROW_TYPES = [
    None, pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.bool_(), pa.string(),
    pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.large_binary(),
    pa.binary(1), pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns", "Asia/Kolkata"),
    pa.duration("ns"), pa.time32("s"), pa.time64("ns"), pa.decimal128(20, 2), pa.decimal256(50, 3),
    pa.list_(pa.int64()), pa.list_(pa.int64(), 2), pa.struct({"a": pa.int64()}), pa.null(),
    pa.dictionary(pa.int8(), pa.string()), pa.month_day_nano_interval(),
]  # fmt: skip
NUMPY_TYPES = [
    None, object, np.float16, np.float32, np.longdouble, np.int8, np.uint64, np.bool_, np.complex64,
    "datetime64[ns]", "datetime64[D]", "timedelta64[s]", "U", "S3",
]  # fmt: skip
# What is done to an Arrow array, if it can be.
ARROW_FORMS: list[Callable[..., Any]] = [
    lambda cells: cells,
    lambda cells: cells.dictionary_encode(),
    pc.run_end_encode,
    lambda cells: pa.chunked_array([cells[:1], cells[1:1], cells[1:]]),
    lambda cells: pa.chunked_array([cells[:2].dictionary_encode(), cells[2:].dictionary_encode()]),
    lambda cells: pa.concat_arrays([cells, cells]).slice(len(cells)),
    lambda cells: pa.UnionArray.from_sparse(
        pa.array([0] * len(cells), pa.int8()), [cells, pa.array(["text"] * len(cells))]
    ),
]
MAKERS: dict[str, Callable[..., Any]] = {
    "pandas": lambda cells, type_, form: pd.Series(cells, dtype=type_),
    "polars": lambda cells, type_, form: pl.Series(cells, dtype=type_),
    "pyarrow": lambda cells, type_, form: ARROW_FORMS[form](pa.array(cells, type_)),
    "numpy": lambda cells, type_, form: np.array(cells, dtype=type_),
    "rows": lambda cells, type_, form: list(cells),
}
TYPES: dict[str, list[Any]] = {
    "pandas": PANDAS_TYPES, "polars": POLARS_TYPES, "pyarrow": ARROW_TYPES, "numpy": NUMPY_TYPES,
    "rows": [None],
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """Cells with the type that they are given in a library."""

    kind: str
    cells: list[Any]
    type_: Any
    form: int

    def build(self, library, rows):
        return MAKERS[library]([self.cells[row] for row in rows], self.type_, self.form)


NAMES: dict[str, Callable[[int], list[Any]]] = {
    "letters": lambda n: [chr(97 + i) for i in range(n)],
    "numbers": lambda n: list(range(n)),
    "fractions": lambda n: [i + 0.5 for i in range(n)],
    "dates": lambda n: [DAY + datetime.timedelta(days=i) for i in range(n)],
    "long": lambda n: [f"{'x' * 300}{i}" for i in range(n)],
    "twins": lambda n: ["a"] * n,
    "empty": lambda n: ["", " ", "\t", "\n", "\x00", "\x1b[31m"][:n],
    "labels": lambda n: ["(label)", "row", "column", "value", "owner", "y"][:n],
    "markup": lambda n: [f"<b>{i}</b>'\"" for i in range(n)],
    "missing": lambda n: [np.nan, None, pd.NaT, pd.NA, "a", "b"][:n],
    "pairs": lambda n: [("a", i) for i in range(n)],
    "pairs and letters": lambda n: [("a", 1), "b", ("c", 2), "d", "e", "f"][:n],
    "half characters": lambda n: [f"\ud800{i}" for i in range(n)],
    "letters and numbers": lambda n: ["a", 1, 2.5, True, "b", "c"][:n],
    "bytes": lambda n: [bytes([97 + i]) for i in range(n)],
}
IDS: dict[str, Callable[[int], list[Any]]] = {
    "numbers": lambda n: list(range(n)),
    "backwards": lambda n: list(range(n, 0, -1)),
    "words": lambda n: [f"id {i}" for i in range(n)],
    "twins": lambda n: [i // 2 for i in range(n)],
    "one": lambda n: ["a"] * n,
    "dates": lambda n: [DAY + datetime.timedelta(days=i) for i in range(n)],
    "zoned": lambda n: [DAY.replace(tzinfo=ZONE) + datetime.timedelta(days=i) for i in range(n)],
    "missing": lambda n: [None if i % 2 else i for i in range(n)],
    "levels": lambda n: [(i // 2, i % 2) for i in range(n)],
    "half characters": lambda n: [f"\ud800{i}" for i in range(n)],
    "words and numbers": lambda n: [i if i % 2 else str(i) for i in range(n)],
    "not a number": lambda n: [np.nan] * n,
}
LABELS: dict[str, Callable[..., list[Any]]] = {
    "two classes": lambda rng, n: [i % 2 for i in range(n)],
    "words": among("no", "yes", "maybe"),
    "booleans": among(True, False),
    "floats": floats(1),
    "rare class": lambda rng, n: [int(i == 0) for i in range(n)],
    "numbers with text": among(1, "1"),
    "missing": among(0, 1, None),
    "half characters": among("\ud800", "x"),
    "all different": lambda rng, n: [f"class {i}" for i in range(n)],
    "one class": among("a"),
    "huge": floats(1e200),
    "tiny": floats(1e-200),
    "infinite": among(float("inf"), 1.0),
    "decimals": among(decimal.Decimal("0.5"), decimal.Decimal(2)),
    "beyond floats": among(10**400, 0),
    "beyond 2**63": among(2**63, 2**63 + 1),
    "dates": among(datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)),
    "lists": among([1], [2]),
    "tuples": among((1, 2), (3, 4)),
    "complex": among(1j, 2j),
    "bytes": among(b"a", b"b"),
    "long": among("a" * 4000, "b"),
    "formulas": among("=1", "<b>"),
}
LABEL_TYPES: list[Callable[..., Any]] = [
    list,
    lambda cells: np.array(cells, dtype=object),
    np.array,
    pd.Series,
    lambda cells: pd.Series(cells, dtype="category"),
    lambda cells: pd.Series(cells, dtype="Int64"),
    lambda cells: pd.DataFrame({"y": cells}),
    pl.Series,
    lambda cells: pl.Series(cells, dtype=pl.Categorical),
    pa.array,
    lambda cells: pa.chunked_array([pa.array(cells)]).dictionary_encode(),
]


@dataclass(frozen=True)
class Drawn:
    """A table with labels, and how it is valued."""

    seed: int
    library: str
    columns: tuple[Column, ...]
    names: list[Any]
    ids: list[Any] | None
    labels: list[Any]
    label_type: int
    n_val: int
    n_neighbors: int
    settings: dict[str, Any]
    what: str

    @property
    def n_rows(self):
        return len(self.labels) - self.n_val

    def build(self, rows, order=None):
        """Return the table of some rows, and of some columns in their order, in its library."""
        order = range(len(self.columns)) if order is None else order
        built = [self.columns[at].build(self.library, rows) for at in order]
        names = [self.names[at] for at in order]
        if self.library == "rows":
            return [list(cells) for cells in zip(*built, strict=True)]
        if self.library == "numpy":
            return np.column_stack(built) if built else np.empty((len(rows), 0))
        if self.library == "polars":
            return pl.DataFrame([pl.Series(str(n), c) for n, c in zip(names, built, strict=True)])
        if self.library == "pyarrow":
            return pa.Table.from_arrays(built, names=[str(name) for name in names])
        ids = pd.Index([self.ids[row] for row in rows]) if self.ids else None
        table = pd.concat(built, axis=1) if built else pd.DataFrame(index=range(len(rows)))
        table.columns = pd.Index(names, dtype=object, tupleize_cols=False)
        return table if ids is None else table.set_axis(ids, axis=0)

    def build_labels(self, rows):
        labels = LABEL_TYPES[self.label_type]([self.labels[row] for row in rows])
        if self.ids and isinstance(labels, pd.Series | pd.DataFrame):
            labels.index = pd.Index([self.ids[row] for row in rows])
        return labels

    def data(self, rows=None, order=None):
        """Return what ``fit`` takes, with rows and columns in another order."""
        rows = range(self.n_rows) if rows is None else rows
        held = range(self.n_rows, len(self.labels))
        data = {"X": self.build(rows, order), "y": self.build_labels(rows)}
        if self.n_val:
            data |= {"X_val": self.build(held, order), "y_val": self.build_labels(held)}
        else:
            data["cv"] = 2
        return data

    def renamed(self):
        """Return the same table with other names of rows and columns."""
        names = [f"c{at}" for at in range(len(self.names))]
        ids = self.ids and [f"r{at}" for at in range(len(self.ids))]
        types = self.settings.get("column_types", {})
        types = {names[self.names.index(name)]: type_ for name, type_ in types.items()}
        settings = self.settings | ({"column_types": types} if types else {})
        return replace(self, names=names, ids=ids, settings=settings)


def draw(seed):
    """Draw a table; the same one from the same seed."""
    rng = np.random.default_rng(seed)
    library = pick(rng, LIBRARIES[:3] * 2 + LIBRARIES)
    size = int(
        rng.choice(
            [0, 1, 2, 3, 5, 8, 12, 20, 40, 60], p=[0.02, 0.03, 0.03, 0.03] + [0.15] * 5 + [0.14]
        )
    )
    n_val = int(rng.choice([0, 1, 2, 6, 15], p=[0.3, 0.1, 0.1, 0.3, 0.2]))
    n_columns = int(rng.choice([0, 1, 2, 3, 4, 5], p=[0.02, 0.2, 0.23, 0.25, 0.2, 0.1]))
    columns = [draw_column(rng, library, size + n_val) for _ in range(n_columns)]
    if library == "numpy" and columns:
        columns = [replace(each, type_=columns[0].type_, form=0) for each in columns]
    usually = rng.random(4) < 0.8
    name_kind = "letters" if usually[0] else pick(rng, list(NAMES))
    id_kind = "none" if usually[1] or library != "pandas" else pick(rng, list(IDS))
    # The first kinds are the usual ones.
    label_kind = pick(rng, list(LABELS)[:4] if usually[2] else list(LABELS))
    label_type = 0 if usually[3] else int(rng.integers(len(LABEL_TYPES)))
    names = NAMES[name_kind](n_columns)
    n_neighbors = pick(rng, [1, 2, 3, 7])
    settings: dict[str, Any] = {}
    if (
        rng.random() < 0.15
        and name_kind == "letters"
        and library not in ("numpy", "rows")
        and names
    ):
        settings["column_types"] = {names[0]: pick(rng, ["numeric", "categorical"])}
    what = f"{library} {size} + {n_val}: " + ", ".join(
        f"{each.kind} as {each.type_} {each.form}" for each in columns
    )
    return Drawn(
        seed, library, tuple(columns), names,
        None if id_kind == "none" else IDS[id_kind](size + n_val),
        LABELS[label_kind](rng, size + n_val), label_type, n_val, n_neighbors, settings,
        f"{what}; names {name_kind}, ids {id_kind}, y {label_kind} {label_type}, {settings}",
    )  # fmt: skip


def draw_column(rng, library, n):
    kind = pick(rng, list(PLAIN)) if rng.random() < 0.65 else pick(rng, list(ODD))
    cells = (PLAIN | ODD)[kind](rng, n)
    if rng.random() < 0.2:
        cells = [
            None if hole else cell for cell, hole in zip(cells, rng.random(n) < 0.2, strict=True)
        ]
    drawn = Column(kind, cells, None, 0)
    wanted = replace(
        drawn,
        type_=pick(rng, TYPES[library]) if rng.random() < 0.5 else None,
        form=int(rng.integers(len(ARROW_FORMS))) if rng.random() < 0.4 else 0,
    )
    texts = replace(drawn, cells=[None if cell is None else ascii(cell) for cell in cells])
    objects = replace(drawn, type_={"pandas": object, "polars": pl.Object}.get(library))
    tried = [wanted, drawn, objects, texts]
    # Some numbers abort polars; of moments with and without a zone, the first decides the type.
    if library == "polars" and (
        kind == "both zones"
        or any(isinstance(cell, decimal.Decimal) and not cell.is_finite() for cell in cells)
    ):
        tried = [objects]
    # Not every library holds every cell in every type.
    return next(pinned for each in tried if (pinned := pin_type(each, library, n)))


def pin_type(column, library, n):
    """Return the column with the type that its library finds in all cells; None if it cannot."""
    try:
        found = replace(column, form=0).build(library, range(n))
        if library in ("pandas", "polars", "numpy"):
            column = replace(column, type_=found.dtype)
        elif library == "pyarrow":
            column = replace(column, type_=found.type)
        # Cells of training and validation rows, in any order.
        for rows in (range(n), range(n // 2), range(n - 1, -1, -1)):
            built = column.build(library, rows)
            if library == "numpy" and np.ndim(built) != 1:
                return None
            str(built)
    except (KeyboardInterrupt, SystemExit):
        raise
    # Every library has its own errors; those of polars are no Exception where it panics.
    except BaseException:
        return None
    return column


if __name__ == "__main__":
    drawn = draw(int(sys.argv[1]))
    sys.stdout.write(f"{drawn.what}\n")
    for name, given in drawn.data().items():
        sys.stdout.write(f"{name}\n{given}\n")
