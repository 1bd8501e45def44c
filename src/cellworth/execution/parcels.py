"""What goes from process to process on one machine: pickled once, its arrays mapped from a file."""

from __future__ import annotations

import mmap
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import cloudpickle

_ALIGNED = 64
_LARGE = 2**20


@dataclass(frozen=True)
class Parcel:
    """Where an object lies, for processes of this machine.

    Parameters
    ----------
    path : Path
        A file in a folder that only this user may read, made for one run and gone after it.
    head : tuple of int
        Where in it the pickled object begins and ends.
    buffers : tuple of pairs of int
        Where its arrays begin and end.
    """

    path: Path
    head: tuple[int, int]
    buffers: tuple[tuple[int, int], ...]

    def opened(self) -> Any:
        """Return the object; its arrays stay in the file, which all processes share."""
        with self.path.open("rb") as file:
            # Copy on write: a model may change its input, and only its own process sees that.
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        arrays = [content[begin:end] for begin, end in self.buffers]
        return pickle.loads(content[slice(*self.head)], buffers=arrays)  # noqa: S301 (we wrote it)

    def taken(self) -> Any:
        """Return the object and remove the file; its arrays live as long as they are used."""
        thing = self.opened()
        self.path.unlink()
        return thing


@contextmanager
def posted(work: Callable[[Any], Any]) -> Iterator[Parcel]:
    """Write a piece of work to a file of its own for as long as it is needed."""
    folder = Path(tempfile.mkdtemp(prefix="cellworth-"))
    try:
        yield _written(*pickled(work), folder / "work")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parcelled_if_large(answer: Any, beside: Parcel) -> Any:
    """Put an answer with large arrays into a file: its reader need not hold it in memory."""
    head, arrays = pickled(answer)
    if sum(array.raw().nbytes for array in arrays) < _LARGE:
        return answer
    return _written(head, arrays, beside.path.with_name(uuid4().hex))


def pickled(thing: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle an object; its arrays are not copied."""
    arrays: list[pickle.PickleBuffer] = []
    # What a user defines in a notebook travels as well.
    return cloudpickle.dumps(thing, protocol=5, buffer_callback=arrays.append), arrays


def _written(head: bytes, arrays: list[pickle.PickleBuffer], path: Path) -> Parcel:
    contents: list[Any] = [head, *(array.raw() for array in arrays)]
    places = []
    with path.open("xb") as file:
        for content in contents:
            file.write(b"\0" * (-file.tell() % _ALIGNED))
            begin = file.tell()
            file.write(content)
            places.append((begin, file.tell()))
    return Parcel(path, places[0], tuple(places[1:]))
