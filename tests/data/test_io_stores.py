"""Paths in object stores: a store in memory, and a real S3 server."""

import pickle
import sys
import threading
from pathlib import Path

import pytest

from cellworth import load
from cellworth.data import io
from cellworth.data.io import (
    RemotePath,
    get_size,
    get_stamp,
    list_names,
    make_folder,
    read_json,
    to_path,
    write_atomically,
)

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402


@pytest.fixture
def in_memory(memory_store):
    """An empty folder of a store in memory."""
    return to_path("memory://box/run", "folder")


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def folder(request, tmp_path, in_memory):
    """The same promises hold for a local folder, a store in memory and S3."""
    if request.param == "local":
        return make_folder(tmp_path / "run", "folder")
    if request.param == "memory":
        return in_memory
    _, options = request.getfixturevalue("s3")
    return to_path(f"s3://bucket/{tmp_path.name}", "folder", options)


def put(path, content, **how):
    with write_atomically(path, **how) as file:
        file.write(content)


def test_a_file_is_written_read_listed_and_deleted(folder):
    for name in ("b.npz", "a.npz", "c.json"):
        put(folder / name, name.encode())
    assert list_names(folder, "*.npz") == ["a.npz", "b.npz"]
    path = folder / "c.json"
    assert path.read_bytes() == b"c.json"
    assert (path.exists(), path.is_file(), path.is_dir()) == (True, True, False)
    assert folder.is_dir()
    assert get_size(path) == 6
    with path.open("rb") as file:
        assert file.seek(2) == 2
        assert file.read() == b"json"
    path.unlink()
    assert not path.exists()
    path.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        path.read_bytes()


def test_a_folder_that_is_not_there_lists_no_names(folder):
    assert list_names(folder / "none") == []
    assert not (folder / "none").exists()


def test_a_second_writer_is_refused_unless_it_replaces(folder):
    put(folder / "x", b"first", replacing=False)
    with pytest.raises(FileExistsError):
        put(folder / "x", b"second", replacing=False)
    assert (folder / "x").read_bytes() == b"first"
    before = get_stamp(folder / "x")
    put(folder / "x", b"third!")
    assert (folder / "x").read_bytes() == b"third!"
    assert get_stamp(folder / "x") != before


class Unconditional(MemoryFileSystem):
    """A store that knows no conditional put."""

    protocol = "unconditional"

    def pipe_file(self, path, value, **how):
        if how:
            raise NotImplementedError(how)
        super().pipe_file(path, value)


def test_a_store_without_conditions_is_asked_before_a_write(in_memory):
    fsspec.register_implementation("unconditional", Unconditional, clobber=True)
    path = to_path("unconditional://box/x", "folder")
    put(path, b"first", replacing=False)
    with pytest.raises(FileExistsError):
        put(path, b"second", replacing=False)
    assert path.read_bytes() == b"first"


def test_one_of_many_writers_is_the_first(folder):
    won, start = [], threading.Barrier(6)

    def write(number):
        start.wait()
        try:
            put(folder / "x", b"%d" % number, replacing=False)
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    # Both servers of these tests look first and write then, unlike S3 itself.
    assert len(won) == 1 or isinstance(folder, RemotePath)
    assert int((folder / "x").read_bytes()) in won


def test_a_failed_write_leaves_nothing(folder):
    def fail():
        with write_atomically(folder / "x") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list_names(folder) == []


def test_a_large_file_is_read_and_written_in_blocks(folder, monkeypatch):
    monkeypatch.setattr(io, "_SMALL", 1000)
    content = bytes(range(256)) * 40
    put(folder / "x", content)
    with (folder / "x").open("rb") as file:
        file.seek(-300, 2)
        assert file.read() == content[-300:]
    assert (folder / "x").read_bytes() == content


def test_a_file_is_renamed(folder):
    put(folder / "x", b"x")
    (folder / "x").rename(folder / "damaged-x")
    assert list_names(folder) == ["damaged-x"]


def test_damaged_json_is_named(folder):
    put(folder / "x", b"{")
    with pytest.raises(ValueError, match=r"x is not valid JSON .* restore it from a copy"):
        read_json(folder / "x")


def test_a_path_in_a_store_has_the_parts_of_a_path():
    path = RemotePath("s3://bucket/a/b/")
    assert str(path / "c") == "s3://bucket/a/b/c"
    assert (path.name, str(path.parent)) == ("b", "s3://bucket/a")
    assert path.with_name("c") == RemotePath("s3://bucket/a/c")
    assert path.absolute() == path.resolve() == path
    assert len({path, RemotePath("s3://bucket/a/b")}) == 1


def test_a_path_of_pathlib_keeps_its_store(in_memory):
    assert to_path(Path("memory://box/x"), "folder") == RemotePath("memory://box/x")


def test_options_travel_and_are_not_shown():
    path = RemotePath("s3://bucket/a", {"secret": "hush"})
    there = pickle.loads(pickle.dumps(path / "b"))  # noqa: S301 (our own)
    assert there == path / "b"
    assert there._options == {"secret": "hush"}
    assert "hush" not in f"{there!r} {there}"


def test_a_chain_of_addresses_is_refused():
    with pytest.raises(ValueError, match="checkpoint must be the address of one store, got 'simpl"):
        to_path("simplecache::memory://box/x", "checkpoint")


def test_a_file_is_no_folder(in_memory):
    put(in_memory, b"x")
    with pytest.raises(NotADirectoryError, match="checkpoint must be a folder, got the file memo"):
        make_folder("memory://box/run", "checkpoint")


@pytest.mark.slow
def test_a_bucket_that_is_missing_is_named_in_one_sentence(s3):
    path = to_path("s3://no-such-bucket/x", "folder", s3[1])
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match=r"^s3://no-such.* cannot be written .*bucket"):
        put(path, b"x")


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_named_in_one_sentence():
    pytest.importorskip("s3fs")
    options = {
        "key": "a", "secret": "hush", "endpoint_url": "http://127.0.0.1:1",
        "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1},
    }  # fmt: skip
    path = to_path("s3://bucket/x", "folder", options)
    path.filesystem.retries = 1
    with pytest.raises(OSError, match=r"^s3://bucket/x cannot be accessed \(") as error:
        path.read_bytes()
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("absent", "address", "sentence"),
    [
        ("fsspec.core", "s3://bucket/x", r"pip install 'cellworth\[remote\]'"),
        ("gcsfs", "gs://bucket/x", "[Ii]nstall gcsfs"),
    ],
)
def test_a_missing_package_is_named_in_one_sentence(monkeypatch, absent, address, sentence):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=rf"^{address} needs .*{sentence}"):
        load(address)
