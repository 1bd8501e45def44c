"""Requests: a question as it was asked on the command line, kept beside its answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from cellworth.cli.reading import Delivery, file_sha256, read_delivery
from cellworth.counts import is_whole
from cellworth.files import read_manifest, written_atomically

Check = Callable[[Any], bool]

FORMAT = "cellworth request"
VERSION = 1
FILE = "request.json"

_PATHS = ("table", "val", "output")
# What may change from session to session of one run.
_HOW = ("table", "val", "output", "sweeps", "budget", "deadline", "error", "rounds")


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _is_number(given: Any) -> bool:
    return type(given) in (int, float)


def _is_list_of(check: Check) -> Check:
    return lambda given: isinstance(given, list) and all(map(check, given))


def _is_table_of(check: Check) -> Check:
    return lambda given: isinstance(given, dict) and all(map(check, given.values()))


def _or_none(check: Check) -> Check:
    return lambda given: given is None or check(given)


def _is_round(given: Any) -> bool:
    figures = ("tasks", "seconds", "error", "total")
    return _is_table_of(_or_none(_is_number))(given) and set(given) == set(figures)


# What a file may hold under each name.
_TYPES: dict[str, Check] = {
    **dict.fromkeys(("table", "table_sha256", "target", "model"), _is_text),
    **dict.fromkeys(
        ("id", "val", "val_sha256", "row_groups", "scoring", "owners", "agreement", "output"),
        _or_none(_is_text),
    ),
    **dict.fromkeys(("drop", "missing", "categorical"), _is_list_of(_is_text)),
    **dict.fromkeys(("neighbors", "cv", "seed"), is_whole),
    **dict.fromkeys(("val_rows", "sweeps", "budget"), _or_none(is_whole)),
    **dict.fromkeys(("deadline", "error"), _or_none(_is_number)),
    "labels": lambda given: isinstance(given, bool),
    "column_groups": _or_none(_is_table_of(_is_list_of(_is_text))),
    "rounds": _is_list_of(_is_round),
}


@dataclass(frozen=True)
class Request:
    """What is valued, and how: all that a later command needs to know.

    Parameters
    ----------
    table, val : str
        Paths of the table and of the validation file.
    table_sha256, val_sha256 : str
        Fingerprints of these files.
    val_rows : int or None
        How many rows of the validation file judge, drawn by the seed; None: all of them.
    target, id, drop, missing, row_groups, column_groups, categorical
        Which columns play, and as what.
    model, neighbors, scoring, labels, cv, seed, sweeps, budget, deadline, error
        How they are valued, and for how long.
    owners, agreement : str or None
        Text of the files that say who holds which cells, and what was agreed on.
    output : str or None
        Folder of the result.
    rounds : tuple of dict
        How the run went: tasks, seconds, error and total after each round.
    """

    table: str
    table_sha256: str
    target: str
    id: str | None = None
    drop: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    val: str | None = None
    val_sha256: str | None = None
    val_rows: int | None = None
    row_groups: str | None = None
    column_groups: Mapping[str, list[str]] | None = None
    categorical: tuple[str, ...] = ()
    model: str = "knn"
    neighbors: int = 5
    scoring: str | None = None
    labels: bool = False
    cv: int = 5
    seed: int = 0
    sweeps: int | None = None
    budget: int | None = None
    deadline: float | None = None
    error: float | None = None
    owners: str | None = None
    agreement: str | None = None
    output: str | None = None
    rounds: tuple[Mapping[str, Any], ...] = field(default=())

    @classmethod
    def of(cls, *, table: Path, val: Path | None, **asked: Any) -> Self:
        """Look at the files that are meant."""
        return cls(
            table=str(table.absolute()),
            table_sha256=file_sha256(table),
            val=None if val is None else str(val.absolute()),
            val_sha256=None if val is None else file_sha256(val),
            **asked,
        )

    def data(self) -> tuple[Delivery, Delivery | None]:
        """Read the table and the validation file; those that have changed are refused."""
        how: dict[str, Any] = {
            "target": self.target,
            "row_id": self.id,
            "drop": self.drop,
            "missing": self.missing,
            "categorical": self.categorical,
        }
        delivery = read_delivery(_unchanged(self.table, self.table_sha256, "--table"), **how)
        if self.val is None or self.val_sha256 is None:
            return delivery, None
        path = _unchanged(self.val, self.val_sha256, "--val")
        judges = read_delivery(path, like=delivery, **how)
        return delivery, judges if self.val_rows is None else judges.drawn(self.val_rows, self.seed)

    def moved(self, table: Path | None, val: Path | None) -> Request:
        """Be the same request of files that lie elsewhere now."""
        return replace(
            self,
            table=self.table if table is None else str(table.absolute()),
            val=self.val if val is None else str(val.absolute()),
        )

    def save(self, folder: Path) -> None:
        """Write the request into a folder; paths are kept as seen from there."""
        plain = {"format": FORMAT, "version": VERSION, **asdict(self)}
        for name in _PATHS:
            if plain[name] is not None:
                plain[name] = _seen_from(folder, plain[name])
        folder.mkdir(parents=True, exist_ok=True)
        with written_atomically(folder / FILE) as file:
            file.write(json.dumps(plain, indent=1).encode())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the request of a folder."""
        path = folder / FILE
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} holds no {FILE}; give a folder that cellworth value wrote."
            )
        plain = read_manifest(path, FORMAT, VERSION)
        known = {field.name for field in fields(cls)}
        if not {"table", "table_sha256", "target"} <= set(plain) <= known | {"format", "version"}:
            raise ValueError(f"{path} is incomplete or was changed; restore it from a copy.")
        asked = {name: plain[name] for name in plain if name in known}
        _refuse_other_types(asked, path)
        for name in _PATHS:
            if asked.get(name) is not None:
                asked[name] = os.path.normpath(Path(os.path.realpath(folder), asked[name]))
        tuples = {name: tuple(asked[name]) for name in asked if isinstance(asked[name], list)}
        return cls(**{**asked, **tuples})

    def difference(self, other: Request) -> str | None:
        """Name of the first setting in which two requests ask for other values."""
        one, two = asdict(self), asdict(other)
        return next((name for name in one if name not in _HOW and one[name] != two[name]), None)


def refuse_other_request(folder: Path, request: Request) -> None:
    """Refuse a folder in which another question was begun."""
    if not (folder / FILE).exists():
        return
    name = Request.load(folder).difference(request)
    if name is not None:
        raise ValueError(
            f"{folder} holds a run with another {name.replace('_', '-')}; give the options of "
            "then, or another folder."
        )


def _unchanged(path: str, sha256: str, option: str) -> Path:
    here = Path(path)
    if not here.exists():
        raise FileNotFoundError(f"{path} is not there any more; give {option} with its new path.")
    if file_sha256(here) != sha256:
        raise ValueError(
            f"{path} is not the file that was valued (its sha256 differs); give {option} with the "
            "file of then, or value the new one."
        )
    return here


def _refuse_other_types(asked: Mapping[str, Any], path: Path) -> None:
    for name, given in asked.items():
        if not _TYPES[name](given):
            raise ValueError(
                f"{path} has {name}: {json.dumps(given)[:80]}, which cellworth never writes there; "
                "restore the file from a copy."
            )


def _seen_from(folder: Path, path: str) -> str:
    # Links are followed, or ".." would lead elsewhere than it says.
    parent, name = os.path.split(path)
    try:
        return os.path.relpath(Path(os.path.realpath(parent), name), os.path.realpath(folder))
    except ValueError:
        # Another drive.
        return path
