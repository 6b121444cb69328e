"""A seeded load for a real cluster: events of all kinds that belong together, and poison between them.

The same seed tells the same stories in the same waves. Each call lives one story; its later events name the offset
that the cluster acknowledged for its ToolCall. What a story leads to is for the checker to say: the load only has to
be everything that may come, not what ought to.

A story is a row of steps, each of which is in a later wave than the one before:

    S             a ToolCall              T1            a Timeout of epoch 1 (=OPERATOR: that cause)
    R1            a Result SUCCESS        R1=FAILURE    another outcome
    C2            a Compensation OK       C2=FAILED     another outcome

after which may come: ' another execution, # another body, ~ no epoch, ? another incarnation, % ill-formed,
- a Timeout that does not know the incarnation.
"""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Message, Producer, murmur2

from epochfence.protocol.events import Compensation, Event, Result, Timeout, ToolCall
from epochfence.protocol.vocabulary import Cause, Orphans, Outcome, Policy
from epochfence.wire.codec import encode_event
from epochfence.wire.schemas import INPUT_TOPICS, TOPIC_OF_EVENT
from tests.poison import POISON, Record

ACKNOWLEDGED_WITHIN_S = 60.0
OVERSIZED_BYTES = 300_000
"""More than max_body_bytes by default, less than a record may have."""
_STEP = re.compile(r"([STRC])(\d*)(?:=(\w+))?([-'#~?%]*)")
_ODD_HEADERS: tuple[Any, ...] = (
    [],
    [("schema-id", b"\0\0\0\1")],
    [("", None), ("", b"")],
    [("traceparent", b"\xff" * 60), ("traceparent", None)],
)


@dataclass(frozen=True)
class Story:
    """The steps of a call's life, and what its ToolCall says beyond the usual."""

    steps: str
    call: dict[str, Any] = field(default_factory=dict)


_AGAIN = {"orphans": Orphans.COMPENSATE}
_REPLAY = {"policy": Policy.REPLAY, "idempotency_key": "planner's own"}
_TWO = {"max_epochs": 2}
STORIES = (
    *map(
        Story,
        (
            "S R1",
            "S R1",
            "S R1=FAILURE",
            "S T1 C2",
            "S T1 R1 C2",
            "S T1 C2 R1",
            "S R1 R1 R1'",
            "S R1 R1# R1=FAILURE R1=UNKNOWN'",
            "S T1 R1 C2 C2 C2'",
            "S R1 T1 T1=OPERATOR",
            "S S S# R1 S",
            "S T1 C2=FAILED C3 C3'",
            "S T1 C2=UNKNOWN T3 C4",
            "S R1=UNKNOWN C2",
            "S T1 T1- T2 C2 C3",
            "S T5 R5 R1",
            "S C2 T1 C2",
            "S R1~ R1=FAILURE C2",
            "S R1% R1",
            "S T~ C~ R1",
            "S R1? T1? C1? R1",
            "S T1=CANCELLED R2 C2",
            "S C1 R1",
            "T1- S T2 R1 C2",
            "T1- T1- S",
            "R1 C1 T2 S",
        ),
    ),
    Story("S T1 C2 R1 C3 R1' C4 C4'", _AGAIN),
    Story("S T1 R1 C2 C3", _AGAIN),
    Story("S R1 T1 R1#' C2", _AGAIN),
    Story("S R1=FAILURE R1' C2 C3", _AGAIN),
    Story("S T1 R2", _REPLAY),
    Story("S T1- R1 R2", _REPLAY),
    Story("S T1 R2=FAILURE C3", _REPLAY),
    Story("S T1 T2=WATCHDOG R3 R2'", _REPLAY),
    Story("S T1 C2=FAILED T2 T2=OPERATOR C3", _TWO),
    Story("S T1 T2 C2", _TWO),
    Story("S T1 R1 C2=FAILED C2", _TWO | _AGAIN),
    Story("S R1", {"timeout_ms": 0}),
    Story("S R1", {"max_epochs": 101}),
    Story("S R1", {"tool": ""}),
    Story("S R1", {"policy": Policy.REPLAY}),
    Story("S R1", {"policy": Policy.UNRECOGNIZED}),
    Story("S T1", {"occurred_at_ms": 0}),
    Story("S R1", {"arguments": None}),
)


@dataclass
class _Call:
    call_id: str
    story: Story
    steps: list[tuple[str, str, str | None, str]]
    due: int
    """The wave of its next step."""
    incarnation: int | None = None
    executions: int = 0


