"""Files that are there as a whole or not at all, even if the machine stops at any moment."""

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
    """Tell an address with a scheme, such as ``s3://bucket/x``, from the path of a local file."""
    # Paths of some libraries stand for a remote file, but give the name of a local copy.
    return any(_ADDRESS.match(text) for text in (os.fspath(path), str(path)))


def local_path(path: Any, called: str) -> Path:
    """Return a path on this machine; an address with a scheme is refused with a sentence."""
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
    """Say why an address is refused where a local path is expected, and what to do."""
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
    """Give a file to write to, which takes its name once it is safely on disk.

    Without ``replacing``, a file that has the name by then raises FileExistsError. One that is not
    ``durable`` is whole even if its writer is killed, but not if the machine stops. ``named`` is
    asked for another name beside ``path`` when all is written: what was written may decide it.
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
        # Not every file system has links; there, two at the same moment are not told apart.
        if path.exists():
            raise FileExistsError(path) from None
        os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """Read a JSON file that we wrote; one that was damaged is refused with a sentence."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); restore it from a copy.") from error


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON file that says of itself what it describes, and in which version."""
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
    """Have the new name itself on disk, where folders can be synced."""
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
