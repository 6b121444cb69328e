"""The broker's process: started in a session of its own, recognised by a token, and ended by its pid and no other."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

POLL_S = 0.05
_PS_TIMEOUT_S = 10
_EXEC_PATIENCE_S = 1.0


def spawn(command: Sequence[str], console: Path) -> int:
    """Start `command` so that it outlives us and our terminal; what it prints goes to `console`. Gives its pid.

    posix_spawn and not Popen: nobody here waits for the process to end, and Popen complains when it is dropped.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(console), append, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    # setsid: Ctrl-C in the terminal, or its end, must not take the broker along.
    return os.posix_spawn(command[0], list(command), os.environ, file_actions=actions, setsid=True)


def is_ours(pid: int, token: str) -> bool:
    """Whether `pid` is the process that was started with `token` in its command line.

    A pid is used again after its process has ended. A token is not, so a stranger is never taken for the broker.
    """
    _reap(pid)
    return token in _command_line(pid)


def _command_line(pid: int) -> str:
    """All arguments of `pid`; empty when there is no such process, or only the remains of one."""
    if not Path("/proc/self").exists():
        return _command_line_by_ps(pid)
    deadline = time.monotonic() + _EXEC_PATIENCE_S
    while True:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            # After the last parenthesis: the name that the parentheses hold may have some of its own.
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return ""
        # A living process without arguments is in the middle of its exec (or is a kernel thread, and stays so).
        if arguments or state in "ZX" or time.monotonic() >= deadline:
            return arguments.decode("utf-8", "replace")
        time.sleep(POLL_S / 10)


def _command_line_by_ps(pid: int) -> str:
    asked = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=_PS_TIMEOUT_S,
        check=False,
    )
    return asked.stdout


def _reap(pid: int) -> None:
    """Where the process is our own child and has ended, let the system forget it."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def terminate(pid: int, token: str, patience_s: float) -> None:
    """End the process if it is ours: SIGTERM, and SIGKILL when it has not gone after `patience_s`."""
    for end, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, patience_s)):
        if not _signal_if_ours(pid, token, end):
            return
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if not is_ours(pid, token):
                return
            time.sleep(POLL_S)


def _signal_if_ours(pid: int, token: str, end: signal.Signals) -> bool:
    """Signal the process; False when it is not ours or has gone.

    1. Open a handle on the process. 2. Look whether it is ours. 3. Signal through the handle. Between 2 and 3 the
    process may end and its pid go to another: the handle still means the old one, and the signal reaches nobody.
    """
    if not hasattr(os, "pidfd_open"):  # not Linux: the pid itself is all there is
        if not is_ours(pid, token):
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, end)
        return True
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_ours(pid, token):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, end)
        return True
    finally:
        os.close(handle)
