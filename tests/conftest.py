"""Data sets are in the local folder; tests have time limits and share an S3 server and Ray."""

import os
import signal
from pathlib import Path

import pytest

import ray_clusters

os.environ.setdefault("CELLWORTH_DATA", str(Path(__file__).parents[1].parent / "shared" / "data"))
# Seconds; that of quick tests is in pyproject.toml.
MAX_SECONDS_OF_A_SLOW_TEST = 600


def pytest_configure():
    # nohup, and a shell that runs something in the background, ignore Ctrl-C: tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    for item in items:
        if any(item.get_closest_marker(name) for name in ("alone", "browser", "docs", "models")):
            item.add_marker("nightly")
        takes_long = item.get_closest_marker("slow") or item.get_closest_marker("nightly")
        if takes_long and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(MAX_SECONDS_OF_A_SLOW_TEST))


@pytest.fixture(scope="session")
def s3_session():
    """A server that ends with the session: its environment and its storage options."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    from object_store import s3_server

    with s3_server() as found:
        yield found


@pytest.fixture
def s3(s3_session, monkeypatch):
    """The server, which clients without options find by the environment."""
    for name, value in s3_session[0].items():
        monkeypatch.setenv(name, value)
    return s3_session


@pytest.fixture
def memory_store():
    """The store in memory, empty."""
    store = pytest.importorskip("fsspec").filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    return store


@pytest.fixture(scope="session")
def ray_cluster():
    """Two workers; starting them takes seconds."""
    with ray_clusters.cluster(2):
        yield
