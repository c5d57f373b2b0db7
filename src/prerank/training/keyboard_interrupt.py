"""Ctrl-C as a wish that is asked for between steps, so that nothing is left half written."""

import signal
import threading
from types import FrameType
from typing import Self


class Interruption:
    """While it is entered, the first Ctrl-C only makes it true; the next one is a KeyboardInterrupt, as ever.

    Signals belong to the main thread. Elsewhere, and where it is not `wanted`, it does nothing and stays false.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted and threading.current_thread() is threading.main_thread()
        self.came = False

    def __bool__(self) -> bool:
        return self.came

    def __enter__(self) -> Self:
        if self.wanted:
            self.before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *failure: object) -> None:
        if self.wanted:
            signal.signal(signal.SIGINT, self.before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True
