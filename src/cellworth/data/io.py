"""Files: atomic writes, manifests, arrays packed without pickle, and content hashes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args, get_origin, get_type_hints
from uuid import uuid4

import joblib
import numpy as np
from numpy.typing import NDArray

# s3://bucket/x, also in a chain such as simplecache::s3://bucket/x. A pathlib.Path leaves one slash
# of two. One letter is a drive of Windows, and a colon without a slash is part of a name.
_ADDRESS = re.compile(
    r"(?:[A-Za-z][\w+.-]*::)*(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>[/\\]+)(?P<rest>.*)",
    re.DOTALL,
)
Record = TypeVar("Record")
# Arrays and JSON-serializable values, by name.
Plain = dict[str, Any]
_ARRAYS = "arrays"
_REST = "rest"


def hash_json(*parts: Any) -> str:
    """Return the sha256 of JSON-serializable parts; the same on every machine."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def describe(setting: Any) -> str:
    """Return the repr of a setting; a hash is appended if the repr is incomplete."""
    text = repr(setting)
    without_address = re.sub(r" at 0x[0-9a-fA-F]+", "", text)
    # Default reprs show only an address, and those of long arrays are abbreviated.
    if isinstance(setting, np.ndarray) or without_address != text or "..." in text:
        return f"{without_address} {content_hash(setting)}"
    return text


def content_hash(thing: Any) -> str | None:
    """Hash the content of an object; None if it cannot be pickled, as a lambda."""
    try:
        return str(joblib.hash(thing))
    # Pickling an arbitrary object can raise anything.
    except Exception:
        return None


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
        raise ValueError(f"{called} {explain_address(path)}")
    local = Path(path)
    # "./s3:/x" is a local path, but pathlib drops the "./" that says so.
    return local.absolute() if is_address(local) else local


def make_folder(folder: Any, called: str) -> Path:
    """Create a local folder if it is missing; raise NotADirectoryError if it is a file."""
    path = local_path(folder, called)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{called} must be a folder, got the file {path}.")
    path.mkdir(parents=True, exist_ok=True)
    return path


def explain_address(path: str | os.PathLike[str]) -> str:
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
def write_atomically(
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
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def pack(thing: Any) -> Plain:
    """Return the fields of a dataclass by name; nested ones are ``outer.inner``."""
    plain: Plain = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if dataclasses.is_dataclass(value):
            plain |= add_prefix(field.name, pack(value))
        else:
            plain[field.name] = value
    return plain


def unpack(kind: type[Record], plain: Mapping[str, Any]) -> Record:
    """Create a dataclass from the output of :func:`pack`."""
    hints = get_type_hints(kind)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        hint = hints[field.name]
        inner = remove_prefix(field.name, plain)
        if inner:
            nested: Any = next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))))
            found[field.name] = unpack(nested, inner)
        else:
            value = plain[field.name]
            found[field.name] = tuple(value) if get_origin(hint) is tuple else value
    return kind(**found)


def add_prefix(name: str, plain: Mapping[str, Any]) -> Plain:
    """Prefix all names with ``name.``."""
    return {f"{name}.{inner}": value for inner, value in plain.items()}


def remove_prefix(name: str, plain: Mapping[str, Any]) -> Plain:
    """Return the entries with the prefix ``name.``, without it."""
    start = f"{name}."
    return {key.removeprefix(start): plain[key] for key in plain if key.startswith(start)}


def jsonable(thing: Any) -> Any:
    """Convert to JSON types: NaN and infinity become null, dates become strings."""
    if isinstance(thing, Mapping):
        return {str(name): jsonable(part) for name, part in thing.items()}
    if isinstance(thing, list | tuple):
        return [jsonable(part) for part in thing]
    if isinstance(thing, np.generic):
        return jsonable(thing.item())
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else None
    return thing if thing is None or isinstance(thing, bool | int | str) else str(thing)


def n_bytes(plain: Mapping[str, Any]) -> int:
    """Return the size of all arrays in bytes."""
    return sum(value.nbytes for value in plain.values() if isinstance(value, np.ndarray))


def write_plain(file: BinaryIO, plain: Mapping[str, Any]) -> None:
    """Write arrays and JSON values to one npz file; every member has a checksum."""
    arrays = {name: value for name, value in plain.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in plain.items() if name not in arrays}
    text = json.dumps({_ARRAYS: list(arrays), _REST: rest}, default=_as_number).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in [*arrays.items(), (_REST, np.frombuffer(text, dtype=np.uint8))]:
            with archive.open(_member(name), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


class PlainFile:
    """An npz file of arrays and JSON values, read on demand.

    Damaged files raise ValueError. Nothing is unpickled.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _open_archive(path) as archive:
            head = json.loads(_array(archive, _REST).tobytes())
            self._arrays: list[str] = head[_ARRAYS]
            self.rest: Plain = head[_REST]
            if archive.namelist() != [_member(name) for name in (*self._arrays, _REST)]:
                raise ValueError("it does not hold the arrays that it names")

    def read(self, *prefixes: str) -> list[Plain]:
        """Return the entries with each prefix."""
        asked = set(prefixes)
        found: dict[str, Plain] = {prefix: {} for prefix in prefixes}
        with _open_archive(self.path) as archive:
            for name in (*self.rest, *self._arrays):
                prefix, _, inner = name.partition(".")
                if inner and prefix in asked:
                    value = self.rest[name] if name in self.rest else _array(archive, name)
                    found[prefix][inner] = value
        return [found[prefix] for prefix in prefixes]


def _member(name: str) -> str:
    return f"{name}.npy"


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(_member(name)) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        # zipfile verifies the checksum at the end of a member; a wrong shape may stop before it.
        if member.read(1):
            raise ValueError(f"{name} is longer than its shape")
        return array


@contextmanager
def _open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except MemoryError:
            raise
        # A damaged file can raise many types of errors.
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _as_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} can not be written as JSON.")
