"""`run`: one worker in this process, or several as processes of their own that are started again when they die.

What a child's end means: 0, it was told to leave; 2 or 4, starting it again would meet the same, so all leave; 5, it
was fenced, so a twin may have its slot: it waits a little longer each time; anything else: it waits a moment.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

import structlog

from epochfence.errors import FencedError, LogError, UsageError

log = structlog.get_logger()

_FIRST_WAIT_S = 0.5
_FENCED_WAIT_S = 5.0
_MAX_WAIT_S = 60.0
_STEADY_S = 60.0
"""A child that has run for so long starts with a clean record."""
_TICK_S = 0.1
_KILL_AFTER_S = 40.0


class StopFlag:
    """True once SIGTERM or SIGINT has come. A second one ends the process at once."""

    def __init__(self) -> None:
        self._set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._set:
            os._exit(128 + number)
        self._set = True

    def __call__(self) -> bool:
        return self._set


class _Child:
    def __init__(self, slot: str, command: list[str]) -> None:
        self.slot = slot
        self._command = command
        self._failures = 0
        self._start_at = 0.0
        self._started_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def tend(self, now: float) -> int | None:
        """Start it when it is time. Returns the exit code of one that has just ended."""
        if self.process is None:
            if now >= self._start_at:
                self.process = subprocess.Popen(self._command)
                self._started_at = now
            return None
        code = self.process.poll()
        if code is None:
            return None
        self.process = None
        self._failures = 1 if now - self._started_at > _STEADY_S else self._failures + 1
        first = _FENCED_WAIT_S if code == FencedError.exit_code else _FIRST_WAIT_S
        wait_s = min(_MAX_WAIT_S, first * 2 ** (self._failures - 1))
        self._start_at = now + wait_s
        log.warning("worker ended", slot=self.slot, exit_code=code, starts_again_in_s=wait_s)
        return code


def supervise(slots: list[str], command: Callable[[str], list[str]], stopping: StopFlag) -> int:
    """Keep a process for each slot. Returns 0 after a signal, else the exit code of the child that cannot go on."""
    children = [_Child(slot, command(slot)) for slot in slots]
    try:
        while not stopping():
            for child in children:
                code = child.tend(time.monotonic())
                if code in (UsageError.exit_code, LogError.exit_code):
                    return code
            time.sleep(_TICK_S)
        return 0
    finally:
        _end([child.process for child in children if child.process is not None])


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _KILL_AFTER_S
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def worker_command(arguments: list[str]) -> list[str]:
    """This program again, as one worker."""
    return [sys.executable, "-m", "epochfence", "run", *arguments]
