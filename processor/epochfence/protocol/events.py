"""The four events, as values. Field for field and in the order of schemas/*.avsc, which say what each field means.

An event is never changed once made. (The classes are not frozen only because that would make each one three times
as slow to build, and one is built for every record that the processor reads.)
"""

from dataclasses import dataclass
from typing import NamedTuple, final

from epochfence.protocol.vocabulary import Cause, Orphans, Outcome, Policy

MAX_CALL_ID_BYTES = 256
MAX_TIMEOUT_MS = 30 * 24 * 3600 * 1000
MIN_MAX_EPOCHS = 2
MAX_MAX_EPOCHS = 100


class Input(NamedTuple):
    """Which record an event came in: topic, partition, offset, the broker's timestamp in ms, and its event_id."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    event_id: str


@final
@dataclass(slots=True)
class ToolCall:
    """A planner asks for a tool to run. Opens epoch 1."""

    event_id: str
    call_id: str
    tool: str
    arguments: bytes | None
    idempotency_key: str
    timeout_ms: int
    policy: Policy
    orphans: Orphans
    max_epochs: int
    runner: str
    source: str
    occurred_at_ms: int


@final
@dataclass(slots=True)
class Timeout:
    """Somebody asks to end an epoch. `epoch` is the one it wants to end; None is a mistake that is recorded."""

    event_id: str
    call_id: str
    epoch: int | None
    incarnation: int | None
    cause: Cause
    source: str
    occurred_at_ms: int


@final
@dataclass(slots=True)
class Result:
    """A gateway tells what became of a CALL dispatch, whose (incarnation, epoch) it echoes."""

    event_id: str
    call_id: str
    epoch: int | None
    incarnation: int
    execution_id: str
    outcome: Outcome
    payload: bytes | None
    source: str
    occurred_at_ms: int


@final
@dataclass(slots=True)
class Compensation:
    """A compensator tells what became of a COMPENSATE dispatch, whose (incarnation, epoch) it echoes."""

    event_id: str
    call_id: str
    epoch: int | None
    incarnation: int
    execution_id: str
    outcome: Outcome
    payload: bytes | None
    source: str
    occurred_at_ms: int


Event = ToolCall | Timeout | Result | Compensation
