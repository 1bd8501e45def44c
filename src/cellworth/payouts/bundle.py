"""Files of a bundle, and how a sharded table is replayed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from cellworth.data.arguments import Codes
from cellworth.data.blocks import LABEL
from cellworth.data.holdings import Holdings
from cellworth.data.io import local_path, read_manifest, write_atomically
from cellworth.data.owners import Owners
from cellworth.data.sharded_table import ShardedTable
from cellworth.knn.knn_game import ShardedKNNGame
from cellworth.payouts.allocation import Allocation
from cellworth.payouts.policy import shorten
from cellworth.runtime.run_settings import choose_thread_executor
from cellworth.valuation import load
from cellworth.valuation.storage import read_parquet
from cellworth.valuation.valuation import Valuation

FORMAT = "cellworth bundle"
VERSION = 1
MANIFEST = "manifest.json"
PAYOUT = "payout.json"
AGREEMENT = "agreement.toml"
# The valuation and who holds its blocks, in one archive.
VALUES = "values.zip"
_VALUATION = "valuation"
_HOLDINGS = "holdings.json"
_ROWS = "holdings.parquet"
# The time of every file in an archive, which would otherwise change its hash.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_CLOCKS_DIFFER = timedelta(minutes=10)


class DifferenceError(Exception):
    """The first difference between a bundle and its replay."""


def write_bundle(
    folder: str | os.PathLike[str],
    *,
    valuation: Valuation,
    holdings: Holdings,
    payout: Mapping[str, Any],
    agreement: str | None,
) -> str:
    """Write a payout, its valuation, holdings and agreement; return the digest."""
    path = local_path(folder, "folder")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"folder must be new or empty, got {path}; give another one.")
    path.mkdir(parents=True, exist_ok=True)
    _write_values(path / VALUES, valuation, holdings)
    _write(path / PAYOUT, encode_json(payout))
    if agreement is not None:
        _write(path / AGREEMENT, agreement.encode())
    _write(path / MANIFEST, make_manifest(hash_files(path)))
    return compute_digest(path)


def _write_values(path: Path, valuation: Valuation, holdings: Holdings) -> None:
    """Write a valuation and its holdings as one archive; equal ones give equal bytes."""
    with TemporaryDirectory(dir=path.parent) as folder, write_atomically(path) as archive:
        parts = Path(folder)
        valuation.save(parts / _VALUATION)
        _write(parts / _ROWS, _encode_parquet({"line": holdings.row_lines[:]}))
        _write(parts / _HOLDINGS, encode_json(_serialize_holdings(holdings)))
        with zipfile.ZipFile(archive, "w") as packed:
            for file in sorted(one for one in parts.rglob("*") if one.is_file()):
                info = zipfile.ZipInfo(file.relative_to(parts).as_posix(), _NO_TIME)
                with file.open("rb") as opened, packed.open(info, "w", force_zip64=True) as into:
                    shutil.copyfileobj(opened, into)


@contextmanager
def open_values(path: Path) -> Iterator[tuple[Valuation, Holdings]]:
    """Give the valuation and the holdings of a bundle; a sharded one is gone afterwards."""
    with TemporaryDirectory() as folder, zipfile.ZipFile(path / VALUES) as packed:
        # Names that lead out of the folder are changed by extractall.
        packed.extractall(folder)
        valuation = load(Path(folder, _VALUATION))
        yield valuation, _read_holdings(Path(folder), valuation)


def read_previous(folder: str | os.PathLike[str]) -> tuple[str, dict[str, float]]:
    """Return the digest of the bundle before, and the shortfalls that it carried over."""
    path = local_path(folder, "carried")
    if not (path / PAYOUT).is_file():
        raise FileNotFoundError(
            f"carried must be the folder of a bundle or a mapping, got {path}; give the folder "
            "that payout.save wrote."
        )
    try:
        compare_files(path, None)
        carried = read_json(path / PAYOUT)["carried"]
    except (DifferenceError, KeyError, ValueError) as error:
        raise ValueError(f"{path} was changed after it was saved: {error}") from error
    return compute_digest(path), carried


def compare_files(path: Path, digest: str | None) -> None:
    """Compare all files with the manifest, and the manifest with a digest."""
    if not (path / MANIFEST).is_file():
        raise DifferenceError(f"{MANIFEST} is missing.")
    manifest = read_manifest(path / MANIFEST, FORMAT, VERSION)
    named, there = manifest["files"], hash_files(path)
    for name in sorted(set(named) | set(there)):
        if name not in there:
            raise DifferenceError(f"{name} is missing.")
        if name not in named:
            raise DifferenceError(f"{name} was added after the bundle was saved.")
        if named[name] != there[name]:
            raise DifferenceError(f"{name} is not the file that was saved (its sha256 differs).")
    if (path / MANIFEST).read_bytes() != make_manifest(there):
        raise DifferenceError(f"{MANIFEST} was changed after it was written.")
    if digest is not None and digest != compute_digest(path):
        raise DifferenceError(f"the digest is {compute_digest(path)}, but {digest} was given.")


def read_time(text: Any) -> datetime:
    """Return the time of a bundle; raise DifferenceError unless it is one, and not to come."""
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise DifferenceError(f"the time {shorten(text)} is not a time.") from None
    if time.tzinfo is None or time.isoformat() != text:
        raise DifferenceError(f"the time {shorten(text)} has no zone or is not written in full.")
    if time > datetime.now(UTC) + _CLOCKS_DIFFER:
        raise DifferenceError(f"the time {text} is still to come.")
    return time


def list_own_cells(valuation: Valuation, holdings: Holdings, position: int) -> dict[str, list[Any]]:
    """List the values of the cells in which one owner has a share."""
    n_claims, labels = holdings.claims.sum(axis=1), valuation.column_labels
    found: dict[str, list[Any]] = {
        name: [] for name in ("row", "column", "value", "sampling_se", "share")
    }
    for chunk in valuation.iter_rows():
        codes = holdings.codes(chunk.rows)
        held = holdings.claims[:, position][codes]
        rows, columns = np.nonzero(held)
        found["row"] += valuation.blocks.rows.some_labels(chunk.rows)[rows].tolist()
        found["column"] += labels[columns].tolist()
        found["value"] += chunk.values[held].tolist()
        found["sampling_se"] += chunk.sampling_se[held].tolist()
        found["share"] += (1.0 / n_claims[codes[held]]).tolist()
    return found


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
                "interval": None if interval is None else list(map(str, interval)),
            }
            for i, (name, key, interval) in enumerate(
                zip(shared.owners, shared.keys, shared.intervals, strict=True)
            )
        ],
        "errors_are_bounds": errors.bounded,
        "carried": dict(shared.carried),
        "held": str(shared.held),
        "ties": [list(tie) for tie in shared.ties],
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


def _read_holdings(path: Path, valuation: Valuation) -> Holdings:
    """Read the holdings and check that they fit the valuation."""
    plain = read_json(path / _HOLDINGS)
    rows = read_parquet(path / _ROWS)["line"].to_numpy().astype(np.int32)
    lines = np.array(plain["lines"], dtype=np.int32)
    claims = np.array(plain["claims"], dtype=bool)
    holdings = Holdings(tuple(plain["names"]), rows, lines, claims)
    # Writing them again must give the same file: no strings for numbers, no 2 for a claim.
    check_equal(_serialize_holdings(holdings), plain, "the holdings")
    names, (n_rows, n_columns) = holdings.names, valuation.shape
    fits = (
        len(set(names)) == len(names) > 0
        and all(isinstance(name, str) for name in names)
        and claims.shape == (len(claims), len(names))
        and len(rows) == n_rows
        and lines.shape == (len(lines), n_columns)
        and _are_below(lines, len(claims))
        and _are_below(rows, len(lines))
    )
    if not fits:
        raise DifferenceError(f"{_HOLDINGS} and {_ROWS} do not match each other or the valuation.")
    return holdings


def _are_below(codes: Codes, most: int) -> bool:
    return bool(codes.size and codes.min() >= 0 and codes.max() < most)


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
    return encode_json({"format": FORMAT, "version": VERSION, "files": files})


def compute_digest(path: Path) -> str:
    """Return the hash of the manifest, which holds the hashes of all files."""
    return hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()


def round_trip_json(plain: Any) -> Any:
    """Return plain values as JSON restores them."""
    return json.loads(json.dumps(plain))


def encode_json(plain: Mapping[str, Any]) -> bytes:
    """Return the one way in which a JSON file is written."""
    return json.dumps(plain, indent=1).encode()


def read_json(path: Path) -> Any:
    """Read a JSON file that must be exactly as written, without duplicate keys."""
    content = path.read_bytes()
    plain = json.loads(content)
    if not isinstance(plain, dict) or encode_json(plain) != content:
        raise DifferenceError(f"{path.name} was changed after it was written.")
    return plain


def _write(path: Path, content: bytes) -> None:
    with write_atomically(path) as file:
        file.write(content)


def check_equal(came: Any, saved: Any, what: str) -> None:
    """Raise DifferenceError unless both are equal."""
    if came != saved:
        raise DifferenceError(
            f"{what} should be {shorten(came)}, but the bundle has {shorten(saved)}."
        )


def compare_sharded_data(data: Mapping[str, Any], valuation: Valuation) -> ShardedTable:
    """Compare hashes of all shards, read once; return the table whose columns were valued."""
    problem_spec = valuation.provenance.problem_spec
    saved = problem_spec["data_sha256"]
    if "table" not in saved:
        raise DifferenceError("X is a sharded table, but a table in memory was valued.")
    game = ShardedKNNGame.from_table(
        data["X"],
        data.get("X_val"),
        data.get("y_val"),
        # Rows within a radius have no number.
        n_neighbors=problem_spec["n_neighbors"] or 1,
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
    return cast("ShardedTable", data["X"])


def restore_sharded_owners(table: ShardedTable, holdings: Holdings, valuation: Valuation) -> Owners:
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
