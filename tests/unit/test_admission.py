"""Admission: every rule, its boundaries, and that the first reason in the protocol's order is the one given."""

from __future__ import annotations

from typing import Any

import pytest

from epochfence.protocol.admission import Parameters, refusal
from epochfence.protocol.events import MAX_TIMEOUT_MS, Event, Input
from epochfence.protocol.partition import Partition
from epochfence.protocol.vocabulary import EventType, Policy, Reason, Verdict
from tests.builders import call, compensation, result, timeout

PARAMETERS = Parameters(retention_ms=1000, max_body_bytes=8)
SMALL = {"arguments": None}


def refused(
    event: Event | None, *, key: bytes | str | None = "own", in_its_partition: bool = True, timestamp_ms: int = 0
) -> Reason | None:
    if isinstance(key, str):
        key = b"" if event is None else event.call_id.encode()
    at = Input("epochfence.tool-calls", 0, 0, timestamp_ms, "")
    return refusal(event, key, in_its_partition, at, PARAMETERS)


def small(**more: Any) -> Event:
    return call(**{**SMALL, **more})


def test_a_good_event_of_each_kind_is_admitted() -> None:
    for event in (small(), timeout(1), result(1), compensation(1)):
        assert refused(event) is None


def test_bytes_that_do_not_decode() -> None:
    assert refused(None) is Reason.UNDECODABLE
    assert refused(None, key=None, in_its_partition=False) is Reason.UNDECODABLE


@pytest.mark.parametrize("event", [small(), timeout(1), result(1), compensation(1)], ids=lambda e: type(e).__name__)
def test_misrouted(event: Event) -> None:
    assert refused(event, in_its_partition=False) is Reason.MISROUTED
    assert refused(event, key=None) is Reason.MISROUTED
    assert refused(event, key=b"") is Reason.MISROUTED
    assert refused(event, key=b"8") is Reason.MISROUTED
    assert refused(event, key=b"7\x00") is Reason.MISROUTED


@pytest.mark.parametrize(
    ("call_id", "reason"),
    [
        ("", Reason.MALFORMED),
        ("a" * 256, None),
        ("a" * 257, Reason.MALFORMED),
        ("é" * 128, None),  # bytes are counted, not characters
        ("é" * 128 + "a", Reason.MALFORMED),
        ("\0", Reason.MALFORMED),
        ("\0checkpoint", Reason.MALFORMED),
        ("a\0", None),
        (" ", None),
    ],
)
def test_call_id(call_id: str, reason: Reason | None) -> None:
    for event in (small(call_id=call_id), timeout(1, call_id=call_id), result(1, call_id=call_id)):
        assert refused(event) is reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"timeout_ms": 0}, Reason.MALFORMED),
        ({"timeout_ms": -1}, Reason.MALFORMED),
        ({"timeout_ms": 1}, None),
        ({"timeout_ms": MAX_TIMEOUT_MS}, None),
        ({"timeout_ms": MAX_TIMEOUT_MS + 1}, Reason.MALFORMED),
        ({"max_epochs": 1}, Reason.MALFORMED),
        ({"max_epochs": 2}, None),
        ({"max_epochs": 100}, None),
        ({"max_epochs": 101}, Reason.MALFORMED),
        ({"tool": ""}, Reason.MALFORMED),
        ({"runner": ""}, Reason.MALFORMED),
        ({"policy": Policy.REPLAY}, Reason.MALFORMED),
        ({"policy": Policy.REPLAY, "idempotency_key": "k"}, None),
        ({"arguments": b"x" * 8}, None),
        ({"arguments": b"x" * 9}, Reason.OVERSIZED),
        ({"arguments": b""}, None),
        ({"source": "", "event_id": ""}, None),
    ],
)
def test_a_tool_call_out_of_range(fields: dict[str, Any], reason: Reason | None) -> None:
    assert refused(small(**fields)) is reason


def test_30_days() -> None:
    assert MAX_TIMEOUT_MS == 2_592_000_000


@pytest.mark.parametrize(
    ("occurred_at_ms", "timestamp_ms", "reason"),
    [
        (0, 1000, None),
        (0, 1001, Reason.EXPIRED),
        (5, 1005, None),
        (2000, 0, None),  # a planner's clock that is ahead
        (-(2**63), 2**63 - 1, Reason.EXPIRED),
    ],
)
def test_an_old_turn_has_expired(occurred_at_ms: int, timestamp_ms: int, reason: Reason | None) -> None:
    assert refused(small(occurred_at_ms=occurred_at_ms), timestamp_ms=timestamp_ms) is reason


def test_only_tool_calls_expire_or_are_looked_into() -> None:
    for event in (timeout(1), result(1, payload=b"x" * 99), result(None), compensation(1, execution_id="")):
        assert refused(event, timestamp_ms=10**9) is None


def test_the_first_reason_in_order_is_given() -> None:
    """Each step mends the first fault; the next reason comes out."""
    bad: dict[str, Any] = {"call_id": "", "timeout_ms": 0, "policy": Policy.REPLAY, "arguments": b"x" * 9}
    steps: list[tuple[dict[str, Any], bool, Reason | None]] = [
        ({}, False, Reason.MISROUTED),
        ({}, True, Reason.MALFORMED),
        ({"call_id": "7"}, True, Reason.MALFORMED),
        ({"timeout_ms": 1}, True, Reason.MALFORMED),
        ({"idempotency_key": "k"}, True, Reason.OVERSIZED),
        ({"arguments": b""}, True, Reason.EXPIRED),
        ({"occurred_at_ms": 10**6}, True, None),
    ]
    for mended, in_its_partition, reason in steps:
        bad.update(mended)
        assert refused(call(**bad), in_its_partition=in_its_partition, timestamp_ms=10**6) is reason


def test_defaults() -> None:
    assert Parameters() == (24 * 3600 * 1000, 256 * 1024)


def decide(event: Event | None, key: bytes | None, call_id: str, in_its_partition: bool = True) -> tuple[Any, Any]:
    partition = Partition(Parameters())
    at = Input("epochfence.results", 3, 5, 7, "" if event is None else event.event_id)
    decision = partition.decide(event, key, call_id, in_its_partition, at)
    assert partition.calls == {}, "admission touches no record"
    return decision, at


def test_a_refusal_is_a_decision_about_no_record() -> None:
    decision, at = decide(result(1), b"8", "8")
    assert (decision.verdict, decision.reason, decision.seq) == (Verdict.REJECT, Reason.MISROUTED, 1)
    assert (decision.call_seq, decision.live_epoch, decision.status, decision.incarnation) == (0, 0, None, None)
    assert (decision.event, decision.epoch, decision.execution_id) == (EventType.RESULT, 1, "x")
    assert (decision.call_id, decision.input) == ("7", at)
    assert decision.orphaned_effect is False, "only rows of the table flag"


def test_an_undecodable_record_has_no_claims_and_the_name_that_its_key_gives() -> None:
    decision, _ = decide(None, b"7", "7", in_its_partition=False)
    assert (decision.call_id, decision.reason, decision.event) == ("7", Reason.UNDECODABLE, EventType.NONE)
    assert (decision.epoch, decision.outcome, decision.cause, decision.execution_id) == (None,) * 4
    assert decision.input.event_id == ""


def test_a_refused_tool_call_opens_nothing() -> None:
    decision, _ = decide(call(tool=""), b"7", "7")
    assert (decision.reason, decision.dispatch) == (Reason.MALFORMED, None)
