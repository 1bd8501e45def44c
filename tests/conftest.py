"""Examples that load a data set find it in the local folder; one S3 server for all tests."""

import os
from pathlib import Path

import pytest

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
