"""Files, local or in object stores: atomic writes, manifests, arrays without pickle, hashes."""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import io
import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast, get_args, get_origin, get_type_hints
from uuid import uuid4

import joblib
import numpy as np
from numpy.typing import NDArray

from cellworth.data.text import format_bytes

# s3://bucket/x, also in a chain such as simplecache::s3://bucket/x. A pathlib.Path leaves one slash
# of two. One letter is a drive of Windows, and a colon without a slash is part of a name.
_ADDRESS = re.compile(
    r"(?:[A-Za-z][\w+.-]*::)*(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>[/\\]+)(?P<rest>.*)",
    re.DOTALL,
)
Record = TypeVar("Record")
# Arrays and JSON-serializable values, by name.
Plain = dict[str, Any]
_HEAD = ("format", "version", "sha256")
_ARRAYS = "arrays"
_REST = "rest"
# Options of fsspec, such as keys. They are neither printed nor written to files.
Options = Mapping[str, Any]
_LOCAL = ("file", "local")
# Remote files of so many bytes are read and written as a whole; larger ones in blocks.
_SMALL = 2**24
# Attempts at an array while other threads parse.
_MAX_READS = 10


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
    """Return a local Path; raise ValueError for an address other than ``file://``."""
    scheme = str(path).partition(":")[0]
    if isinstance(path, str | os.PathLike) and is_address(path) and scheme.lower() not in _LOCAL:
        raise ValueError(
            f"{called} must be a local path, got {str(path)!r}; give a local file or folder, and "
            f"copy it to or from {scheme}:// with a tool of that store."
        )
    return cast("Path", to_path(path, called))


def to_path(path: Any, called: str, options: Options | None = None) -> AnyPath:
    """Return a local Path, also for ``file://``, or a RemotePath for another address."""
    if isinstance(path, RemotePath):
        return path
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise TypeError(
            f"{called} must be a path, got {repr(path)[:80]}; give text or a pathlib.Path."
        )
    text = os.fspath(path)
    found = _ADDRESS.match(text) or _ADDRESS.match(str(path))
    if found is None:
        local = Path(path)
        # "./s3:/x" is a local path, but pathlib drops the "./" that says so.
        return local.absolute() if is_address(local) else local
    scheme, slashes, rest = found.group("scheme", "slashes", "rest")
    if "::" in found[0]:
        raise ValueError(
            f"{called} must be the address of one store, got {found[0]!r}; leave out the part "
            "before '::'."
        )
    if scheme.lower() in _LOCAL:
        return Path(f"{'' if len(slashes) == 2 else '/'}{rest}")
    # A pathlib.Path has dropped one of two slashes.
    return RemotePath(f"{scheme}:{max('//', slashes, key=len)}{rest}", options)


def make_folder(folder: Any, called: str, options: Options | None = None) -> AnyPath:
    """Create a folder if it is missing; raise NotADirectoryError if it is a file."""
    path = to_path(folder, called, options)
    if path.is_file():
        raise NotADirectoryError(f"{called} must be a folder, got the file {path}.")
    path.mkdir(parents=True, exist_ok=True)
    return path


