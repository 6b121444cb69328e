"""Lines of JSON into the input topics: what `epochfence send` does."""

import os
import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from epochfence.clients.printable import printable
from epochfence.clients.sender import Acknowledged, Sender
from epochfence.errors import EpochfenceError, UsageError
from epochfence.settings import Settings
from epochfence.wire.errors import EncodeError
from epochfence.wire.jsonl import LineError, read_event

LINE_MAX_BYTES = 16 << 20
"""The longest line that is read. An event that fits its topic is shorter, even with each byte written as \\u0000."""
_CHUNK_BYTES = 1 << 16
_QUIET_POLL_S = 0.01


class LineInput:
    """The lines of a file, pipe or terminal, each when it is there.

    When nothing is there to read, `busy` is asked whether there is other work. As long as there is, the lines are
    interrupted by None, so that acknowledgements are reported while a person types; then it waits for input.
    Raises LineError for a line that has no end.
    """

    def __init__(self, descriptor: int, busy: Callable[[], bool] = lambda: False) -> None:
        self._descriptor = descriptor
        self._busy = busy

    def __iter__(self) -> Iterator[bytes | None]:
        rest = bytearray()
        while True:
            while not self._is_readable() and self._busy():
                yield None
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
            if not chunk:
                if rest:
                    yield bytes(rest)
                return
            *lines, last = chunk.split(b"\n")
            for line in lines:
                rest += line
                yield bytes(rest)
                rest.clear()
            rest += last
            if len(rest) > LINE_MAX_BYTES:
                raise LineError(f"longer than {LINE_MAX_BYTES >> 20} MiB")

    def _is_readable(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0)[0])


class LineSending:
    """Sends the events of lines, numbered from 0, and counts the acknowledged ones by topic.

    Strict: the first line that is no event, or whose event cannot be written, ends it.
    """

    def __init__(self, settings: Settings, bootstrap: str, acknowledged: Callable[[Acknowledged], None]) -> None:
        self._report = acknowledged
        self._sender = Sender(settings, bootstrap, self._acknowledged, self._failed)
        self._failure: tuple[int, EpochfenceError] | None = None
        self._taken = 0
        self.acknowledged: Counter[str] = Counter()
        """Topic -> how many events it has acknowledged."""

    def busy(self) -> bool:
        """Whether something waits for its acknowledgement."""
        return self._sender.in_flight > 0

    def run(self, lines: Iterable[bytes | None]) -> None:
        """Send every line, and return when all are acknowledged. None among the lines says that input is quiet.

        Raises UsageError or ClusterError, naming the line and how many events before it were acknowledged. Nothing
        after a line that is no event is sent.
        """
        try:
            for line in lines:
                if line is None:
                    self._sender.poll(_QUIET_POLL_S)
                else:
                    self._send(line)
                self._raise_failure()
        except LineError as error:
            self._refuse(UsageError(str(error)))
        self.finish()

    def finish(self) -> None:
        """Wait for what is in flight. Raises as `run`."""
        self._sender.flush()
        self._raise_failure()

    def _send(self, line: bytes) -> None:
        try:
            event = read_event(line, self._taken, now_ms=time.time_ns() // 1_000_000).event
            self._sender.send(self._taken, event)
        except (LineError, EncodeError) as error:
            self._refuse(UsageError(str(error)))
        except EpochfenceError as error:
            self._refuse(error)
        self._taken += 1

    def _refuse(self, error: EpochfenceError) -> None:
        """The next line is wrong: wait for those before it, then say so."""
        self.finish()
        raise _about_line(self._taken, error, f"Nothing from it on was sent; {self._total} before it were acknowledged")

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        # What was taken meanwhile is on its way, and the person must know what became of it.
        self._sender.flush()
        number, error = self._failure
        raise _about_line(number, error, f"Of {self._taken} lines that were read, {self._total} are acknowledged")

    @property
    def _total(self) -> int:
        return self.acknowledged.total()

    def _acknowledged(self, acknowledged: Acknowledged) -> None:
        self.acknowledged[acknowledged.topic] += 1
        self._report(acknowledged)

    def _failed(self, number: int, error: EpochfenceError) -> None:
        if self._failure is None or number < self._failure[0]:
            self._failure = (number, error)


def _about_line(number: int, error: EpochfenceError, what_was_done: str) -> EpochfenceError:
    # The reason may repeat a name from the line, and the line is anybody's.
    return type(error)(f"line {number} (counted from 0): {printable(str(error))}. {what_was_done}")
