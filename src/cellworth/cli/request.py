"""Requests: the settings of a command, its files, and the valuer for them."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import json
import operator
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, Union, cast, get_args, get_origin, get_type_hints

import narwhals.stable.v2 as nw
import numpy as np

from cellworth.cli.input_files import (
    InputTable,
    TextOptions,
    check_column,
    check_is_file,
    check_roles,
    open_files,
    read_column,
    read_input,
)
from cellworth.data.file_search import names_many
from cellworth.data.io import (
    AnyPath,
    hash_file,
    is_address,
    read_hashed,
    to_path,
    write_hashed,
)
from cellworth.data.owners import Owners, list_keys, parse_toml
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.table_files import TextFormat
from cellworth.data.tables import Table
from cellworth.knn.knn_game import check_scoring
from cellworth.payouts.agreement import Agreement
from cellworth.payouts.owner_players import OwnerValuer
from cellworth.payouts.policy import ValidationDraw
from cellworth.runtime.run_settings import Runtime
from cellworth.runtime.stopping import MaxSeconds, MaxUtilities, StoppingRule, TargetStandardError
from cellworth.valuers.knn_valuer import KNNValuer
from cellworth.valuers.model_valuer import ModelValuer
from cellworth.valuers.sharded_knn_valuer import ShardedKNNValuer

KNN = "knn"
# A folder or pattern with more cells than this is read in shards, unless the user says otherwise.
MAX_CELLS_IN_MEMORY = 10_000_000
# Commands that need all cells of a table in shards read up to this many into memory.
_MAX_CELLS = 2**27

FORMAT = "cellworth request"
VERSION = 2
FILE = "request.json"

_PATHS = ("table", "val", "output")
# Settings that an agreement fixes; the path of validation rows may change, but not their hash.
AGREED = (
    "target", "id", "drop", "missing", "delimiter", "encoding", "decimal", "shards", "val",
    "val_rows", "categorical", "model", "neighbors", "scoring", "score", "game", "cv", "seed",
    "stop",
)  # fmt: skip
# Settings that may differ between the sessions of one run.
_HOW = ("table", "val", "output", "stop")


@dataclass(frozen=True)
class RunRequest:
    """The settings of a run, which later commands read."""

    table: str
    table_sha256: str
    target: str
    output: str
    id: str | None = None
    drop: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str = "utf-8"
    decimal: str | None = None
    shards: bool = False
    val: str | None = None
    val_sha256: str | None = None
    val_rows: int | Literal["all"] | None = None
    categorical: tuple[str, ...] = ()
    model: str = "knn"
    neighbors: int = 5
    scoring: str | None = None
    score: Literal["whole", "above baseline"] | None = None
    game: Literal["cells", "owners"] = "cells"
    cv: int = 5
    seed: int = 0
    stop: dict[str, float] = field(default_factory=dict)
    # Contents of the files.
    owners: str | None = None
    agreement: str | None = None

    @classmethod
    def from_files(
        cls, *, table: str, val: str | None, shards: bool | None = None, **asked: Any
    ) -> Self:
        """Hash the files of a request; decide whether the table is read in shards or into memory.

        ``shards`` is the choice of the user; None reads many files in shards beyond a bound.
        """
        request = cls(
            table=make_absolute(table),
            table_sha256="",
            val=None if val is None else make_absolute(val),
            shards=bool(shards),
            **asked,
        )
        if shards is None and names_many(request.table, {}):
            n_rows, n_columns = request.open_files().shape
            request = replace(request, shards=n_rows * n_columns > MAX_CELLS_IN_MEMORY)
        if request.val is not None:
            request = replace(request, val_sha256=request.hash_of(request.val))
        return replace(request, table_sha256=request.hash_of(request.table))

    @property
    def text(self) -> TextFormat:
        """How text files are written; categories, names of owners and row ids are text."""
        source = self._ownership.get("source")
        named = {*self.categorical, *self._dropped, self.id, source}
        as_text = sorted(name for name in named if name and name != self.target)
        return TextOptions(self.delimiter, self.encoding, self.decimal, self.missing, as_text)

    @property
    def keys(self) -> list[str]:
        """Columns that only tell whose a row is; they are not valued."""
        return list_keys(self._ownership, "--owners")

    def under(self, agreement: str) -> RunRequest:
        """Return the same request with the settings of an agreement."""
        settings = read_agreed_settings(agreement)
        # Where the validation rows are now; their hash is agreed on.
        settings["val"] = self.val if "val" in settings else None
        return replace(self, **settings, agreement=agreement, owners=None)

    def list_differences(self, agreed: RunRequest) -> list[str]:
        """Return the settings that are not as agreed, with both."""
        one, other = vars(self), vars(agreed)
        return [
            f"{name} is {one[name]!r}, but {other[name]!r} was agreed on"
            for name in AGREED
            if one[name] != other[name]
        ]

    @property
    def _dropped(self) -> tuple[str, ...]:
        """Columns that are not read: owners may use dropped ones as keys."""
        return tuple(name for name in self.drop if name not in self.keys)

    @property
    def _ownership(self) -> dict[str, Any]:
        """The content of the file of owners, or of the agreement."""
        for name in ("owners", "agreement"):
            text = getattr(self, name)
            if text is not None:
                return parse_toml(text, f"--{name}")
        return {}

    def open_files(self, *, with_keys: bool = False) -> ShardedTable:
        """Open the table, in shards, with the columns that are valued, or also the keys."""
        import pyarrow as pa

        check_roles(self.target, self.id, self.drop)
        table = open_files(self.table, self.target, self.text)
        out = self._dropped if with_keys else (*self._dropped, *self.keys)
        for name in out:
            what = "--drop" if name in self._dropped else "the column of owners"
            check_column(table.names.tolist(), name, self.table, what)
        kept = [field for field in table.schema if field.name not in out]
        if len(kept) < 2:
            raise ValueError(f"{self.table} has no column besides {self.target!r}; drop fewer.")
        return replace(table, schema=pa.schema(kept))

    def hash_of(self, address: str) -> str:
        """Return the hash of a file, or of all files of the table."""
        if names_many(address, {}) or (self.shards and address == self.table):
            return open_files(address, self.target, self.text).files_sha256()
        check_is_file(address)
        return hash_file(to_path(address, "table"))

    def read(self, address: str, like: Any = None) -> InputTable:
        """Read a file as the table is read; with the types of ``like``, if given."""
        return read_input(
            address,
            target=self.target,
            row_id=self.id,
            drop=self._dropped,
            keys=self.keys,
            text=self.text,
            like=like,
        )

    def data(self) -> tuple[InputTable, InputTable | None]:
        """Read the table and the validation file; raise ValueError if they have changed."""
        self._check_unchanged(self.table, self.table_sha256, "--table")
        if self.shards:
            X = self.open_files()
            delivered = self.open_files(with_keys=True) if self.keys else X
            train = InputTable(X, None, delivered)
        else:
            train = self.read(self.table)
        if self.val is None or self.val_sha256 is None:
            return train, None
        self._check_unchanged(self.val, self.val_sha256, "--val")
        val = self.read(self.val, (train.X if self.shards else train.X.native).schema)
        if not isinstance(self.val_rows, int):
            return train, val
        n_all = len(val.y)
        if self.val_rows > n_all:
            raise ValueError(
                f"--val-rows is {self.val_rows}, but the validation file has {n_all} rows."
            )
        drawn = np.sort(np.random.default_rng(self.seed).permutation(n_all)[: self.val_rows])
        return train, val.keep(drawn)

    def _check_unchanged(self, path: str, sha256: str, option: str) -> None:
        is_gone = not is_address(path) and not names_many(path, {}) and not Path(path).exists()
        if is_gone:
            raise FileNotFoundError(
                f"{path} does not exist any more; give {option} with its new path."
            )
        if self.hash_of(path) != sha256:
            raise ValueError(
                f"{path} is not the table that was valued (its sha256 differs); give {option} with "
                "the original, or value the new one."
            )

    def with_paths(self, table: str | None, val: str | None) -> RunRequest:
        """Return the same request with new paths of its files."""
        given = {"table": table, "val": val}
        paths: Any = {name: make_absolute(path) for name, path in given.items() if path is not None}
        return replace(self, **paths)

    def save(self, folder: AnyPath) -> None:
        """Write the request into a folder, with paths relative to it."""
        plain = asdict(self)
        for name in _PATHS:
            if plain[name] is not None:
                plain[name] = _relative_to(folder, plain[name])
        folder.mkdir(parents=True, exist_ok=True)
        write_hashed(folder / FILE, FORMAT, VERSION, plain)

    @classmethod
    def load(cls, folder: AnyPath) -> Self:
        """Read the request of a folder."""
        path = folder / FILE
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} holds no {FILE}; give a folder that cellworth value wrote."
            )
        asked = cls.check_settings(read_hashed(path, FORMAT, VERSION), str(path))
        for name in _PATHS:
            if asked.get(name) is not None and not is_address(asked[name]):
                asked[name] = os.path.normpath(Path(os.path.realpath(folder), asked[name]))
        return cls(**asked)

    @classmethod
    def check_settings(cls, asked: Mapping[str, Any], called: str) -> dict[str, Any]:
        """Check the types of settings that were read from a file, where tuples are lists."""
        hints = get_type_hints(cls)
        for name, given in asked.items():
            if not _has_type(given, hints[name]):
                raise ValueError(f"{name} of {called} is {json.dumps(given, default=str)[:80]}")
        return {name: tuple(one) if isinstance(one, list) else one for name, one in asked.items()}

    def difference(self, other: RunRequest) -> str | None:
        """Return the first setting that differs and changes the values, or None."""
        one, two = asdict(self), asdict(other)
        return next((name for name in one if name not in _HOW and one[name] != two[name]), None)


def check_same_request(folder: AnyPath, request: RunRequest) -> None:
    """Check that a folder holds no run of another request."""
    if not (folder / FILE).exists():
        return
    name = RunRequest.load(folder).difference(request)
    if name is not None:
        raise ValueError(
            f"{folder} holds a run with another {name.replace('_', '-')}; give the same options, "
            "or another folder."
        )


@dataclass(frozen=True, eq=False)
class LoadedRequest:
    """A request with its files read."""

    request: RunRequest
    # What is valued.
    train: InputTable
    val: InputTable | None

    @classmethod
    def from_request(cls, request: RunRequest, draw: ValidationDraw | None = None) -> LoadedRequest:
        """Read the files of a request; draw validation rows as agreed."""
        if request.agreement is not None:
            draw = parse_agreement(request.agreement).validation
        if draw is None:
            _check_fits_shards(request)
        train, val = request.data()
        if draw is not None:
            train, val = _draw_validation(train, val, draw)
        return cls(request, train, val)

    def in_memory(self) -> LoadedRequest:
        """Return the request with its table in memory, which some commands need."""
        if not self.request.shards:
            return self
        table = self.train.X
        n_rows, n_columns = table.shape
        if n_rows * n_columns > _MAX_CELLS:
            raise ValueError(
                f"this command reads the whole table into memory, which must have at most "
                f"{_MAX_CELLS:,} cells, got {n_rows * n_columns:,}; list the lowest values with "
                "valuation.lowest(k) in Python, or value a sample of the rows."
            )
        rows, names = table.take(range(n_rows)), table.names
        X = Table(
            nw.from_native(rows.select(names.tolist()), eager_only=True), names, np.arange(n_rows)
        )
        return replace(self, train=InputTable(X, read_column(rows, table.target), X))

    def data(self, *, with_keys: bool = False) -> dict[str, Any]:
        """Return the arguments of ``fit``, except owners; or with the table as delivered."""
        is_knn = self.request.model == KNN
        X, y = (self.train.delivered if with_keys else self.train.X), self.train.y
        given: dict[str, Any] = {"X": X if is_knn else _convert_for_models(X)}
        given |= {} if y is None else {"y": y}
        if self.val is not None:
            X_val = self.val.X if is_knn else _convert_for_models(self.val.X)
            given |= {"X_val": X_val, "y_val": self.val.y}
        else:
            given["cv"] = self.request.cv
        if is_knn and self.request.game == "cells":
            n_wanted = self.request.val_rows
            # Rows of a validation file were drawn when it was read.
            is_number = isinstance(n_wanted, int) and self.val is None
            given["n_validation"] = "auto" if n_wanted is None else n_wanted if is_number else None
        # Categories may be columns of any type.
        types = dict.fromkeys(self.request.categorical, "categorical")
        return given | {"column_types": types} if types else given

    def owners(self) -> Owners | None:
        """Return the owners, if they were given."""
        if self.request.agreement is not None:
            return parse_agreement(self.request.agreement).owners_of(self.train.delivered)
        if self.request.owners is None:
            return None
        plain, X = parse_toml(self.request.owners, "--owners"), self.train.delivered
        return Owners.from_plain(plain, X, called="--owners").check_covered("--owners")

    def valuer(self, workers: int | str | None = None, runtime: Runtime | None = None) -> Any:
        """Return the unfitted valuer of the request; the runtime knows a cluster."""
        request = self.request
        valuer: Any = (_make_knn_valuer if request.model == KNN else _make_model_valuer)(request)
        if request.game == "owners":
            valuer = _make_owner_valuer(request, valuer)
        n_jobs = workers if isinstance(workers, int) else None
        return valuer.set_params(n_jobs=n_jobs, runtime=runtime)


def _draw_validation(
    table: InputTable, val: InputTable | None, draw: ValidationDraw
) -> tuple[InputTable, InputTable]:
    """Return the training rows and the validation rows of the delivered table."""
    if val is not None or table.y is None:
        reason = "the table is in shards" if val is None else "--val is given"
        raise ValueError(
            f"the agreement draws validation rows from a table in memory, but {reason}; leave it "
            "out, or amend the agreement."
        )
    train, drawn = draw.divide(table.delivered.row_ids)
    return table.keep(train), table.keep(drawn)


def parse_agreement(text: str) -> Agreement:
    """Parse the text of an agreement."""
    return Agreement.from_plain(parse_toml(text, "--agreement"), text, called="the agreement")


def check_model_trusted(request: RunRequest, model: str | None, folder: AnyPath) -> None:
    """Check that the user named the model: a folder from anyone may name code to execute."""
    if model is None and request.model != KNN:
        raise ValueError(
            f"{folder} needs the code of {request.model!r}; if you trust it, give --model "
            f"{request.model} to execute it."
        )
    if model is not None and model != request.model:
        raise ValueError(
            f"--model is {model!r}, but {folder} was made with {request.model!r}; give that one."
        )


def read_agreed_settings(text: str) -> dict[str, Any]:
    """Return the settings with which an agreement has its tables valued."""
    settings = parse_agreement(text).request
    if "target" not in settings or set(settings) - set(AGREED):
        raise ValueError(
            "the agreement does not say how a table is read; write it with cellworth agree, or "
            "value the table in Python."
        )
    # What is not in the file has the default.
    defaults = {one.name: one.default for one in fields(RunRequest) if one.name in AGREED}
    return defaults | RunRequest.check_settings(settings, "the agreement")


def check_agreement(loaded: LoadedRequest, valuer: Any) -> None:
    """Check, before the run, that table and settings are those of the agreement."""
    if loaded.request.agreement is None:
        return
    agreed = parse_agreement(loaded.request.agreement)
    val = None if loaded.val is None else loaded.val.delivered
    differences = agreed.list_differences_of_table(loaded.train.delivered, val)
    differences = differences or agreed.list_differences_of_data(valuer, **loaded.data())
    if differences:
        raise ValueError(f"the table differs from the agreement: {'; '.join(differences)}.")


def make_absolute(address: str) -> str:
    """Return a local path from the root; an address with a scheme is unchanged."""
    return address if is_address(address) else str(Path(address).absolute())


def _has_type(given: Any, kind: Any) -> bool:
    """Tell whether a value read from JSON, where tuples are lists, has the type of a setting."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_has_type(given, one) for one in arguments)
    if origin in (tuple, list):
        return isinstance(given, list) and all(_has_type(one, arguments[0]) for one in given)
    if origin is dict:
        is_dict = isinstance(given, dict)
        return is_dict and all(_has_type(one, arguments[1]) for one in given.values())
    if origin is Literal:
        return given in arguments
    # A bool is no number here.
    return type(given) in ((int, float) if kind is float else (kind,))


