"""Folders and files that cellworth writes: their formats, and a result with its request."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import uuid4

from cellworth.cli.request import FILE, KNN, LoadedRequest, RunRequest
from cellworth.data.io import AnyPath, RemotePath, read_json, write_atomically
from cellworth.data.owners import are_players
from cellworth.data.text import write_csv
from cellworth.payouts import bundle
from cellworth.runtime import checkpoint
from cellworth.valuation import load, storage
from cellworth.valuation.valuation import Valuation

VALUATION, CHECKPOINT, BUNDLE = storage.FORMAT, checkpoint.FORMAT, bundle.FORMAT

_MANIFEST = "manifest.json"
LIST_FORMATS = (".csv", ".parquet", ".json")
RUN = "run"


@dataclass(frozen=True, eq=False)
class Result:
    """A valuation and its request."""

    valuation: Valuation
    request: RunRequest

    @classmethod
    def load(
        cls,
        folder: AnyPath,
        *,
        table: str | None = None,
        val: str | None = None,
        of_owners: bool = False,
    ) -> Result:
        """Read a folder that ``cellworth value`` wrote; values of owners only if allowed."""
        if get_folder_format(folder) != VALUATION:
            raise ValueError(f"{folder} holds no values; give a folder that cellworth value wrote.")
        if not (folder / FILE).exists():
            raise FileNotFoundError(
                f"{folder} holds values but no {FILE} with their settings; value the table again "
                f"with --force, or use them in Python: cellworth.load({str(folder)!r})."
            )
        valuation = load(folder)
        if are_players(valuation.blocks) and not of_owners:
            raise ValueError(
                f"{folder} holds values of owners, not of cells; give a folder of cellworth value "
                "--game cells."
            )
        return cls(valuation, RunRequest.load(folder).with_paths(table, val))

    @cached_property
    def loaded(self) -> LoadedRequest:
        """The request with its files, which must be those that were valued."""
        loaded = LoadedRequest.from_request(self.request)
        if self.request.shards:
            # The hash of all files was compared; that of the cells would read all of them.
            return loaded
        valued = self.valuation.provenance.problem_spec.get("data_sha256", {}).get("X")
        given = loaded.data()["X"]
        if valued not in (None, given.sha256()):
            raise ValueError(
                f"the values are not those of {self.request.table}, the table in {FILE} (the "
                "sha256 of the cells differs); value the table again with --force."
            )
        return loaded


def save_result(valuation: Valuation, request: RunRequest, folder: AnyPath) -> None:
    """Write values and their request."""
    # First of all: a killed process must not leave values with the request of others.
    (folder / FILE).unlink(missing_ok=True)
    valuation.save(folder)
    request.save(folder)


def get_folder_format(folder: AnyPath) -> str | None:
    """Return the format in the manifest of a folder; None without a manifest."""
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; give a folder that cellworth wrote.")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; give a folder that cellworth wrote.")
    manifest = read_folder_manifest(find_run(folder))
    return None if manifest is None else str(manifest.get("format"))


def find_run(folder: AnyPath) -> AnyPath:
    """Return the folder with the manifest: a run over shards keeps it in a subfolder."""
    return folder if (folder / _MANIFEST).is_file() else folder / RUN


def read_folder_manifest(folder: AnyPath) -> dict[str, Any] | None:
    """Read the manifest of a folder of any format."""
    path = folder / _MANIFEST
    if not path.is_file():
        return None
    manifest = read_json(path)
    return manifest if isinstance(manifest, dict) else None


def is_free(folder: AnyPath) -> bool:
    """Tell whether a folder is absent or empty."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def make_resume_line(folder: AnyPath, model: str) -> str:
    """Return the command that resumes a run."""
    again = "" if model == KNN else f" --model {shlex.quote(model)}"
    return f"cellworth resume {shlex.quote(str(folder))}{again}"


def check_output_folder(folder: AnyPath, *, force: bool, request: RunRequest | None = None) -> None:
    """Check that a folder is free, or holds a result: any with ``force``, else of the request."""
    check_writable(folder)
    if is_free(folder):
        return
    if get_folder_format(folder) != VALUATION:
        raise FileExistsError(f"{folder} holds other files; give a new folder as -o.")
    same = (
        request is not None
        and (folder / FILE).exists()
        and RunRequest.load(folder).difference(request) is None
    )
    if not force and not same:
        raise FileExistsError(
            f"{folder} holds a result already; give --force to replace it, or another folder as -o."
        )


def check_output_file(path: AnyPath | None, *, force: bool) -> None:
    """Check that an output file does not exist, unless ``force``, and can be written."""
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; give --force to replace it.")
    folder = path.absolute().parent
    if not isinstance(folder, RemotePath) and not folder.exists():
        raise FileNotFoundError(f"{path} is in a folder that does not exist; create it first.")
    check_writable(folder)


def check_list_file(
    output: AnyPath | None, endings: tuple[str, ...], *, force: bool, option: str = "-o"
) -> None:
    """Check that a file of a list can be written, and that its format is known."""
    check_output_file(output, force=force)
    if output is not None and output.suffix not in endings:
        listed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise ValueError(f"{option} is {output}; give a file that ends in {listed}.")


def check_writable(folder: AnyPath) -> None:
    """Check, before anything is computed, that a folder can be created or written to."""
    if isinstance(folder, RemotePath):
        probe = folder / f".probe-{uuid4().hex}"
        with write_atomically(probe):
            pass
        probe.unlink(missing_ok=True)
        return
    at = folder.absolute()
    there = next(path for path in (at, *at.parents) if path.exists())
    if not there.is_dir():
        what = "is a file" if there == at else f"lies under {there}, which is a file"
        raise NotADirectoryError(f"{folder} {what}; give the name of a folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{there} is not writable; give another path as -o.")


def write_list(path: AnyPath, lines: Any, plain: Any) -> None:
    """Write an Arrow table to a .csv or .parquet file, or plain data to a .json file."""
    with write_atomically(path) as file:
        if path.suffix == ".json":
            file.write(json.dumps(plain, indent=1, ensure_ascii=False).encode())
        elif path.suffix == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(lines, file)
        else:
            write_csv(lines, file)
