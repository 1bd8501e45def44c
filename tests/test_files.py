"""Files are there as a whole or not at all, and nothing is left lying about."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from cellworth.files import remove_stale_temporaries, written_atomically

HERE = socket.gethostname()
DAY = 86_400.0


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_name_once_it_is_written(tmp_path):
    with written_atomically(tmp_path / "new") as file:
        file.write(b"whole")
        assert len(names(tmp_path)) == 1
        assert not (tmp_path / "new").exists()
    assert names(tmp_path) == ["new"]
    assert (tmp_path / "new").read_bytes() == b"whole"


def test_a_file_is_replaced_in_one_step(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with written_atomically(tmp_path / "file") as file:
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
    with written_atomically(tmp_path / "file", replacing=False) as file:
        file.write(b"first")
    with (
        pytest.raises(FileExistsError),
        written_atomically(tmp_path / "file", replacing=False) as file,
    ):
        file.write(b"second")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"first"


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path, error):
    def write():
        with written_atomically(tmp_path / "file") as file:
            file.write(b"half of a new")
            raise error

    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(error):
        write()
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, step):
    def fail(*given):
        raise OSError(5, "Input/output error")

    def write():
        with written_atomically(tmp_path / "file") as file:
            file.write(b"new")

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="Input/output error"):
        write()
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path, monkeypatch):
    sync = os.fsync

    def files_only(descriptor):
        if os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            raise OSError(22, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    with written_atomically(tmp_path / "file") as file:
        file.write(b"new")
    assert names(tmp_path) == ["file"]


def test_two_may_write_one_file_at_once_and_the_last_one_counts(tmp_path):
    with written_atomically(tmp_path / "file") as one, written_atomically(tmp_path / "file") as two:
        two.write(b"two")
        one.write(b"one")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"one"


WRITER = """
import sys, time
from pathlib import Path
from cellworth.files import written_atomically

with written_atomically(Path(sys.argv[1])) as file:
    file.write(b"half of a new")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_was_writing_goes_once_it_is_dead(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with subprocess.Popen(  # noqa: S603 (this interpreter, our own script)
        [sys.executable, "-c", WRITER, str(tmp_path / "file")], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.readline() == b"writing\n"
        remove_stale_temporaries(tmp_path)
        assert len(names(tmp_path)) == 2
        writer.send_signal(signal.SIGKILL)
    # Containers may number their processes apart: only what is old as well goes.
    remove_stale_temporaries(tmp_path)
    assert len(names(tmp_path)) == 2
    then = time.time() - DAY / 24
    for path in tmp_path.iterdir():
        os.utime(path, (then, then))
    remove_stale_temporaries(tmp_path)
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def dead_process():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


# Who was writing, how long ago, and whether the file goes.
TEMPORARIES = {
    "a dead process of this machine": (HERE, dead_process, 0.0, False),
    "a dead process of this machine, an hour ago": (HERE, dead_process, DAY / 24, True),
    "a process number beyond all machines": (HERE, lambda: 10**20, DAY / 24, True),
    "this process": (HERE, os.getpid, 2 * DAY, False),
    "a live process of this machine": (HERE, os.getppid, 2 * DAY, False),
    "a process of another machine": ("elsewhere", dead_process, 0.0, False),
    "a process of another machine, an hour ago": ("elsewhere", dead_process, DAY / 24, False),
    "a process of another machine, two days ago": ("elsewhere", dead_process, 2 * DAY, True),
}


@pytest.mark.parametrize("who", TEMPORARIES)
def test_only_what_nobody_writes_any_more_is_removed(tmp_path, who):
    host, process, seconds, goes = TEMPORARIES[who]
    path = tmp_path / f".{host}~{process()}~{'0af9' * 8}~state.npz"
    path.touch()
    then = time.time() - seconds
    os.utime(path, (then, then))
    remove_stale_temporaries(tmp_path)
    assert path.exists() is not goes


def test_files_of_others_are_left_alone(tmp_path):
    others = [".hidden", "part-0.npz", f".{HERE}~1~no-uuid~state.npz", f"{HERE}~1~{'0' * 32}~x"]
    for name in others:
        (tmp_path / name).touch()
    remove_stale_temporaries(tmp_path)
    assert names(tmp_path) == sorted(others)


def test_what_was_written_may_name_the_file(tmp_path):
    said = []
    with written_atomically(tmp_path / "draft", named=lambda: f"file-{said[0]}") as file:
        said.append(file.write(b"four"))
    assert [path.name for path in tmp_path.iterdir()] == ["file-4"]