def _relative_to(folder: AnyPath, path: str) -> str:
    if is_address(path) or is_address(folder):
        return path
    # Links are resolved first, because ".." of a link leads elsewhere.
    parent, name = os.path.split(path)
    try:
        return os.path.relpath(Path(os.path.realpath(parent), name), os.path.realpath(folder))
    except ValueError:
        # Another drive.
        return path


def _make_knn_valuer(request: RunRequest) -> KNNValuer | ShardedKNNValuer:
    if "fits" in request.stop:
        raise ValueError("--stop fits is for models; give passes with --model knn.")
    scoring = None if request.scoring is None else check_scoring(request.scoring, "--scoring")
    return (ShardedKNNValuer if request.shards else KNNValuer)(
        request.neighbors,
        scoring=scoring,
        n_passes=cast("int | None", request.stop.get("passes")),
        stop=_make_stopping_rule(request),
        random_state=request.seed,
    )


def _make_owner_valuer(request: RunRequest, valuer: Any) -> OwnerValuer:
    if request.shards:
        raise ValueError(
            f"{request.table} is read in shards, but owners are players only of tables in memory; "
            "give --no-shards."
        )
    if "passes" in request.stop:
        raise ValueError("--stop passes is for cells; leave it out if owners are players.")
    rule = _make_stopping_rule(request)
    return OwnerValuer(valuer, score=request.score, stop=rule, random_state=request.seed)


