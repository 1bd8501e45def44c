"""Files of an audit, and how a sharded table is replayed."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cellworth.data.arguments import Codes, is_integer
from cellworth.data.blocks import LABEL
from cellworth.data.holdings import Holdings
from cellworth.data.io import local_path, write_atomically
from cellworth.data.owners import Owners
from cellworth.data.tables import AbsentTable
from cellworth.knn.knn_game import ShardedKNNGame
from cellworth.payouts.allocation import Allocation
from cellworth.payouts.policy import shorten
from cellworth.runtime.executors import choose_thread_executor
from cellworth.valuation.storage import read_parquet
from cellworth.valuation.valuation import RowChunk, Valuation

FORMAT = "cellworth audit"
VERSION = 1
MANIFEST = "manifest.json"
VALUATION = "valuation"
_HOLDINGS = "holdings.json"
_ROWS = "holdings.parquet"
PAYOUT = "payout.json"
AGREEMENT = "agreement.toml"
UTILITIES = "utilities.parquet"


class DifferenceError(Exception):
    """The first difference between an audit and its replay."""


def write_bundle(
    folder: str | os.PathLike[str],
    *,
    valuation: Valuation,
    holdings: Holdings,
    labels: Mapping[str, int],
    payout: Mapping[str, Any],
    agreement: str | None,
    utilities: Any,
) -> str:
    """Write a payout, its valuation, holdings and agreement; return the digest."""
    log = None if utilities is None else _list_utilities(utilities)
    path = local_path(folder, "folder")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"folder must be new or empty, got {path}; give another one.")
    path.mkdir(parents=True, exist_ok=True)
    valuation.save(path / VALUATION)
    _write(path / _ROWS, _encode_parquet({"line": holdings.row_lines[:]}))
    held = _serialize_holdings(holdings) | {"labels": dict(labels)}
    _write(path / _HOLDINGS, _encode_json(held))
    _write(path / PAYOUT, _encode_json(payout))
    if agreement is not None:
        _write(path / AGREEMENT, agreement.encode())
    if log is not None:
        _write(path / UTILITIES, _encode_parquet(log))
    _write(path / MANIFEST, make_manifest(hash_files(path)))
    return compute_digest(path)


def serialize_provenance(valuation: Valuation) -> dict[str, Any]:
    """Return data hashes, seeds and versions of the run."""
    provenance = valuation.provenance
    return {
        "data_sha256": provenance.problem_spec.get("data_sha256"),
        "seeds": [session.seed for session in provenance.sessions],
        "versions": dict(provenance.versions),
    }


def serialize_allocation(shared: Allocation, valuation: Valuation) -> dict[str, Any]:
    """Return the allocation as plain values."""
    errors = shared.errors
    validation = errors.validation
    return {
        "owners": [
            {
                "name": name,
                "holds": key,
                "value": float(shared.values[i]),
                "sampling_se": _replace_nan(errors.sampling[i]),
                "validation_se": None if validation is None else _replace_nan(validation[i]),
                "amount": str(shared.amounts[i]),
            }
            for i, (name, key) in enumerate(zip(shared.owners, shared.keys, strict=True))
        ],
        "errors_are_bounds": errors.bounded,
        "carried": dict(shared.carried),
        "unassigned": shared.unassigned,
        "baseline": _replace_nan(valuation.baseline),
    }


def _replace_nan(number: float) -> float | None:
    # JSON has no NaN.
    return None if np.isnan(number) else float(number)


def _serialize_holdings(holdings: Holdings) -> dict[str, Any]:
    return {
        "names": list(holdings.names),
        "lines": holdings.lines.tolist(),
        "claims": holdings.claims.astype(int).tolist(),
    }


def read_holdings(path: Path, valuation: Valuation) -> tuple[Holdings, dict[str, int]]:
    """Read the holdings and check that they fit the valuation."""
    plain = read_json(path / _HOLDINGS)
    rows = read_parquet(path / _ROWS)["line"].to_numpy().astype(np.int32)
    lines = np.array(plain["lines"], dtype=np.int32)
    claims = np.array(plain["claims"], dtype=bool)
    holdings, labels = Holdings(tuple(plain["names"]), rows, lines, claims), plain["labels"]
    # Writing them again must give the same file: no strings for numbers, no 2 for a claim.
    check_equal(_serialize_holdings(holdings) | {"labels": labels}, plain, "the holdings")
    _check_holdings(holdings, labels, valuation)
    return holdings, labels


def _check_holdings(holdings: Holdings, labels: Any, valuation: Valuation) -> None:
    names, lines, claims = holdings.names, holdings.lines, holdings.claims
    n_rows, n_columns = valuation.shape
    fits = (
        len(set(names)) == len(names) > 0
        and all(isinstance(name, str) for name in names)
        and claims.shape == (len(claims), len(names))
        and len(holdings.row_lines) == n_rows
        and lines.shape == (len(lines), n_columns)
        and _are_below(lines, len(claims))
        and _are_below(holdings.row_lines[:], len(lines))
        and isinstance(labels, dict)
        and all(name in names and is_integer(n) and n > 0 for name, n in labels.items())
    )
    if not fits:
        raise DifferenceError(f"{_HOLDINGS} and {_ROWS} do not match each other or the valuation.")


def _are_below(codes: Codes, most: int) -> bool:
    return bool(codes.size and codes.min() >= 0 and codes.max() < most)


def _list_utilities(utilities: Any) -> dict[str, Any]:
    """Return utilities by coalition, in the order of the cache."""
    if not callable(getattr(utilities, "entries", None)):
        raise TypeError(
            "utilities must be the FileCache or MemoryCache of the valuer, got "
            f"{shorten(repr(utilities))}."
        )
    entries = list(utilities.entries())
    names = ("game", "coalition", "utility")
    return {name: [entry[position] for entry in entries] for position, name in enumerate(names)}


def _encode_parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink, compression="zstd")
    return sink.getvalue()


def hash_files(path: Path) -> dict[str, str]:
    """Return the hash of every file except the manifest; raise an error for links."""
    found = {}
    for file in path.rglob("*"):
        name = file.relative_to(path).as_posix()
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            raise DifferenceError(f"{name} is a link or a device, not a file.")
        if file.is_file() and name != MANIFEST:
            with file.open("rb") as opened:
                found[name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return dict(sorted(found.items()))


def make_manifest(files: Mapping[str, str]) -> bytes:
    """Return the content of the manifest for these files."""
    return _encode_json({"format": FORMAT, "version": VERSION, "files": files})


def compute_digest(path: Path) -> str:
    """Return the hash of the manifest, which holds the hashes of all files."""
    return hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()


def round_trip_json(plain: Any) -> Any:
    """Return plain values as JSON restores them."""
    return json.loads(json.dumps(plain))


def _encode_json(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, indent=1).encode()


def read_json(path: Path) -> Any:
    """Read a JSON file that must be exactly as written, without duplicate keys."""
    content = path.read_bytes()
    plain = json.loads(content)
    if not isinstance(plain, dict) or _encode_json(plain) != content:
        raise DifferenceError(f"{path.name} was changed after it was written.")
    return plain


def _write(path: Path, content: bytes) -> None:
    with write_atomically(path) as file:
        file.write(content)


def check_equal(came: Any, saved: Any, what: str) -> None:
    """Raise DifferenceError unless both are equal."""
    if came != saved:
        raise DifferenceError(
            f"{what} should be {shorten(came)}, but the audit has {shorten(saved)}."
        )


def compare_sharded_data(data: Mapping[str, Any], valuation: Valuation) -> AbsentTable:
    """Compare hashes of all shards, read once; return the table whose columns were valued."""
    problem_spec = valuation.provenance.problem_spec
    saved = problem_spec["data_sha256"]
    if "table" not in saved:
        raise DifferenceError("X is a sharded table, but a table in memory was valued.")
    game = ShardedKNNGame.of(
        data["X"],
        data.get("X_val"),
        data.get("y_val"),
        n_neighbors=problem_spec["n_neighbors"],
        scoring=problem_spec["scoring"],
        scale=problem_spec["scale"],
        # The problem spec holds column types in quotes.
        column_types={name: kind.strip("'") for name, kind in problem_spec["column_types"].items()},
        empty=problem_spec["empty"],
        column_groups=data.get("column_groups"),
        executor=choose_thread_executor(),
        show_progress=False,
    )
    came = game.problem_spec()["data_sha256"]
    if came["table"] != saved["table"]:
        raise DifferenceError(
            "X is not the table that was valued, or has other shards (its sha256 differs)."
        )
    for name in ("validation", "columns"):
        if came[name] != saved[name]:
            raise DifferenceError(f"{name} is not the data that was valued (its sha256 differs).")
    check_equal(game.shape[0], valuation.shape[0], "the number of rows")
    return AbsentTable(data["X"])


def restore_sharded_owners(table: AbsentTable, holdings: Holdings, valuation: Valuation) -> Owners:
    """Restore the owners of a sharded table from the holdings of its blocks."""
    owners = Owners(table, overlaps="equal")
    lines = holdings.lines[:, valuation.blocks.columns.codes]
    names = np.append(table.names.astype(object), LABEL)
    for position, name in enumerate(holdings.names):
        held = holdings.claims[:, position][lines]
        for columns in np.unique(held[held.any(axis=1)], axis=0):
            rows = (held == columns).all(axis=1)[holdings.row_lines[:]]
            if rows.any():
                mine = names[: len(columns)][columns].tolist()
                owners = owners.assign(name, rows=rows, columns=mine)
        if name not in owners.names:
            # An owner of labels only, which were not valued.
            owners = owners.assign(name, columns=[LABEL])
    return owners


def compare_sharded_values(valuation: Valuation, again: Valuation) -> None:
    """Compare all values and errors bit for bit, some rows at a time."""
    for then, now in zip(valuation.iter_rows(), again.iter_rows(), strict=True):
        _compare_rows(then, now, valuation)
    for name in ("values", "sampling_se", "validation_se"):
        now, then = (getattr(one.columns(), name) for one in (again, valuation))
        if (now is None) != (then is None) or (now is not None and not _are_equal(now, then)):
            raise DifferenceError(f"{name} of columns differ when they are recomputed.")
    for name in ("total", "total_error"):
        now, then = (getattr(one, name) for one in (again, valuation))
        if not _are_equal(now, then):
            check_equal(now, then, f"{name} of the valuation")


def _compare_rows(then: RowChunk, now: RowChunk, valuation: Valuation) -> None:
    for name in ("values", "sampling_se", "validation_se"):
        new, old = getattr(now, name), getattr(then, name)
        if (new is None) != (old is None):
            raise DifferenceError(f"{name} of cells are known only in one of two computations.")
        if new is not None and not _are_equal(new, old):
            i, j = np.argwhere((new != old) & ~(np.isnan(new) & np.isnan(old)))[0]
            raise DifferenceError(
                f"{name.replace('_', ' ')} differ when they are recomputed, the first at "
                f"({then.rows.start + i}, {valuation.column_labels[j]}): {new[i, j]!r}, but "
                f"{old[i, j]!r} was saved."
            )


def _are_equal(now: Any, then: Any) -> bool:
    return np.array_equal(now, then, equal_nan=True)
