"""The local broker: one directory holds its jars, data, logs, lock and state file, and so is the whole of it."""

import base64
import errno
import fcntl
import json
import os
import re
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path

from epochfence.broker import java
from epochfence.broker.configuration import HEAP_OPTIONS, server_properties
from epochfence.broker.process import POLL_S, is_ours, spawn, terminate
from epochfence.broker.readiness import wait_until_ready
from epochfence.errors import ClusterError, UsageError

DIRECTORY_VARIABLE = "EPOCHFENCE_BROKER_DIR"
START_TIMEOUT_S = 60.0
STOP_PATIENCE_S = 15.0
"""How long the broker may take to leave cleanly before it is killed. It usually takes one or two seconds."""
_FORMAT_TIMEOUT_S = 60
_LOCK_PATIENCE_S = java.MAVEN_TIMEOUT_S + 2 * START_TIMEOUT_S
_TRIES = 3

Progress = Callable[[str], None]


@dataclass(frozen=True)
class RunningBroker:
    """A broker that runs: where clients reach it, its process, and the directory that it lives in."""

    bootstrap_servers: str
    pid: int
    directory: Path


@dataclass(frozen=True)
class _State:
    """What the state file holds. The ports stay the same over a restart, so that clients find the broker again."""

    port: int
    controller_port: int
    cluster_id: str
    pid: int | None = None
    token: str | None = None


def default_directory() -> Path:
    """`$EPOCHFENCE_BROKER_DIR`, else `epochfence/broker` under the XDG data home."""
    told = os.environ.get(DIRECTORY_VARIABLE)
    if told:
        return Path(told)
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "epochfence" / "broker"


def _silent(_line: str) -> None:
    pass


