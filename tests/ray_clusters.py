"""Clusters of Ray on this machine."""

import gc
import os
import signal
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def cluster(n_workers):
    """Start a cluster of real processes, which find what is in this folder, and connect to it."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # Old versions leave files open, which warns when they are collected.
        warnings.simplefilter("ignore", ResourceWarning)
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        handler = signal.getsignal(signal.SIGTERM)
        ray.init(
            # Else Ray connects to another cluster of this machine.
            address="local",
            num_cpus=n_workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
        # Ray's own handler ends the process, and with it other tests that send this signal.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
        gc.collect()
    try:
        yield
    finally:
        ray.shutdown()
