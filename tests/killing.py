"""Processes that are killed in the middle of what they do, and the log that tells when that is."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil


class Log:
    """What was begun and ended, by whom, in the order in which it happened."""

    def __init__(self, path):
        self.path = path

    def lines(self):
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        return [line.split() for line in whole.splitlines()]

    @property
    def n_starts(self):
        return self.path.read_bytes().count(b"start ") if self.path.exists() else 0

    def n_starts_of(self, doing):
        return sum(what == "start" and name.startswith(doing) for what, _, name, _ in self.lines())

    def busy(self, doing=""):
        """Processes in the middle of something whose name begins like this."""
        open_now = Counter()
        for what, pid, name, _ in self.lines():
            if name.startswith(doing):
                open_now[int(pid)] += 1 if what == "start" else -1
        return {pid for pid, n in open_now.items() if n > 0 and _state(pid) not in GONE}

    def wait_for_starts(self, n_starts, while_alive=lambda: True, doing=""):
        deadline = time.monotonic() + 180
        while (self.n_starts_of(doing) if doing else self.n_starts) < n_starts:
            assert while_alive(), "the run ended before it could be hit"
            assert time.monotonic() < deadline, "the run does not begin"
            time.sleep(0.005)

    def wait_for_end(self, name, while_alive):
        """Wait until something of this name was ended, and its end can be known elsewhere."""
        deadline = time.monotonic() + 60
        while not any(what == "end" and done == name for what, _, done, _ in self.lines()):
            assert while_alive(), "the run ended before it could be hit"
            assert time.monotonic() < deadline, "nothing is done"
            time.sleep(0.005)
        time.sleep(0.2)


GONE = {None, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}


def _state(pid):
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return None


def kill_in_mid_task(log, among, n_victims=1, doing=""):
    """Stop processes, see that each is in the middle of something, and only then kill them."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        victims = sorted(log.busy(doing) & set(among()))[:n_victims]
        # One that is stopped for long holds up the others, which wait for what it has.
        if len(victims) == n_victims:
            for pid in victims:
                os.kill(pid, signal.SIGSTOP)
            while any(_state(pid) not in {psutil.STATUS_STOPPED, *GONE} for pid in victims):
                time.sleep(0.0005)
            hit = log.busy(doing) >= set(victims)
            for pid in victims:
                os.kill(pid, signal.SIGKILL if hit else signal.SIGCONT)
            if hit:
                return victims
        time.sleep(0.001)
    raise AssertionError("nobody was hit in the middle of a task")


def still_there(processes, seconds):
    """Those that do not end in time; what nobody has reaped has ended."""
    deadline = time.monotonic() + seconds
    while (left := [each for each in processes if _state(each.pid) not in GONE]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.02)
    return left


def workers():
    """Processes below this one."""
    return [child.pid for child in psutil.Process().children(recursive=True)]


class Killer(threading.Thread):
    """Kills workers of this process once so many starts are in the log."""

    def __init__(self, log, moments, n_victims=1, doing=""):
        super().__init__(daemon=True)
        self.log, self.moments, self.n_victims, self.doing = log, moments, n_victims, doing
        self.killed = []

    def run(self):
        for n_starts in self.moments:
            self.log.wait_for_starts(n_starts, doing=self.doing)
            self.killed += kill_in_mid_task(self.log, workers, self.n_victims, self.doing)


class Driver:
    """A process of its own that does a run in a folder once it is told to."""

    def __init__(self, module):
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed at the end)
        self.process = subprocess.Popen(  # noqa: S603 (ours)
            [sys.executable, "-c", f"import {module}; {module}.main()"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
            text=True,
        )

    def begin(self, folder, **asked):
        self.folder, self.log = folder, Log(folder / "log")
        line = json.dumps(asked | {"folder": str(folder)})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self._errors.close()

    def alive(self):
        return self.process.poll() is None

    def family(self):
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait_for_starts(self, n_starts, doing=""):
        self.log.wait_for_starts(n_starts, self.alive, doing)

    def wait_for_end(self, name):
        self.log.wait_for_end(name, self.alive)

    def errors(self):
        self._errors.seek(0)
        return self._errors.read()

    def ended(self):
        return json.loads((self.folder / "ended").read_text())
