"""A real `epochfence run` in a process of its own, as a person would start it, to be killed, stopped and suspended.

Its standard output and standard error go to files, so that it can never stand still on a full pipe.
"""

import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.cluster import Cluster
from tests.verbs import command_line, environment

STOP_TIMEOUT_S = 60.0
_POLL_S = 0.02
_READY = re.compile(r"^ready slot=(\S+) partitions=(\S*)$", re.MULTILINE)
_EXCERPT_CHARACTERS = 4_000


class RunningProcessor:
    """`epochfence run` on a cluster. As a context manager it starts, and at the end nothing of it is left running.

    Each start adds to the same two files, `stdout` and `stderr` (paths in `directory`). A start that follows an end
    has the same slot and so the same transactional id: it is the restart of that processor.
    """

    def __init__(
        self, cluster: Cluster, prefix: str, directory: Path, *options: str, slot: str = "main", cwd: Path | None = None
    ) -> None:
        self._options = ["--bootstrap-servers", cluster.bootstrap_servers, "--prefix", prefix, "--slot", slot, *options]
        self._cwd = cwd or directory
        self.stdout = directory / f"run-{slot}.stdout"
        self.stderr = directory / f"run-{slot}.stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._said_before = 0
        """Bytes of stdout that earlier starts wrote."""

    def __enter__(self) -> "RunningProcessor":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            self.resume()  # a suspended process would not hear SIGTERM
            self.stop()

    @property
    def pid(self) -> int:
        """The process that was started last (of `--workers N` the supervisor)."""
        return self._running().pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -9 after `kill -9`."""
        return self._running().poll()

    def start(self, *options: str) -> None:
        """Start it, with more options after those of the constructor. It must not be running."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._said_before = self.stdout.stat().st_size if self.stdout.exists() else 0
        command = [*self.command(), *self._options, *options]
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self._cwd, env=self.environment()
            )

    def command(self) -> list[str]:
        """What is started, before its options."""
        return command_line("run")

    def environment(self) -> dict[str, str]:
        """The variables that it is started with."""
        return environment()

    def wait_ready(self, timeout_s: float = 60.0, *, times: int = 1) -> list[int]:
        """Wait until this start has said `ready` so many times, and return the partitions that it named last.

        It says so after each rebalance that gave it partitions. Fails with what it wrote when it ends before.
        """
        deadline = time.monotonic() + timeout_s
        while len(self.readies()) < times:
            if self.exit_code is not None:
                raise AssertionError(f"the processor ended with {self.exit_code} before it was ready{self.excerpt()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the processor was not ready within {timeout_s:.0f} s{self.excerpt()}")
            time.sleep(_POLL_S)
        return self.readies()[times - 1]

    def readies(self) -> list[list[int]]:
        """The partitions of each `ready` line of this start, in order."""
        said = self.stdout.read_bytes()[self._said_before :].decode("utf-8", "replace")
        whole_lines = said[: said.rfind("\n") + 1]
        return [[int(number) for number in found[2].split(",") if number] for found in _READY.finditer(whole_lines)]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, and wait. Returns the exit code. One that does not leave is killed, and that is a failure."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the processor did not leave within {timeout_s:.0f} s{self.excerpt()}") from None

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone. (Workers of `--workers N` are processes of their own and live on.)"""
        process = self._running()
        process.kill()
        process.wait()

    def suspend(self) -> None:
        """SIGSTOP: to the cluster it looks as one that hangs."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def wait_exit(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until it ends by itself. Returns the exit code."""
        try:
            return self._running().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the processor still runs after {timeout_s:.0f} s{self.excerpt()}") from None

    def excerpt(self) -> str:
        """The end of what it wrote to standard error, for a failure's message."""
        said = self.stderr.read_text("utf-8", "replace") if self.stderr.exists() else ""
        return f"\n--- {self.stderr.name}, its end ---\n{said[-_EXCERPT_CHARACTERS:]}"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was not started"
        return self._process
