"""Folders: what lies in one, what may be written to one, and a result with its question."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cellworth.cli.requests import FILE, Request
from cellworth.cli.valuing import Question
from cellworth.valuation import Valuation

VALUATION = "cellworth valuation"
CHECKPOINT = "cellworth checkpoint"
AUDIT = "cellworth audit"

_MANIFEST = "manifest.json"


@dataclass(frozen=True, eq=False)
class Result:
    """A valuation, and the question that it answers.

    Parameters
    ----------
    valuation : Valuation
    request : Request
    """

    valuation: Valuation
    request: Request

    @classmethod
    def load(cls, folder: Path, *, table: Path | None = None, val: Path | None = None) -> Result:
        """Read a folder that ``cellworth value`` wrote."""
        if kind_of(folder) != VALUATION:
            raise ValueError(f"{folder} holds no values; give a folder that cellworth value wrote.")
        return cls(Valuation.load(folder), Request.load(folder).moved(table, val))

    @cached_property
    def question(self) -> Question:
        """The question with its files read."""
        return Question.of(self.request)


def kind_of(folder: Path) -> str | None:
    """What a folder says that it holds; None if it does not say."""
    if not folder.exists():
        raise FileNotFoundError(f"{folder} is not there; give a folder that cellworth wrote.")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; give a folder that cellworth wrote.")
    manifest = read_manifest_of(folder)
    return None if manifest is None else str(manifest.get("format"))


def read_manifest_of(folder: Path) -> dict[str, Any] | None:
    """Read the manifest of a folder, whatever it describes."""
    path = folder / _MANIFEST
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); restore it from a copy.") from error
    return manifest if isinstance(manifest, dict) else None


def refuse_to_overwrite(folder: Path, *, force: bool, request: Request | None = None) -> None:
    """Refuse to write where something lies, but for a result that may be replaced.

    That is any result with ``force``, and the answer to the same request without.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if kind_of(folder) != VALUATION:
        raise FileExistsError(f"{folder} holds other files; give a new folder as -o.")
    same = (
        request is not None
        and (folder / FILE).exists()
        and Request.load(folder).difference(request) is None
    )
    if not force and not same:
        raise FileExistsError(
            f"{folder} holds a result already; give --force to replace it, or another folder as -o."
        )


def refuse_file(path: Path | None, *, force: bool) -> None:
    """Refuse to write over a file of the user's."""
    if path is not None and path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if path is not None and path.exists() and not force:
        raise FileExistsError(f"{path} is there already; give --force to replace it.")
