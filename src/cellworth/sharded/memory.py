"""Memory: what a process has freed goes back to the machine."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> None:
    """Give freed memory back, where the C library can be asked to.

    It keeps what was freed for the next need, and a pass over many small batches leaves a hundred
    megabytes behind that the shards of the next pass, which are large, never use.
    """
    gc.collect()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):
        # Other systems do not have it, or no library without a name.
        return
    trim(0)
