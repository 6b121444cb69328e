"""What the demo stands on: topics of its own, a real processor, and the way back from all of it."""

import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from epochfence.engine.kafka.client_config import admin_config, open_client, reader_config, sender_config
from epochfence.engine.kafka.cluster_calls import ANSWER_TIMEOUT_S, ask
from epochfence.engine.process.supervisor import worker_command
from epochfence.engine.topics.cluster import apply_topics, load_topic_specs, topic_name
from epochfence.errors import ClusterError, EpochfenceError
from epochfence.settings import Settings

Progress = Callable[[str], None]

_READY_TIMEOUT_S = 60.0
_LEAVE_TIMEOUT_S = 15.0
_POLL_S = 0.02
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A person, or the system, wants the demo to end. `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal to end raises Interrupted; those after it wait until everything is cleaned up, which is bounded.

    1. Ctrl-C is impatient and comes twice. 2. The first one has begun the way back. 3. A second one would end it half
    way, and leave a processor, or a broker, behind.
    """

    def first(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, first) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def own_prefix(settings: Settings) -> str:
    """A prefix that no other run has, under the one of the settings."""
    return f"{settings.topic_prefix}demo-{uuid.uuid4().hex[:6]}."


@contextmanager
def topics(settings: Settings, bootstrap: str, *, keep: bool, progress: Progress) -> Iterator[None]:
    """The topics of the prefix in `settings`; deleted afterwards, with the processor's group, unless `keep`."""
    admin = open_client(AdminClient, admin_config(settings, bootstrap))
    # First of all: where nobody answers, there is nothing to delete, and the person need not wait for that too.
    ask("list the topics", lambda: admin.list_topics(timeout=ANSWER_TIMEOUT_S))
    try:
        apply_topics(
            admin,
            sender_config(settings, bootstrap),
            settings.topic_prefix,
            reader_config=reader_config(settings, bootstrap),
        )
        yield
    finally:
        if not keep:
            _delete(admin, settings.topic_prefix, progress)


def _delete(admin: AdminClient, prefix: str, progress: Progress) -> None:
    """What cannot be deleted is said and left: an error here would hide the one that brought us here."""
    names = [topic_name(prefix, name) for name in load_topic_specs()]
    try:
        there = admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
        doomed = [name for name in names if name in there]
        if doomed:
            for future in admin.delete_topics(doomed, request_timeout=ANSWER_TIMEOUT_S).values():
                future.result(timeout=ANSWER_TIMEOUT_S + 1)
        _delete_group(admin, f"{prefix}processor")
    except (KafkaException, TimeoutError) as error:
        # A processor that was killed is a member until its session is over; Kafka drops an empty group in time.
        progress(f"could not delete everything under {prefix}: {error}")


def _delete_group(admin: AdminClient, group: str) -> None:
    listed = admin.list_consumer_groups(request_timeout=ANSWER_TIMEOUT_S).result(timeout=ANSWER_TIMEOUT_S + 1)
    if any(found.group_id == group for found in listed.valid):
        admin.delete_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S)[group].result(ANSWER_TIMEOUT_S + 1)


class Processor:
    """`epochfence run` in a process of its own, as a person would start it. A context manager: it leaves at the end."""

    def __init__(self, settings: Settings, bootstrap: str) -> None:
        options = ["--bootstrap-servers", bootstrap, "--prefix", settings.topic_prefix, "--slot", "demo"]
        self._command = worker_command(options)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Processor":
        self._folder = tempfile.TemporaryDirectory(prefix="epochfence-demo-")
        self._said, self._log = Path(self._folder.name) / "stdout", Path(self._folder.name) / "stderr"
        try:
            with self._said.open("wb") as said, self._log.open("wb") as log:
                # A session of its own: Ctrl-C reaches us, and we see to it that it leaves in order.
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=said, stderr=log, start_new_session=True
                )
        except BaseException:  # a signal may come before the with statement has us
            self.stop()
            self._folder.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    def wait_ready(self) -> None:
        """Wait for its line `ready …`. Raises what it left with, ClusterError where it is not ready in time."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while b"ready " not in self._said.read_bytes():
            self.raise_if_gone()
            if time.monotonic() > deadline:
                raise ClusterError(f"the processor was not ready within {_READY_TIMEOUT_S:.0f} s{self._last_words()}")
            time.sleep(_POLL_S)

    def raise_if_gone(self) -> None:
        """Raise the error that it left with, if it did."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return
        kinds = {kind.exit_code: kind for kind in EpochfenceError.__subclasses__()}
        raise kinds.get(code, EpochfenceError)(f"the processor left with exit code {code}{self._last_words()}")

    def _last_words(self) -> str:
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return f": {lines[-1].removeprefix('epochfence: ')}" if lines else ""

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where it does not leave. Does nothing where it has left."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
