"""The example table comes from its public home or from a folder, and is what it was."""

import gzip
import http.server
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from cellworth.data import datasets

DATA = Path(__file__).parents[3] / "shared" / "data"


def write_original(part, folder):
    """Write the file as it is at its home, made of ours."""
    rows = gzip.decompress((DATA / f"adult_{part}.csv.gz").read_bytes()).decode().split("\n")[1:-1]
    stop = "." if part == "test" else ""
    head = "|1x3 Cross validator\n" if part == "test" else ""
    lines = [row.replace(",", ", ") + stop for row in rows]
    content = head + "\n".join(lines) + "\n\n"
    (folder / datasets._FILES[part][0]).write_text(content, encoding="ascii", newline="\n")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A server that stands for the public home of the files, and an empty folder for them."""
    folder = tmp_path / "home"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(datasets, "_URL", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("CELLWORTH_DATA", str(tmp_path / "new"))
        yield folder
        server.shutdown()


@pytest.mark.parametrize(
    ("part", "n_rows"), [pytest.param("train", 32_561, marks=pytest.mark.nightly), ("test", 16_281)]
)
def test_what_is_downloaded_once_equals_what_is_in_a_folder(home, monkeypatch, part, n_rows):
    write_original(part, home)
    downloaded, y = datasets.load_adult(part, backend="pyarrow")
    (home / datasets._FILES[part][0]).unlink()
    again, _ = datasets.load_adult(part, backend="pyarrow")
    monkeypatch.setenv("CELLWORTH_DATA", str(DATA))
    local, labels = datasets.load_adult(part, backend="pyarrow")
    assert downloaded.shape == (n_rows, 14)
    assert downloaded.equals(local)
    assert again.equals(local)
    assert sorted(set(y)) == ["<=50K", ">50K"]
    assert np.array_equal(y, labels)


def test_a_download_that_is_another_file_is_rejected_and_not_kept(home, tmp_path):
    (home / "adult.test").write_text("1, 2\n")
    with pytest.raises(ValueError, match=r"hash of downloaded file \(adult\.test\) does not match"):
        datasets.load_adult("test")
    assert not list((tmp_path / "new").glob("adult*"))


def test_without_pooch_the_error_says_what_to_install(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"needs pooch; pip install 'cellworth\[data\]'"):
        datasets.load_adult("test")


def test_a_part_that_does_not_exist_is_rejected():
    with pytest.raises(ValueError, match="part must be 'train' or 'test', got 'validation'"):
        datasets.load_adult("validation")


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_a_question_mark_stays_text_in_every_library(backend):
    X, y = datasets.load_adult("test", backend=backend)
    assert list(X["workclass"].to_pylist() if backend == "pyarrow" else X["workclass"])[4] == "?"
    assert len(y) == 16_281