def _check_fits_shards(request: RunRequest) -> None:
    """Check that the options are for a table in shards, before its files are read."""
    if not request.shards:
        return
    unfit = {"model": request.model != KNN, "id": request.id is not None}
    for name, given in unfit.items():
        if given:
            raise ValueError(
                f"--{name} is for tables in memory, but {request.table} is read in shards; leave "
                "it out, or give --no-shards."
            )
    if request.val is None:
        raise ValueError(
            f"{request.table} is read in shards, which needs validation rows; give --val, or "
            "--no-shards for cross-validation in memory."
        )


def _make_model_valuer(request: RunRequest) -> Any:
    unfit = {"stop passes": "passes" in request.stop, "categorical": request.categorical}
    for name, given in unfit.items():
        if given:
            raise ValueError(f"--{name} is for --model knn; leave it out for your own model.")
    model, stop = load_model(request.model), _make_stopping_rule(request)
    return ModelValuer(model, scoring=request.scoring, stop=stop, random_state=request.seed)


def _make_stopping_rule(request: RunRequest) -> StoppingRule | None:
    kinds: dict[str, Any] = {
        "fits": MaxUtilities, "time": MaxSeconds, "error": TargetStandardError
    }  # fmt: skip
    rules = [kinds[name](request.stop[name]) for name in kinds if name in request.stop]
    return functools.reduce(operator.or_, rules) if rules else None