class LocalBroker:
    """A single-node Apache Kafka (KRaft) on 127.0.0.1, whose every file is in `directory`.

    It outlives the process that starts it. What was acknowledged survives a stop. Kafka leaves the writing to the
    operating system and trusts in replicas, and here there are none: a power cut may lose records, and a `kill -9`
    between the answer to a commit and its marker may leave a transaction that never ends (seen with 4.4.0).
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or default_directory()).expanduser().resolve()

    def start(self, timeout_s: float = START_TIMEOUT_S, progress: Progress = _silent) -> RunningBroker:
        """Start the broker and return when it serves groups and transactions. One that runs already is returned.

        The time for the first download of the jars (once per version) is not counted in `timeout_s`.
        Raises UsageError when Java, Maven or the jars are missing, ClusterError when the broker does not come up.
        """
        with self._locked():
            running = self.status()
            if running is None:
                running = self._start(timeout_s, progress)
            else:
                # Whoever started it may have been killed before it was ready.
                wait_until_ready(running.bootstrap_servers, timeout_s, self._raise_if_gone)
            return running

    def stop(self) -> bool:
        """Stop this broker and nothing else; its data stays. False when it did not run."""
        if not self._state_file.exists():
            return False
        with self._locked():
            state = self._read_state()
            if state is None or state.pid is None or state.token is None:
                return False
            was_running = is_ours(state.pid, state.token)
            terminate(state.pid, state.token, STOP_PATIENCE_S)
            if is_ours(state.pid, state.token):
                raise ClusterError(f"the broker's process {state.pid} does not end, not even by SIGKILL")
            self._write_state(replace(state, pid=None, token=None))
            return was_running

    def status(self) -> RunningBroker | None:
        """The broker if its process runs. It may still be on its way up: `start` waits until it is ready."""
        state = self._read_state()
        if state is None or state.pid is None or state.token is None or not is_ours(state.pid, state.token):
            return None
        return RunningBroker(f"127.0.0.1:{state.port}", state.pid, self.directory)

    def missing(self) -> str | None:
        """Why the broker cannot be started on this machine, and how to mend that; None when it can."""
        try:
            java.find_java()
            if not java.jars_are_resolved(self._jars):
                java.find_maven()
        except UsageError as error:
            return str(error)
        return None

    @property
    def log_file(self) -> Path:
        """Where the broker writes its log."""
        return self.directory / "logs" / "server.log"

    @property
    def _console_file(self) -> Path:
        return self.directory / "logs" / "console.log"

    @property
    def _jars(self) -> Path:
        return self.directory / "jars"

    @property
    def _state_file(self) -> Path:
        return self.directory / "broker.json"

    def _start(self, timeout_s: float, progress: Progress) -> RunningBroker:
        java_binary = java.find_java()
        if not java.jars_are_resolved(self._jars):
            progress("resolving Apache Kafka's jars with Maven (about 45 MB the first time)")
            java.resolve_jars(self._jars)
        progress("starting Apache Kafka")
        deadline = time.monotonic() + timeout_s
        for attempt in range(1, _TRIES + 1):
            try:
                return self._start_once(java_binary, deadline)
            except _PortTakenError:
                # 1. We found the port free and let go of it. 2. Another process took it. 3. The broker could not.
                # Only the next try can tell whether that was chance.
                if attempt == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _start_once(self, java_binary: str, deadline: float) -> RunningBroker:
        state = self._prepare(java_binary)
        token = f"-Depochfence.broker.token={uuid.uuid4().hex}"
        # What is read for the reason of a failed start must be of this start.
        for log in (self.log_file, self._console_file):
            if log.exists():
                log.replace(log.with_name(f"{log.name}.before"))
        command = [*self._java_command(java_binary), token, "kafka.Kafka", str(self._properties_file)]
        pid = spawn(command, self._console_file)
        # Before anything else: whatever happens to us now, `stop` finds the process.
        self._write_state(replace(state, pid=pid, token=token))
        running = RunningBroker(f"127.0.0.1:{state.port}", pid, self.directory)
        try:
            wait_until_ready(running.bootstrap_servers, deadline - time.monotonic(), self._raise_if_gone)
        except BaseException:
            terminate(pid, token, STOP_PATIENCE_S)
            self._write_state(state)
            raise
        return running

    def _prepare(self, java_binary: str) -> _State:
        """Ports, configuration and formatted storage; the state without a process is written."""
        (self.directory / "logs").mkdir(parents=True, exist_ok=True)
        earlier = self._read_state()
        port, controller_port = _free_ports([earlier.port, earlier.controller_port] if earlier else [0, 0])
        cluster_id = earlier.cluster_id if earlier else base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]
        state = _State(port, controller_port, cluster_id)
        self._write_state(state)
        data = self.directory / "data"
        self._properties_file.write_text(server_properties(port, controller_port, data))
        logging_file = files("epochfence.broker") / "log4j2.properties"
        (self.directory / "log4j2.properties").write_bytes(logging_file.read_bytes())
        if not (data / "meta.properties").exists():
            self._format(java_binary, cluster_id)
        return state

    def _format(self, java_binary: str, cluster_id: str) -> None:
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", f"--config={self._properties_file}"]
        try:
            done = subprocess.run(
                [*self._java_command(java_binary), *tool],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_FORMAT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"formatting the broker's storage took longer than {_FORMAT_TIMEOUT_S} s") from None
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines() or ["it did not say why"]
            raise ClusterError(f"the broker's storage in {self.directory} cannot be formatted: {said[-1]}")

    def _java_command(self, java_binary: str) -> list[str]:
        return [
            java_binary,
            *HEAP_OPTIONS,
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            f"-Depochfence.broker.logs={self.directory / 'logs'}",
            "-cp",
            f"{self._jars}/*",
        ]

    @property
    def _properties_file(self) -> Path:
        return self.directory / "server.properties"

    def _raise_if_gone(self) -> None:
        if self.status() is not None:
            return
        said = _tail(self.log_file) + _tail(self._console_file)
        if "Address already in use" in said:
            raise _PortTakenError(f"the broker's port was taken by another process; its log is {self.log_file}")
        errors = re.findall(r"^(?:[\w.]*(?:Exception|Error)|Error[^:]*): (.+)$", said, re.MULTILINE)
        reason = f" ({errors[0]})" if errors else ""
        raise ClusterError(f"the broker stopped while it was starting{reason}; its log is {self.log_file}")

    def _read_state(self) -> _State | None:
        try:
            return _State(**json.loads(self._state_file.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise UsageError(
                f"{self._state_file} is not the state of a broker: end its process by hand if it runs, delete the file"
            ) from None
        except OSError as error:
            raise UsageError(f"{self._state_file} cannot be read: {error.strerror}") from None

    def _write_state(self, state: _State) -> None:
        # Through a new file: a reader sees the old state or the new one, never half of it.
        new = self._state_file.with_suffix(".new")
        new.write_text(json.dumps(asdict(state)))
        new.replace(self._state_file)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold off every other start and stop of this directory. The system drops the lock when its holder dies."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = (self.directory / "lock").open("w")
        except OSError as error:
            raise UsageError(f"the broker's directory {self.directory} cannot be used: {error.strerror}") from None
        with lock:
            deadline = time.monotonic() + _LOCK_PATIENCE_S
            while not _try_lock(lock.fileno()):
                if time.monotonic() >= deadline:
                    raise ClusterError(
                        f"another process starts or stops the broker in {self.directory} and does not end"
                    )
                time.sleep(POLL_S)
            yield


class _PortTakenError(ClusterError):
    """The port that was free a moment ago is not."""


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_port() -> int:
    """A loopback port that nobody uses at this moment."""
    return _free_ports([0])[0]


def _free_ports(wanted: list[int]) -> list[int]:
    """One free loopback port for each wanted one: that one if it is free, else whichever the system gives.

    All are held until all are found, so that no two are the same.
    """
    sockets: list[socket.socket] = []
    try:
        for port in wanted:
            held = socket.socket()
            sockets.append(held)
            # As the broker itself does: connections of its predecessor that linger must not cost it its port.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                held.bind(("127.0.0.1", 0))
        return [held.getsockname()[1] for held in sockets]
    finally:
        for held in sockets:
            held.close()


def _tail(file: Path, size: int = 65_536) -> str:
    try:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - size))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
