"""Files are there as a whole or not at all, and nothing is left lying about."""

import ast
import inspect
import os
import re
from pathlib import Path

import pytest

import cellworth
from cellworth import KNNValuer, Runtime
from cellworth.data import datasets
from cellworth.data.io import is_address, local_path, to_path, write_atomically


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_in_one_step(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with write_atomically(tmp_path / "file") as file:
        file.write(b"new")
        file.flush()
        assert (tmp_path / "file").read_bytes() == b"old"
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("linked", [True, False])
def test_the_first_of_two_keeps_the_name_where_nothing_is_replaced(tmp_path, monkeypatch, linked):
    def fail(*given):
        raise PermissionError(1, "no links here")

    if not linked:
        monkeypatch.setattr(os, "link", fail)
    with write_atomically(tmp_path / "file", replacing=False) as file:
        file.write(b"first")
    with (
        pytest.raises(FileExistsError),
        write_atomically(tmp_path / "file", replacing=False) as file,
    ):
        file.write(b"second")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"first"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, step):
    def fail(*given):
        raise OSError(5, "Input/output error")

    def write():
        with write_atomically(tmp_path / "file") as file:
            file.write(b"new")

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        write()
    assert caught.value.filename == str(tmp_path / "file")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(FileExistsError, match="no regular file"),
        write_atomically(tmp_path / "pipe"),
    ):
        pass
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path, monkeypatch):
    sync = os.fsync

    def files_only(descriptor):
        if os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            raise OSError(22, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    with write_atomically(tmp_path / "file") as file:
        file.write(b"new")
    assert names(tmp_path) == ["file"]


def test_two_may_write_one_file_at_once_and_the_last_one_counts(tmp_path):
    with write_atomically(tmp_path / "file") as one, write_atomically(tmp_path / "file") as two:
        two.write(b"two")
        one.write(b"one")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"one"


def test_what_was_written_may_name_the_file(tmp_path):
    said = []
    with write_atomically(tmp_path / "draft", named=lambda: f"file-{said[0]}") as file:
        said.append(file.write(b"four"))
    assert [path.name for path in tmp_path.iterdir()] == ["file-4"]


ADDRESSES = [
    "s3://bucket/x",
    "gs://bucket/x",
    "az://box/x",
    "abfss://box@account.dfs.core.windows.net/x",
    "memory://x",
    "https://example.org/x.csv",
    "simplecache::s3://bucket/x",
    "S3://bucket/x",
    # What pathlib leaves of it, as an object and as text.
    Path("s3://bucket/x"),
    str(Path("s3://bucket/x")),
]
PATHS = ["x", "x/y.csv", "/data/s3://x", "./s3:/x", "a:b", "C:\\x", "C:/x", "c://x", "12:/30", ""]


@pytest.mark.parametrize("address", ADDRESSES, ids=repr)
def test_an_address_is_no_local_path(address):
    assert is_address(address)
    with pytest.raises(ValueError, match=r"^-o must be a local path, got .*; give .*\.$"):
        local_path(address, "-o")


@pytest.mark.parametrize("path", PATHS)
def test_a_local_path_is_no_address(path):
    assert not is_address(path)
    assert local_path(path, "-o").absolute() == Path(path).absolute()


@pytest.mark.parametrize("address", ["file:///tmp/x", "local:///tmp/x", Path("file:///tmp/x")])
def test_a_file_address_is_a_local_path(address):
    assert local_path(address, "-o") == to_path(address, "-o") == Path("/tmp/x")  # noqa: S108


def test_a_folder_here_whose_name_looks_like_a_scheme_can_be_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    meant = local_path("./s3:/x", "-o")
    assert meant == tmp_path / "s3:" / "x"
    assert local_path(meant, "-o") == meant


def test_a_path_that_stands_for_a_remote_file_is_an_address():
    class Remote(os.PathLike):
        def __fspath__(self):
            return "/data/copy-of-x"

        def __str__(self):
            return "s3://bucket/x"

    assert is_address(Remote())
    with pytest.raises(ValueError, match="got 's3://bucket/x'"):
        local_path(Remote(), "-o")


@pytest.mark.parametrize("wrong", [5, None, b"x", ["x"]])
def test_what_is_no_path_is_rejected(wrong):
    with pytest.raises(TypeError, match="folder must be a path, got"):
        local_path(wrong, "folder")


@pytest.mark.parametrize(
    ("address", "words"),
    [("nowhere://bucket/x", "cannot be opened with fsspec"),
     (Path("nowhere://bucket/x"), "^nowhere://bucket/x cannot be opened with fsspec")],
)  # fmt: skip
def test_a_wrong_address_is_refused_before_anything_is_written(
    address, words, tmp_path, monkeypatch
):
    pytest.importorskip("fsspec")
    monkeypatch.chdir(tmp_path)
    X, y = [[0.0], [1.0]], [0, 1]
    with pytest.raises(ValueError, match=words):
        KNNValuer(1, runtime=Runtime(checkpoint=address)).fit(X, y, X_val=X, y_val=y)
    assert names(tmp_path) == []


def test_an_address_in_the_environment_is_rejected(monkeypatch):
    monkeypatch.setenv("CELLWORTH_DATA", "s3://bucket/x")
    with pytest.raises(ValueError, match="CELLWORTH_DATA must be a local path"):
        datasets.load_adult()


def test_only_one_function_makes_paths_of_what_users_give():
    """Whatever is annotated as a path of any kind goes through ``to_path`` or ``local_path``."""
    source = Path(inspect.getfile(cellworth)).parent
    bypassing = [
        f"{file.relative_to(source)}: {function.name}"
        for file in source.rglob("*.py")
        if file.name != "io.py"
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.annotation is not None and "PathLike" in ast.unparse(argument.annotation)
        if re.search(rf"\bPath\({argument.arg}\)|open\({argument.arg}\b", ast.unparse(function))
    ]
    assert bypassing == []