class RemotePath:
    """A file or folder in an object store: what cellworth uses of ``pathlib.Path``.

    A write makes the whole object visible in one step; there is neither sync nor an atomic rename.
    Folders exist as long as they hold files. Options are pickled, and never shown.
    """

    def __init__(
        self, address: str, options: Options | None = None, filesystem: Any = None
    ) -> None:
        self._address: str = address.rstrip("/")
        self._options: dict[str, Any] = dict(options or {})
        # Opened once in a process, and shared by all paths below.
        self.filesystem: Any = filesystem or _open_filesystem(self._address, self._options)
        self._path: str = self.filesystem._strip_protocol(self._address)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the address and the options; the other process opens the store itself."""
        return RemotePath, (self._address, self._options)

    def __str__(self) -> str:
        return self._address

    # Paths of both kinds are given in the same way.
    __fspath__ = __str__
    as_posix = __str__

    def __repr__(self) -> str:
        return f"RemotePath({self._address!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and other._address == self._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __truediv__(self, name: str) -> RemotePath:
        """Return the path of a file or folder in this folder."""
        return self._at(f"{self._address}/{name}")

    def _at(self, address: str) -> RemotePath:
        return RemotePath(address, self._options, self.filesystem)

    @property
    def name(self) -> str:
        """Last part of the address."""
        return self._address.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """End of the name, such as ``.csv``."""
        return Path(self.name).suffix

    @property
    def parent(self) -> RemotePath:
        """The folder of this path."""
        return self._at(self._address.rpartition("/")[0])

    def with_name(self, name: str) -> RemotePath:
        """Return the path of another file in the same folder."""
        return self.parent / name

    def absolute(self) -> RemotePath:
        """Return itself: an address does not depend on the working directory, and has no links."""
        return self

    resolve = absolute

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder appears with its first file."""

    def rmdir(self) -> None:
        """Do nothing: a folder disappears with its last file."""

    def exists(self) -> bool:
        """Return whether it is a file or a folder."""
        return self._find_type() is not None

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return self._find_type() == "file"

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return self._find_type() == "directory"

    def _find_type(self) -> str | None:
        # Methods of fsspec such as isfile take every error for a file that is not there.
        with suppress(FileNotFoundError), self._name_errors():
            return str(self.filesystem.info(self._path)["type"])
        return None

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the files and folders in this folder."""
        with self._name_errors():
            found = [each.rstrip("/") for each in self.filesystem.ls(self._path, detail=False)]
        names = {each.rpartition("/")[2] for each in found if each != self._path}
        yield from (self / name for name in sorted(names))

    def find(self) -> list[str]:
        """Return the addresses of all files below this folder."""
        with self._name_errors():
            return [self._restore(found) for found in self.filesystem.find(self._path)]

    def glob(self) -> list[tuple[RemotePath, bool]]:
        """Return what matches this path as a pattern, and whether each match is a file."""
        with self._name_errors():
            hits = self.filesystem.glob(self._path, detail=True)
        return [(self._at(self._restore(hit)), hits[hit]["type"] == "file") for hit in hits]

    def _restore(self, path: str) -> str:
        """Return the address of a path in the same store."""
        return self._address.removesuffix(self._path.lstrip("/")) + path.lstrip("/")

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open the file for reading; it is seekable."""
        if self.size() <= _SMALL:
            return io.BytesIO(self.read_bytes())
        with self._name_errors():
            return cast("BinaryIO", self.filesystem.open(self._path, mode, block_size=_SMALL))

    def read_bytes(self) -> bytes:
        """Return the content of the file."""
        with self._name_errors():
            return cast("bytes", self.filesystem.cat_file(self._path))

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file."""
        with suppress(FileNotFoundError) if missing_ok else nullcontext(), self._name_errors():
            self.filesystem.rm_file(self._path)

    def rename(self, target: RemotePath) -> None:
        """Copy the file and delete it: a killed process may leave both."""
        with self._name_errors():
            self.filesystem.mv(self._path, target._path)

    def size(self) -> int:
        """Return the number of bytes of the file."""
        if not self.is_file():
            raise FileNotFoundError(f"there is no file {self}; give another address.")
        return int(self.filesystem.size(self._path))

    def stamp(self) -> str:
        """Return a text that changes when the file is replaced."""
        with self._name_errors():
            return str(self.filesystem.ukey(self._path))

    def upload(self, local: Path, *, replacing: bool) -> None:
        """Write the content of a local file in one step; without ``replacing`` only if new."""
        with self._name_errors():
            try:
                if not replacing and self._create(local.read_bytes()):
                    return
                if local.stat().st_size > _SMALL:
                    self.filesystem.put_file(str(local), self._path)
                else:
                    self.filesystem.pipe_file(self._path, local.read_bytes())
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f"{self} cannot be written ({error}); create the bucket first."
                ) from error
            except FileExistsError as error:
                raise FileExistsError(f"{self} exists already.") from error

    def _create(self, content: bytes) -> bool:
        """Write a new file by a conditional put; False if the store has none and it is new."""
        try:
            self.filesystem.pipe_file(self._path, content, mode="create")
        except (FileExistsError, FileNotFoundError):
            raise
        # Stores without conditions refuse them in many ways.
        except Exception:
            if self.exists():
                raise FileExistsError(self._path) from None
            return False
        return True

    @contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Name the address in errors, which are of many types."""
        try:
            # Other processes write to the same folders.
            self.filesystem.invalidate_cache(self._path)
            yield
        except (FileNotFoundError, FileExistsError, MemoryError):
            raise
        except Exception as error:
            kind = PermissionError if isinstance(error, PermissionError) else OSError
            raise kind(
                f"{self} cannot be accessed ({type(error).__name__}: {error}); check the address, "
                "the credentials and the network."
            ) from error


