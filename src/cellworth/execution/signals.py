"""Ctrl-C and SIGTERM end a run while it waits, never in the middle of folding or writing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
# Someone who presses again and again wants out at any price.
_PATIENCE = 3


class Interrupts:
    """Signals to end a run, held back until it can be ended.

    Handlers that a program has put in place of the usual ones are left alone, and outside the main
    thread there are none: there, Ctrl-C comes as it does without us.
    """

    def __init__(self) -> None:
        """Begin without a signal."""
        self._came: list[int] = []
        self._raised = False
        self._allowed = False
        self._n_spared = 0

    @property
    def came(self) -> bool:
        """Whether there was a signal."""
        return bool(self._came)

    def wait_for_the_end(self) -> None:
        """From now on the first signal changes nothing, because the end is near; the next does."""
        self._n_spared = max(len(self._came), 1)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take the signals for as long as a run goes on."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ours = [number for number, usual in _USUAL.items() if signal.getsignal(number) == usual]
        for number in ours:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number in ours:
                signal.signal(number, _USUAL[number])
            if self._is_pressing and not self._raised:
                # It came after the last moment at which the run could be ended.
                signal.raise_signal(self._came[-1])

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let a signal, also one that came before, raise KeyboardInterrupt in here."""
        self._allowed = True
        try:
            if self._is_pressing:
                self._raise()
            yield
        finally:
            self._allowed = False

    def check(self) -> None:
        """Let a signal that came before raise KeyboardInterrupt."""
        with self.allowed():
            pass

    def _note(self, number: int, frame: Any) -> None:
        self._came.append(number)
        if (self._allowed and self._is_pressing) or len(self._came) >= _PATIENCE:
            self._raise()

    @property
    def _is_pressing(self) -> bool:
        return len(self._came) > self._n_spared

    def _raise(self) -> None:
        self._raised = True
        raise KeyboardInterrupt