def load_model(name: str) -> Any:
    """Import an estimator: an instance, a class or a function without arguments."""
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise ValueError(
            f"--model is {name!r}; give knn, or module:object such as mymodels:forest."
        )
    here = str(Path.cwd())
    if here not in sys.path:
        # Last, so that a local file does not hide an installed library.
        sys.path.append(here)
    try:
        found: Any = functools.reduce(getattr, path.split("."), importlib.import_module(module))
        if inspect.isclass(found) or not hasattr(found, "fit"):
            found = found()
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"--model {name!r} cannot be imported ({type(error).__name__}: {error}); give an "
            "estimator, its class or a function without arguments that returns one."
        ) from error
    if not hasattr(found, "fit"):
        raise ValueError(
            f"--model {name!r} gives a {type(found).__name__} without fit; give an estimator, its "
            "class or a function that returns one."
        )
    return found


def _convert_for_models(table: Table) -> Any:
    """Return a table as scikit-learn expects it: of pandas, or without it an array of numbers."""
    if importlib.util.find_spec("pandas"):
        return replace(table, data=nw.from_arrow(table.native, backend="pandas"))
    try:
        columns = [table.read(position).floats for position in range(len(table.names))]
        return replace(table, data=np.column_stack(columns))
    except ValueError as error:
        raise ValueError(
            f"{error} Or install pandas, so that a Pipeline can encode columns by name."
        ) from error
