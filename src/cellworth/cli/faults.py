"""Faults of a table's file and of the columns that were named, each told in one sentence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import is_missing, some

_GZIP = b"\x1f\x8b"
_LOOKED_AT = 65_536
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
# With this all numbers are measured; else few whole numbers are classes.
_MEASURED = "neg_mean_squared_error"


def refuse_no_file(path: Path) -> None:
    """Refuse what cannot be read, or not twice."""
    if path.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder; give a file: CSV, TSV, Parquet or Arrow, or value a folder of "
            "Parquet files in Python, as ShardedTable.from_parquet(folder, target=...)."
        )
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; give the path of a table.")
    if not path.is_file():
        raise ValueError(f"{path} is a pipe or a device, which cannot be read twice; give a file.")


def refuse_no_text(path: Path) -> None:
    """Refuse a file that is called text but begins like something else."""
    if path.suffix.lower() == ".gz":
        return
    with path.open("rb") as file:
        begin = file.read(_LOOKED_AT)
    if begin.startswith(_GZIP):
        raise ValueError(f"{path} is compressed by gzip; call it {path.name}.gz.")
    if b"\0" in begin:
        raise ValueError(f"{path} is no UTF-8 text, but holds other bytes; save it as UTF-8.")


def column_names(table: Any, path: Path) -> list[str]:
    """Names of the columns, if they are text."""
    try:
        names: list[str] = table.column_names
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the first line of {path} is no UTF-8 text; save the file as UTF-8."
        ) from error
    return names


def told_of(error: Exception) -> str:
    """What a reader says of a file, without the bytes that no one can read."""
    told = " ".join(str(error).split()).rstrip(".")
    if not told.isprintable() or "\N{REPLACEMENT CHARACTER}" in told:
        told = re.sub(r"(got \d+): .*", r"\1", told)
    return told


def require_column(names: Sequence[str], name: str, path: Path, option: str) -> None:
    """Refuse a column that is not there; one that is spelled alike is offered."""
    if name in names:
        return
    told = f"{option} is {name!r}, which is no column of {path}"
    separator = next((one for one in _SEPARATORS if one in names[0]), None)
    if len(names) == 1 and separator is not None:
        raise ValueError(
            f"{told}; the only column is {names[0]!r}: is it separated by "
            f"{_SEPARATORS[separator]}? Save it with commas, or as .tsv with tabs."
        )
    lower = {one.lower(): one for one in names}
    alike = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"; did you mean {lower[alike[0]]!r}?" if alike else "."
    raise ValueError(f"{told}; its columns are {some(list(names))}{hint}")


def refuse_two_roles(target: str, row_id: str | None, drop: Sequence[str]) -> None:
    """Refuse labels that are to be something else as well."""
    for given, option in (([row_id], "--id"), (drop, "--drop")):
        if target in given:
            raise ValueError(f"--target and {option} both name {target!r}; give two columns.")


def refuse_gaps(y: NDArray[Any], target: str, path: Path) -> None:
    """Refuse rows without a label."""
    gaps = [place for place, label in enumerate(y.tolist()) if is_missing(label)]
    if gaps:
        raise ValueError(
            f"column {target!r} of {path} has no label in {len(gaps)} of {len(y)} rows, the first "
            f"of them row {gaps[0]} (from 0); fill them in, or take these rows out."
        )


def refuse_one_number(y: NDArray[Any], target: str, path: str) -> None:
    """Refuse numbers of which there is only one."""
    if y.dtype.kind in "iuf" and len(np.unique(y)) == 1:
        raise ValueError(
            f"column {target!r} of {path} holds {y[0].item()!r} in every row, so that nothing can "
            "be learnt; give another --target."
        )


def refuse_other_columns(
    names: Sequence[str], judges: Sequence[str], path: str, left_out: str | None
) -> None:
    """Refuse a validation file that has other columns than the table."""
    lacking = [name for name in names if name not in judges and name != left_out]
    if lacking:
        raise ValueError(f"{path} lacks the columns {some(lacking)} that the table has; add them.")
    more = [name for name in judges if name not in names and name != left_out]
    if more:
        raise ValueError(
            f"{path} has the columns {some(more)} that the table lacks; take them out, or give "
            "--drop for each."
        )


def refuse_small_classes(y: NDArray[Any], target: str, folds: int, scoring: str | None) -> None:
    """Refuse classes of which none comes as often as there are folds."""
    found, counts = np.unique(y, return_counts=True)
    if scoring == _MEASURED or counts.max() >= folds or folds > len(y):
        return
    hint = "give --val, or a smaller --cv."
    if y.dtype.kind in "iuf":
        hint = f"if they are measured, give --scoring {_MEASURED}, else --val or a smaller --cv."
    raise ValueError(
        f"the labels in {target!r} are taken for {len(found)} classes, none of which has the "
        f"{folds} rows that --cv {folds} needs; {hint}"
    )
