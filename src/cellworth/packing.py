"""Convert results to named arrays and JSON values and back, without pickle."""

from __future__ import annotations

import dataclasses
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

Kind = TypeVar("Kind")

# Arrays and JSON-serializable values, by name.
Plain = dict[str, Any]

_ARRAYS = "arrays"
_REST = "rest"


def packed(thing: Any) -> Plain:
    """Return the fields of a dataclass by name; nested ones are ``outer.inner``."""
    plain: Plain = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if dataclasses.is_dataclass(value):
            plain |= prefixed(field.name, packed(value))
        else:
            plain[field.name] = value
    return plain


def unpacked(kind: type[Kind], plain: Mapping[str, Any]) -> Kind:
    """Create a dataclass from the output of :func:`packed`."""
    hints = get_type_hints(kind)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        hint = hints[field.name]
        inner = unprefixed(field.name, plain)
        if inner:
            nested: Any = next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))))
            found[field.name] = unpacked(nested, inner)
        else:
            value = plain[field.name]
            found[field.name] = tuple(value) if get_origin(hint) is tuple else value
    return kind(**found)


def prefixed(name: str, plain: Mapping[str, Any]) -> Plain:
    """Prefix all names with ``name.``."""
    return {f"{name}.{inner}": value for inner, value in plain.items()}


def unprefixed(name: str, plain: Mapping[str, Any]) -> Plain:
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
        """Read the JSON values."""
        self.path = path
        with _opened(path) as archive:
            head = json.loads(_array(archive, _REST).tobytes())
            self._arrays: list[str] = head[_ARRAYS]
            self.rest: Plain = head[_REST]
            if archive.namelist() != [_member(name) for name in (*self._arrays, _REST)]:
                raise ValueError("it does not hold the arrays that it names")

    def read(self, *prefixes: str) -> list[Plain]:
        """Return the entries with each prefix."""
        asked = set(prefixes)
        found: dict[str, Plain] = {prefix: {} for prefix in prefixes}
        with _opened(self.path) as archive:
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
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
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