def _open_filesystem(address: str, options: Options) -> Any:
    """Return the fsspec file system of an address."""
    try:
        from fsspec.core import url_to_fs

        return url_to_fs(address, **options)[0]
    except ImportError as error:
        # fsspec names the package: "Install s3fs to access S3".
        raise ImportError(
            f"{address} needs a package that is not installed ({error}); pip install "
            "'cellworth[remote]' and the package of the store."
        ) from error
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{address} cannot be opened with fsspec ({error}); give another address."
        ) from error


AnyPath = Path | RemotePath


def list_names(folder: AnyPath, pattern: str = "*") -> list[str]:
    """Return the sorted names of the files in a folder that match a pattern."""
    try:
        return sorted(fnmatch.filter([path.name for path in folder.iterdir()], pattern))
    except FileNotFoundError:
        return []


def get_size(path: AnyPath) -> int:
    """Return the number of bytes of a file."""
    return path.stat().st_size if isinstance(path, Path) else path.size()


def get_stamp(path: AnyPath) -> str:
    """Return a text that changes when a file is replaced."""
    if isinstance(path, RemotePath):
        return path.stamp()
    seen = path.stat()
    return f"{seen.st_mtime_ns} {seen.st_size}"


def hash_file(path: AnyPath) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(cast("Any", file), "sha256").hexdigest()


def check_memory(n_bytes: float) -> None:
    """Raise MemoryError if this process cannot have so much memory, as far as the system tells."""
    limits = [math.inf]
    # No container, or one without a limit.
    with suppress(OSError, ValueError):
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    # Windows has neither, macOS no /proc.
    with suppress(ImportError, OSError):
        import resource

        page = os.sysconf("SC_PAGE_SIZE")
        limits.append(os.sysconf("SC_PHYS_PAGES") * page)
        n_used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limits.append(resource.getrlimit(resource.RLIMIT_AS)[0] - n_used * page)
    # Where there is no limit, getrlimit returns -1.
    limit = min(each for each in limits if each > 0)
    if n_bytes > limit:
        raise MemoryError(f"it needs at least {format_bytes(n_bytes)}, of {format_bytes(limit)}")


