"""Examples find data sets in the local folder; tests share an S3 server and a Ray cluster."""

import os
from pathlib import Path

import pytest

import ray_clusters

os.environ.setdefault("CELLWORTH_DATA", str(Path(__file__).parents[1].parent / "shared" / "data"))


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