class Load:
    """Sends waves of events into the four inputs. Every wave is acknowledged before the call returns.

    `committed` counts the records that must get a decision, by (topic without prefix, partition); `aborted` are those
    of aborted transactions, which must get none.
    """

    def __init__(self, bootstrap_servers: str, prefix: str, seed: int, partition_count: int = 4) -> None:
        self._random = random.Random(seed)
        self._name = f"{seed:x}"
        self._prefix = prefix
        self._partition_count = partition_count
        common = {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 1,
            "message.max.bytes": 1_048_576,
            "enable.idempotence": True,
            "logger": _quiet(),
        }
        self._plain = Producer({**common, "partitioner": "murmur2_random"})
        self._crc32 = Producer({**common, "partitioner": "consistent_random"})
        self._transactional = Producer(
            {**common, "partitioner": "murmur2_random", "transactional.id": f"{prefix}load-{self._name}"}
        )
        self._transactional.init_transactions(ACKNOWLEDGED_WITHIN_S)
        self._calls: list[_Call] = []
        self._opened = 0
        self._wave = 0
        self._unacknowledged = 0
        self.committed: Counter[tuple[str, int]] = Counter()
        self.aborted = 0
        self._in_transaction: list[Message] = []

    @property
    def total(self) -> int:
        """Records that must have a decision."""
        return self.committed.total()

    def wave(self, new_calls: int = 40) -> None:
        """Open new calls, take a step of those that have come to it, add some poison, and wait for the cluster."""
        self._wave += 1
        for _ in range(new_calls):
            self._open()
        due = [call for call in self._calls if call.due <= self._wave]
        self._random.shuffle(due)
        in_transaction = [self._random.random() < 0.15 for _ in due]
        for call, transactional in zip(due, in_transaction, strict=True):
            if not transactional:
                self._step(call, self._plain)
        for _ in range(max(1, new_calls // 8)):
            self._poison()
        self._flush()
        self._transaction([call for call, transactional in zip(due, in_transaction, strict=True) if transactional])
        self._calls = [call for call in self._calls if call.steps]

    def finish(self) -> None:
        """Tell every story to its end."""
        while self._calls:
            self.wave(0)

    def _open(self) -> None:
        story = self._random.choice(STORIES)
        odd = self._random.choice(("", "", "", " ", "é", "\U0001f512", '"\\', "@0:compensate", "\0"))
        steps = [_parse(step) for step in story.steps.split()]
        self._calls.append(_Call(f"{self._name}-{self._opened}{odd}", story, steps, self._wave))
        self._opened += 1

    def _step(self, call: _Call, producer: Producer) -> None:
        event = self._event(call, *call.steps.pop(0))
        call.due = self._wave + self._random.choice((1, 1, 1, 2, 3))
        opens = isinstance(event, ToolCall) and call.incarnation is None

        def acknowledged(message: Message) -> None:
            if opens:
                call.incarnation = message.offset()

        topic = TOPIC_OF_EVENT[type(event)]
        self._send(producer, topic, event.call_id.encode(), encode_event(event), then=acknowledged)

    # ---- events ---------------------------------------------------------------------------------------------------

    def _event(self, call: _Call, kind: str, epoch: str, said: str | None, how: str) -> Event:
        if kind == "S":
            return self._tool_call(call, how)
        incarnation = call.incarnation or 0
        if "?" in how:
            incarnation += 1
        number = None if "~" in how else int(epoch)
        event_id = f"{call.call_id}/{kind}{epoch}"
        if kind == "T":
            knows = "-" not in how and call.incarnation is not None and ("?" in how or self._random.random() < 0.5)
            cause = Cause(said or "DEADLINE")
            return Timeout(event_id, call.call_id, number, incarnation if knows else None, cause, "planner", _now_ms())
        if "'" in how:
            call.executions += 1
        execution_id = f"x{epoch}.{call.executions}"
        outcome = Outcome(said or ("SUCCESS" if kind == "R" else "OK"))
        payload = f"held for {call.call_id}{'#' if '#' in how else ''}".encode() if outcome is Outcome.SUCCESS else None
        if "%" in how:
            payload, execution_id = self._random.choice(
                ((None, "x"), (payload, ""), (bytes(OVERSIZED_BYTES // 4) * 4, execution_id))
            )
        of = Result if kind == "R" else Compensation
        speaker = "gateway" if kind == "R" else "compensator"
        return of(event_id, call.call_id, number, incarnation, execution_id, outcome, payload, speaker, _now_ms())

    def _tool_call(self, call: _Call, how: str) -> ToolCall:
        usual: dict[str, Any] = {
            "event_id": f"{call.call_id}/S",
            "call_id": call.call_id,
            "tool": "reserve",
            "arguments": b"seat 13" if "#" in how else b"seat 12",
            "idempotency_key": "",
            "timeout_ms": 3_600_000,
            "policy": Policy.COMPENSATE,
            "orphans": Orphans.REPORT,
            "max_epochs": 8,
            "runner": "gateway",
            "source": "planner",
            "occurred_at_ms": _now_ms(),
        }
        return ToolCall(**{**usual, **call.story.call})

    # ---- poison ---------------------------------------------------------------------------------------------------

    def _poison(self) -> None:
        """A record that no honest client sends: spoilt bytes, keys and places, or an event that is not admitted."""
        kind = self._random.choice((*POISON, *_NOT_ADMITTED))
        topic = self._random.choice(INPUT_TOPICS)
        call = _Call(f"{self._name}-p{self._random.randrange(10**6)}", Story("S"), [], 0, 0)
        if kind == "oversized arguments":
            topic, call.story = "tool-calls", Story("S", {"arguments": bytes(OVERSIZED_BYTES)})
        if kind == "no call_id":
            call.call_id = self._random.choice(("", "\0checkpoint", "x" * 257))
        step = {"tool-calls": "S", "timeouts": "T1", "results": "R1", "compensations": "C1"}[topic]
        key, value = call.call_id.encode(), encode_event(self._event(call, *_parse(step)))
        if kind == "another topic's event":
            topic = self._random.choice([name for name in INPUT_TOPICS if name != topic])
        record = POISON[kind](self._random, key, value) if kind in POISON else Record(key, value)
        place = None
        if record.partitions_off:
            place = (int(murmur2(key, self._partition_count)) + record.partitions_off) % self._partition_count
        producer = self._crc32 if record.by_crc32 else self._plain
        self._send(producer, topic, record.key, record.value, partition=place)

    # ---- sending --------------------------------------------------------------------------------------------------

    def _send(
        self,
        producer: Producer,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        then: Callable[[Message], None] = lambda message: None,
    ) -> None:
        transactional = producer is self._transactional
        self._unacknowledged += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, f"{topic}: {error}"
            self._unacknowledged -= 1
            then(message)
            if transactional:
                self._in_transaction.append(message)
            else:
                self._count(message)

        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        headers = self._random.choice(_ODD_HEADERS)
        producer.produce(self._prefix + topic, value, key, on_delivery=delivered, headers=headers, **more)

    def _count(self, message: Message) -> None:
        self.committed[(message.topic() or "").removeprefix(self._prefix), message.partition() or 0] += 1

    def _transaction(self, calls: list[_Call]) -> None:
        """Steps whose sender works in transactions, and takes a third of them back."""
        if not calls:
            return
        abort = self._random.random() < 0.35
        self._transactional.begin_transaction()
        for call in calls:
            self._step(call, self._transactional)
        self._flush()
        if abort:
            self._transactional.abort_transaction(ACKNOWLEDGED_WITHIN_S)
            self.aborted += len(self._in_transaction)
        else:
            self._transactional.commit_transaction(ACKNOWLEDGED_WITHIN_S)
            for message in self._in_transaction:
                self._count(message)
        self._in_transaction = []

    def _flush(self) -> None:
        for producer in (self._plain, self._crc32, self._transactional):
            producer.flush(ACKNOWLEDGED_WITHIN_S)
        assert self._unacknowledged == 0, f"{self._unacknowledged} records were not acknowledged"


_NOT_ADMITTED = ("oversized arguments", "no call_id", "another topic's event")


def _parse(step: str) -> tuple[str, str, str | None, str]:
    found = _STEP.fullmatch(step)
    assert found is not None, f"{step!r} is no step"
    kind, epoch, said, how = found.groups()
    return kind, epoch, said, how


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _quiet() -> Any:
    from epochfence.engine.kafka.client_config import LIBRDKAFKA_LOGGER

    return LIBRDKAFKA_LOGGER


@contextmanager
def pouring(load: Load, *, new_calls: int, pause_s: float) -> Iterator[None]:
    """Wave after wave until the block is over, so that a processor works, and is disturbed, while they come.

    At the end of the block every story is told to its end.
    """
    over = threading.Event()

    def pour() -> None:
        while not over.wait(pause_s):
            load.wave(new_calls)

    with ThreadPoolExecutor(1) as pool:
        poured = pool.submit(pour)
        try:
            yield
        finally:
            over.set()
        poured.result()
    load.finish()
