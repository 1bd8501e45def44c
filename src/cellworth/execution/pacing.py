"""Pace: how often to do what takes time beside the work itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pace:
    """Says when something may be done again, so that it takes no more than a share of the time."""

    def __init__(self, share_of_time: float) -> None:
        """Begin with something that is due."""
        self._share_of_time = share_of_time
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has gone since it was last done."""
        return time.monotonic() >= self._next

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Do it in here; what it takes decides when it is due again."""
        began = time.monotonic()
        yield
        self._next = began + (time.monotonic() - began) / self._share_of_time
