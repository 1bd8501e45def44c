"""Data sets come from their public home or from a folder, and are what they were."""

import gzip
import hashlib
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest

from cellworth.data import datasets

DATA = Path(__file__).parents[3] / "shared" / "data"


def original(part):
    """The file as it is at its home, made of ours."""
    rows = gzip.decompress((DATA / f"adult_{part}.csv.gz").read_bytes()).decode().split("\n")[1:-1]
    stop = "." if part == "test" else ""
    head = "|1x3 Cross validator\n" if part == "test" else ""
    lines = [row.replace(",", ", ") + stop for row in rows]
    return (head + "\n".join(lines) + "\n\n").encode()


def read(name):
    return gzip.decompress((DATA / f"{name}.csv.gz").read_bytes())


def original_table(name):
    """The file as it is at its home, or one that differs only in how numbers are written."""
    header, *rows = read(name).decode().splitlines()
    if name == "breast_cancer_wisconsin_original":
        return "".join(row.replace(",,", ",?,") + "\n" for row in rows).encode()
    if name == "electricity":
        # Zeros and ones without a point.
        return "".join(row.replace("0.0,", "0,") + "\n" for row in rows).encode()
    if name == "credit_card_default":
        # Line ends and one notation of the file.
        changed = header.replace("default_payment_next_month", "default.payment.next.month")
        return "\r".join(
            [changed, *(row.replace(",100000,", ",1.00E+05,") for row in rows)]
        ).encode()
    if name == "heart":
        changed = header.replace("target", "AHD")
        return "\n".join([changed, *(row.replace(".0,", ",") for row in rows)]).encode()
    # PMLB: packed, tabs, without labels, single precision as double.
    cells = [header.split(",")[:-1]]
    cells += [[repr(float(np.float32(cell))) for cell in row.split(",")[:-1]] for row in rows]
    return gzip.compress("".join("\t".join(row) + "\n" for row in cells).encode())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A server that stands for the public home of the files."""
    folder = tmp_path / "home"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setattr(datasets, "_HOME", address)
        here = {
            name: each._replace(address=address + name) for name, each in datasets._HOMES.items()
        }
        monkeypatch.setattr(datasets, "_HOMES", here)
        yield folder
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "name", "n_rows"), [("train", "adult.data", 32_561), ("test", "adult.test", 16_281)]
)
def test_what_is_fetched_equals_what_is_in_a_folder(home, tmp_path, part, name, n_rows):
    (home / name).write_bytes(original(part))
    fetched, y = datasets.load_adult(part, folder=tmp_path / "new", backend="polars")
    assert fetched.shape == (n_rows, 14)
    assert sorted(set(y)) == ["<=50K", ">50K"]
    local, labels = datasets.load_adult(part, folder=DATA, backend="polars")
    assert fetched.equals(local)
    assert np.array_equal(y, labels)


def test_a_table_is_fetched_once(home, tmp_path):
    (home / "adult.test").write_bytes(original("test"))
    path = datasets.fetch_adult("test", folder=tmp_path)
    (home / "adult.test").unlink()
    assert datasets.fetch_adult("test", folder=tmp_path) == path


def test_a_download_that_is_another_file_is_rejected_and_not_kept(home, tmp_path):
    (home / "adult.test").write_bytes(original("test") + b"one more\n")
    with pytest.raises(ValueError, match=r"adult\.test is not the file that was expected"):
        datasets.fetch_adult("test", folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"age,income\n1,2\n", mtime=0)],
    ids=["empty", "text", "another table"],
)
def test_a_file_that_was_changed_is_rejected(tmp_path, content):
    (tmp_path / "adult_test.csv.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"is not the file that was expected.*delete it"):
        datasets.load_adult("test", folder=tmp_path)


def test_without_a_network_the_error_says_where_to_put_the_file(home, tmp_path):
    with pytest.raises(
        OSError, match=r"adult\.test could not be downloaded.*put adult_test\.csv\.gz"
    ):
        datasets.load_adult("test", folder=tmp_path)


def test_a_part_that_does_not_exist_is_rejected():
    with pytest.raises(ValueError, match="part must be one of train, test, got 'validation'"):
        datasets.load_adult("validation")


def test_the_folder_comes_from_the_environment_or_is_a_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CELLWORTH_DATA", str(DATA))
    assert datasets.fetch_adult("test") == DATA / "adult_test.csv.gz"
    monkeypatch.delenv("CELLWORTH_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with gzip.open(DATA / "adult_test.csv.gz") as packed:
        content = packed.read()
    (tmp_path / "cellworth").mkdir()
    (tmp_path / "cellworth" / "adult_test.csv.gz").write_bytes(gzip.compress(content))
    assert datasets.fetch_adult("test").parent == tmp_path / "cellworth"


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_a_question_mark_stays_text_in_every_library(backend):
    X, y = datasets.load_adult("test", folder=DATA, backend=backend)
    assert list(X["workclass"].to_pylist() if backend == "pyarrow" else X["workclass"])[4] == "?"
    assert len(y) == 16_281


LABELED = {
    "2dplanes": (40_768, 10),
    "breast_cancer_wisconsin_original": (699, 9),
    "credit_card_default": (30_000, 23),
    "electricity": (45_312, 8),
    "fried": (40_768, 10),
    "heart": (1_025, 13),
    "pol": (15_000, 48),
}
# Large tables are converted by the same lines.
SMALL = {"breast_cancer_wisconsin_original", "heart"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SMALL else [pytest.mark.slow]) for name in LABELED],
)
def test_a_table_from_its_home_equals_that_of_a_folder(home, tmp_path, name):
    (home / name).write_bytes(original_table(name))
    fetched, y = datasets.load_table(name, folder=tmp_path / "new", backend="pyarrow")
    assert gzip.decompress((tmp_path / "new" / f"{name}.csv.gz").read_bytes()) == read(name)
    assert fetched.shape == LABELED[name]
    assert len(np.unique(y)) == 2


@pytest.mark.parametrize("name", sorted(set(datasets._HOMES) - set(LABELED)))
def test_a_table_with_errors_is_kept_as_it_is(home, tmp_path, name):
    (home / name).write_bytes(read(name))
    path = datasets.fetch_table(name, folder=tmp_path / "new")
    assert gzip.decompress(path.read_bytes()) == read(name)


def test_the_uci_file_has_the_published_bytes():
    found = hashlib.sha256(original_table("breast_cancer_wisconsin_original")).hexdigest()
    assert found == "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64"


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3\n", b"\x1f\x8bnothing", b"1,x\n2\n"])
def test_another_table_at_its_home_is_rejected(home, tmp_path, content):
    (home / "heart").write_bytes(content)
    with pytest.raises(ValueError, match="heart is not the file that was expected"):
        datasets.fetch_table("heart", folder=tmp_path)


def test_a_missing_cell_is_a_missing_value():
    X, _ = datasets.load_table("breast_cancer_wisconsin_original", folder=DATA, backend="pandas")
    assert X["bare_nuclei"].isna().sum() == 16


def test_a_table_that_is_not_known_is_rejected():
    with pytest.raises(ValueError, match=r"name must be one of 2dplanes, .*heart, pol, got 'iris'"):
        datasets.load_table("iris")
    with pytest.raises(ValueError, match=r"heart, pol, got 'raha_beers_dirty'"):
        datasets.load_table("raha_beers_dirty")
    with pytest.raises(ValueError, match=r"raha_rayyan_dirty, got 'iris'"):
        datasets.fetch_table("iris")
