"""The compilation of kernels is announced once, and does not count as work."""

import pytest

from cellworth.knn import kernels
from cellworth.runtime import Processes, Threads
from cellworth.runtime.stopping import ProgressReporter


def make_kernel(name):
    """A kernel that has never been compiled, and cannot be cached."""
    made = {"__name__": "cellworth.knn.made"}
    exec(f"def {name}(x): return x + 1", made)  # noqa: S102 (our own text)
    return kernels.kernel(made[name])


@pytest.fixture
def told(caplog):
    caplog.set_level("INFO", logger="cellworth")
    return lambda: [
        record.getMessage() for record in caplog.records if vars(record).get("event") == "compile"
    ]


def test_the_first_compilation_is_announced_and_left_out_of_the_time_left(monkeypatch, told):
    monkeypatch.setattr(kernels._listener, "_announced", False)
    with ProgressReporter("values", shown=False) as reporter:
        one, two = make_kernel("one"), make_kernel("two")
        assert one(1) == 2
        spent = reporter._seconds_setup
        assert spent > 0
        assert one(5) == 6
        assert reporter._seconds_setup == spent
        assert two(1) == 2
        assert reporter._seconds_setup > spent
    (line,) = told()
    assert line.startswith("values: compiling kernels, once per machine and release")


@pytest.mark.parametrize("n_files", [0, 1])
def test_workers_compile_if_this_machine_has_no_code_for_them(monkeypatch, told, tmp_path, n_files):
    monkeypatch.setattr(kernels.fill_keys._cache, "_cache_path", str(tmp_path))
    for number in range(n_files):
        (tmp_path / f"kernels.k{number}.nbi").touch()
    kernels.announce_compilation(Threads(2))
    kernels.announce_compilation(Processes(2))
    assert len(told()) == 1 - n_files
