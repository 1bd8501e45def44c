"""Atomic file writes, local paths, and our own JSON files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

# s3://bucket/x, also in a chain such as simplecache::s3://bucket/x. A pathlib.Path leaves one slash
# of two. One letter is a drive of Windows, and a colon without a slash is part of a name.
_ADDRESS = re.compile(
    r"(?:[A-Za-z][\w+.-]*::)*(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>[/\\]+)(?P<rest>.*)",
    re.DOTALL,
)


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has a scheme, such as ``s3://bucket/x``."""
    # fspath() of some remote path objects is the name of a local copy.
    return any(_ADDRESS.match(text) for text in (os.fspath(path), str(path)))


def local_path(path: Any, called: str) -> Path:
    """Return a local Path; raise ValueError for an address with a scheme."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise TypeError(
            f"{called} must be a path, got {repr(path)[:80]}; give text or a pathlib.Path."
        )
    if is_address(path):
        raise ValueError(f"{called} {address_refused(path)}")
    local = Path(path)
    # "./s3:/x" is a local path, but pathlib drops the "./" that says so.
    return local.absolute() if is_address(local) else local


def address_refused(path: str | os.PathLike[str]) -> str:
    """Return the error message for an address given as a local path."""
    text = os.fspath(path)
    found = _ADDRESS.match(text) or _ADDRESS.match(str(path))
    assert found is not None  # noqa: S101 (asked only of addresses)
    if found["scheme"].lower() in ("file", "local"):
        way = f"give the plain path, {'/' if len(found['slashes']) != 2 else ''}{found['rest']}."
    else:
        way = (
            "give a local file or folder, and copy it to or from "
            f"{found['scheme']}:// with a tool of that store."
        )
    return f"must be a local path, got {str(path)!r}; {way}"


@contextmanager
def written_atomically(
    path: Path,
    *,
    replacing: bool = True,
    durable: bool = True,
    named: Callable[[], str] | None = None,
) -> Iterator[BinaryIO]:
    """Yield a temporary file that is renamed to ``path`` once it is complete.

    Without ``replacing``, an existing file raises FileExistsError. Without ``durable`` the file
    survives a killed process but not a crash of the machine. ``named`` returns the final name
    after writing, if it depends on the content.
    """
    temporary = path.with_name(f".{uuid4().hex}~{path.name}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        path = path if named is None else path.with_name(named())
        if replacing:
            os.replace(temporary, path)
        else:
            _name_first(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        _sync_folder(path.parent)


def _name_first(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # Without hard links, two writers at the same moment are not detected.
        if path.exists():
            raise FileExistsError(path) from None
        os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """Read a JSON file that cellworth wrote; raise ValueError if it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); restore it from a copy.") from error


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON file and check its format and version."""
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != kind:
        raise ValueError(f"{path} does not describe a {kind}; give another folder.")
    if manifest.get("version") != version:
        raise ValueError(
            f"{path} was written in format version {manifest.get('version')!r}, but this cellworth "
            f"reads version {version}; use the cellworth that wrote it."
        )
    return manifest


def _sync_folder(folder: Path) -> None:
    """Sync a folder to disk, if the file system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
