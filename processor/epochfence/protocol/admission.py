"""Admission: what touches no record, and why. In the order of the protocol; the first reason that fits is given.

Every input is hostile until it has passed here.
"""

from typing import NamedTuple

from epochfence.protocol.events import (
    MAX_CALL_ID_BYTES,
    MAX_MAX_EPOCHS,
    MAX_TIMEOUT_MS,
    MIN_MAX_EPOCHS,
    Event,
    Input,
    ToolCall,
)
from epochfence.protocol.vocabulary import Policy, Reason


class Parameters(NamedTuple):
    """What an operator may choose, in force for a whole transaction and written into its checkpoint."""

    retention_ms: int = 86_400_000
    max_body_bytes: int = 262_144


def refusal(
    event: Event | None, key: bytes | None, in_its_partition: bool, at: Input, parameters: Parameters
) -> Reason | None:
    """Why the record is not admitted, or None.

    `event` is None where the bytes do not decode; `in_its_partition` says whether the record lies in the partition
    that murmur2 gives its key.
    """
    if event is None:
        return Reason.UNDECODABLE
    call_id = event.call_id.encode()
    if not in_its_partition or key is None or key != call_id:
        return Reason.MISROUTED
    if not call_id or len(call_id) > MAX_CALL_ID_BYTES or call_id[0] == 0:
        return Reason.MALFORMED
    if type(event) is not ToolCall:
        return None
    return _tool_call_refusal(event, at, parameters)


def _tool_call_refusal(event: ToolCall, at: Input, parameters: Parameters) -> Reason | None:
    if not (
        1 <= event.timeout_ms <= MAX_TIMEOUT_MS
        and MIN_MAX_EPOCHS <= event.max_epochs <= MAX_MAX_EPOCHS
        and event.tool
        and event.runner
    ):
        return Reason.MALFORMED
    if event.policy is Policy.REPLAY and not event.idempotency_key:
        return Reason.MALFORMED  # replaying an effect that has no key of its own would pay for it twice
    if event.arguments is not None and len(event.arguments) > parameters.max_body_bytes:
        return Reason.OVERSIZED
    if at.timestamp_ms - event.occurred_at_ms > parameters.retention_ms:
        return Reason.EXPIRED  # a turn sent again: its calls may be forgotten, and must not open anew
    return None
