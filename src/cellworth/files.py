"""Files that are there as a whole or not at all, even if the machine stops at any moment."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

# Nobody writes one file for so long. Of a process that seems to be gone, less is enough; but not
# nothing, because containers may share a name and number their processes apart.
_SECONDS_TO_BE_STALE = 86_400.0
_SECONDS_TO_BE_STALE_HERE = 600.0

_TEMPORARY = re.compile(r"\.(?P<host>[^~]*)~(?P<process>\d+)~[0-9a-f]{32}~.*")


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
    temporary = path.with_name(f".{socket.gethostname()}~{os.getpid()}~{uuid4().hex}~{path.name}")
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


def remove_stale_temporaries(folder: Path) -> None:
    """Remove what processes that are gone were writing; those of others are left alone."""
    for path in folder.iterdir():
        found = _TEMPORARY.fullmatch(path.name)
        if found and _is_stale(path, found["host"], int(found["process"])):
            path.unlink(missing_ok=True)


def _is_stale(path: Path, host: str, process: int) -> bool:
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    # Elsewhere than on POSIX, asking for a process by its number is no harmless question.
    if host == socket.gethostname() and os.name == "posix":
        return age > _SECONDS_TO_BE_STALE_HERE and not _is_alive(process)
    return age > _SECONDS_TO_BE_STALE


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        # It is somebody else's.
        pass
    return True


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
