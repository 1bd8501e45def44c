"""The conformance kit finds what is wrong with a broken executor, and says it."""

import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from cellworth.runtime import Threads
from cellworth.runtime.conformance import ExecutorConformance


class Pool:
    """A pool that passes all on to another one."""

    def __init__(self, pool):
        self.pool = pool

    @property
    def capacity(self):
        return self.pool.capacity

    @property
    def keeps_answers(self):
        return self.pool.keeps_answers

    def find_worker(self, locality):
        return self.pool.find_worker(locality)

    def submit(self, requests):
        self.pool.submit(requests)

    def wait_for_answers(self, seconds=None):
        return self.pool.wait_for_answers(seconds)


class Losing(Pool):
    def wait_for_answers(self, seconds=None):
        return [pair for pair in super().wait_for_answers(seconds) if pair[0] != 3]


class Doubling(Pool):
    last = ()

    def wait_for_answers(self, seconds=None):
        found = super().wait_for_answers(seconds)
        again, self.last = list(self.last), [pair for pair in found if pair[0] == 3]
        return found + again


class Renumbering(Pool):
    def wait_for_answers(self, seconds=None):
        wrong = {0: 1, 1: 0}
        found = super().wait_for_answers(seconds)
        return [(wrong.get(number, number), answer) for number, answer in found]


class Hanging(Pool):
    def wait_for_answers(self, seconds=None):
        found = super().wait_for_answers(seconds)
        if any(number == 3 for number, _ in found):
            threading.Event().wait()
        return found


class Kit(ExecutorConformance):
    seconds = 2.0

    def __init__(self, pool):
        self.pool = pool

    def executor(self):
        return self

    @contextmanager
    def start(self, work, title):
        with Threads(2).start(work, title) as pool:
            yield self.pool(pool)


CHECKS = [
    "test_no_answer_is_lost",
    "test_no_answer_comes_twice",
    "test_answers_come_under_the_numbers_of_their_requests",
]


def failed(pool, checks=CHECKS):
    """What each check says that fails."""
    messages = {}
    for check in checks:
        try:
            getattr(Kit(pool), check)()
        except AssertionError as error:
            messages[check] = str(error).splitlines()[0]
    return messages


def test_a_sound_executor_passes():
    assert failed(Pool) == {}


@pytest.mark.slow
def test_an_executor_that_loses_an_answer_fails():
    lost = failed(Losing, ["test_no_answer_is_lost"])
    assert lost == {"test_no_answer_is_lost": "requests [3] have no answer."}


def test_an_executor_that_answers_twice_fails():
    doubled = failed(Doubling)
    assert doubled["test_no_answer_comes_twice"].startswith("answers came under the numbers [0, 1,")
    assert doubled["test_no_answer_is_lost"] == "request 3 is answered twice."


def test_an_executor_that_mixes_up_numbers_fails():
    check = "test_answers_come_under_the_numbers_of_their_requests"
    assert failed(Renumbering, [check]) == {check: "requests [0, 1] got answers of other requests."}


@pytest.mark.slow
def test_an_executor_that_hangs_fails_after_the_time_limit():
    hung = failed(Hanging, ["test_no_answer_is_lost"])
    assert hung == {"test_no_answer_is_lost": "the executor hangs: no end after 2 s."}


def test_the_kit_needs_no_pytest_and_is_not_imported_with_the_package():
    script = (
        "import sys, cellworth, cellworth.runtime;"
        "assert 'cellworth.runtime.conformance' not in sys.modules;"
        "import cellworth.runtime.conformance;"
        "assert 'pytest' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)  # noqa: S603 (our own script)


@pytest.mark.slow
def test_pytest_collects_a_subclass(tmp_path):
    (tmp_path / "test_mine.py").write_text(
        "from cellworth.runtime import Serial\n"
        "from cellworth.runtime.conformance import ExecutorConformance\n"
        "class TestMine(ExecutorConformance):\n"
        "    def executor(self):\n"
        "        return Serial()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "lost or killed", "test_mine.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