@contextmanager
def write_atomically(
    path: AnyPath,
    *,
    replacing: bool = True,
    durable: bool = True,
    named: Callable[[], str] | None = None,
) -> Iterator[BinaryIO]:
    """Yield a temporary file that is renamed or uploaded to ``path`` once it is complete.

    Without ``replacing``, an existing file raises FileExistsError. Without ``durable`` the file
    survives a killed process but not a crash of the machine. ``named`` returns the final name
    after writing, if it depends on the content.
    """
    if isinstance(path, RemotePath):
        # A file in a folder, because Windows opens no temporary file twice.
        with tempfile.TemporaryDirectory(prefix="cellworth-") as folder:
            with Path(folder, "file").open("xb") as copy:
                yield copy
            path = path if named is None else path.with_name(named())
            path.upload(Path(copy.name), replacing=replacing)
        return
    check_regular(path)
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
    except OSError as error:
        if error.errno is None:
            raise
        # Of the disk, or with the name of the temporary file, which the user does not know.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        # Not every file system can sync a folder to disk.
        with suppress(OSError):
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def check_regular(path: AnyPath) -> None:
    """Raise for a pipe or a device: a reader would wait, and a writer would replace it."""
    if isinstance(path, Path) and path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is no regular file; give the path of a file.")


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


def read_json(path: AnyPath) -> Any:
    """Read a JSON file that cellworth wrote; raise ValueError if it is damaged."""
    check_regular(path)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); restore it from a copy.") from error


def read_manifest(path: AnyPath, kind: str, version: int) -> dict[str, Any]:
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


def write_hashed(path: AnyPath, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Write a JSON file with its format and version, and the hash of its content."""
    # As JSON returns it, so that its hash can be compared.
    plain = json.loads(json.dumps(content))
    head = dict(zip(_HEAD, (kind, version, hash_json(plain)), strict=True))
    with write_atomically(path) as file:
        file.write(json.dumps(head | plain, indent=1).encode())


def read_hashed(path: AnyPath, kind: str, version: int) -> dict[str, Any]:
    """Return the content that :func:`write_hashed` wrote; raise ValueError if it was changed."""
    manifest = read_manifest(path, kind, version)
    content = {name: manifest[name] for name in manifest if name not in _HEAD}
    if manifest.get("sha256") != hash_json(content):
        raise ValueError(
            f"{path} was changed after it was written (its sha256 differs); restore it from a copy."
        )
    return content


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
    text = json.dumps({_ARRAYS: list(arrays), _REST: rest}, default=np.generic.item).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in [*arrays.items(), (_REST, np.frombuffer(text, dtype=np.uint8))]:
            with archive.open(_member(name), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


class PlainFile:
    """An npz file of arrays and JSON values, read on demand.

    Damaged files raise ValueError. Nothing is unpickled.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path: AnyPath = path
        check_regular(path)
        with _open_archive(path) as archive:
            head = json.loads(_array(archive, _REST).tobytes())
            self._arrays: list[str] = head[_ARRAYS]
            self.rest: Plain = head[_REST]
            if archive.namelist() != [_member(name) for name in (*self._arrays, _REST)]:
                raise ValueError("it does not hold the arrays that it names")

    def read(self, *prefixes: str) -> list[Plain]:
        """Return the entries with each prefix."""
        found: dict[str, Plain] = {prefix: {} for prefix in prefixes}
        with _open_archive(self.path) as archive:
            for name in (*self.rest, *self._arrays):
                prefix, _, inner = name.partition(".")
                if inner and prefix in found:
                    value = self.rest[name] if name in self.rest else _array(archive, name)
                    found[prefix][inner] = value
        return [found[prefix] for prefix in prefixes]


def _member(name: str) -> str:
    return f"{name}.npy"


def read_array(read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Return what a function that reads a NumPy file returns, also if threads disturb it.

    NumPy parses headers as Python code. Before Python 3.11.8 and 3.12.2 this fails by chance if
    several threads parse at the same time (issue 106905 of CPython).
    """
    for _ in range(_MAX_READS - 1):
        with suppress(SystemError):
            return read()
    return read()


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    return read_array(partial(_read_member, archive, name))


def _read_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(_member(name)) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        # zipfile verifies the checksum at the end of a member; a wrong shape may stop before it.
        if member.read(1):
            raise ValueError(f"{name} is longer than its shape")
        return array


@contextmanager
def _open_archive(path: AnyPath) -> Iterator[zipfile.ZipFile]:
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except MemoryError:
            raise
        # A damaged file can raise many types of errors.
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
