"""Clusters of Ray on this machine."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def cluster(n_workers):
    """Start a cluster of real processes, which find what is in this folder, and connect to it."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        ray.init(
            # Else Ray connects to another cluster of this machine.
            address="local",
            num_cpus=n_workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    try:
        yield
    finally:
        ray.shutdown()
