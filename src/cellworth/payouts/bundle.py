"""Files of a bundle, and how a sharded table is replayed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cellworth.data.holdings import Holdings
from cellworth.data.io import local_path, read_manifest, write_atomically
from cellworth.data.text import shorten
from cellworth.payouts.allocation import Allocation
from cellworth.valuation import load
from cellworth.valuation.storage import read_parquet
from cellworth.valuation.valuation import Valuation

FORMAT = "cellworth bundle"
VERSION = 2
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    with TemporaryDirectory(dir=path.parent) as folder, write_atomically(path) as archive:
        parts = Path(folder)
        valuation.save(parts / _VALUATION)
        rows = pa.table({"line": holdings.row_lines[:]})
        pq.write_table(rows, parts / _ROWS, compression="zstd")
        (parts / _HOLDINGS).write_bytes(encode_json(serialize_holdings(holdings)))
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
        yield valuation, _read_own_holdings(Path(folder), valuation)


def read_previous(folder: str | os.PathLike[str]) -> tuple[str, dict[str, float]]:
    """Return the digest of the bundle before, and the shortfalls that it carried over."""
    path = local_path(folder, "carried")
    try:
        compare_files(path, None)
        carried = read_json(path / PAYOUT)["carried"]
    except (DifferenceError, KeyError, ValueError) as error:
        raise ValueError(
            f"carried must be the folder of a bundle as it was saved, got {path}: {error}"
        ) from error
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


def list_own_cells(valuation: Valuation, holdings: Holdings, position: int) -> dict[str, list[Any]]:
    """List the values of the cells in which one owner has a share."""
    labels, shares = valuation.column_labels, holdings.shares[:, position]
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
        found["share"] += shares[codes[held]].tolist()
    return found


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
                zip(shared.owners, shared.keys, shared.amount_intervals, strict=True)
            )
        ],
        "carried": dict(shared.carried),
        "held": str(shared.held),
        "ties": [list(tie) for tie in shared.ties],
        "unassigned": shared.unassigned,
        "baseline": _replace_nan(valuation.baseline),
    }


def _replace_nan(number: float) -> float | None:
    # JSON has no NaN.
    return None if np.isnan(number) else float(number)


def serialize_holdings(holdings: Holdings) -> dict[str, Any]:
    """Return holdings as plain values, without the line of each row."""
    return {
        "names": list(holdings.names),
        "lines": holdings.lines.tolist(),
        "claims": holdings.claims.astype(int).tolist(),
    }


def read_holdings(plain: Mapping[str, Any], row_lines: Any) -> Holdings:
    """Make holdings from the output of :func:`serialize_holdings` and the line of each row."""
    rows, lines = (np.asarray(codes, dtype=np.int32) for codes in (row_lines, plain["lines"]))
    return Holdings(tuple(plain["names"]), rows, lines, np.array(plain["claims"], dtype=bool))


def _read_own_holdings(path: Path, valuation: Valuation) -> Holdings:
    """Read the holdings of a bundle and check that they fit the valuation."""
    plain = read_json(path / _HOLDINGS)
    holdings = read_holdings(plain, read_parquet(path / _ROWS)["line"])
    # Writing them again must give the same file: no strings for numbers, no 2 for a claim.
    check_equal(serialize_holdings(holdings), plain, "the holdings")
    came = (len(holdings.row_lines), holdings.lines.shape[1])
    check_equal(valuation.shape, came, "rows and columns of the holdings")
    return holdings


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
            f"{what} should be {shorten(str(came), 200)}, but the bundle has "
            f"{shorten(str(saved), 200)}."
        )
