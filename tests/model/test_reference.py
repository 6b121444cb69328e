"""The reference holds to the shared cases and to sentences of the protocol that those do not reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.independent.jsonform import FIELDS
from tests.independent.reference import ReferencePartition

ROOT = Path(__file__).parents[2]
CASES = [json.loads(line) for line in (ROOT / "tests/vectors/fold_cases.jsonl").read_text("utf-8").splitlines()]


def fold(*events: dict[str, Any] | bytes | str, **parameters: int) -> list[dict[str, Any]]:
    partition = ReferencePartition(**parameters)  # type: ignore[arg-type]
    lines = (e if isinstance(e, bytes) else (e if isinstance(e, str) else json.dumps(e)).encode() for e in events)
    return [partition.decide_line(line) for line in lines]


def call(**more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": "7", "tool": "reserve", "arguments": "seat 12", "timeout_ms": 1000, **more}


def timeout(epoch: int, **more: Any) -> dict[str, Any]:
    return {"type": "timeout", "call_id": "7", "epoch": epoch, **more}


def result(epoch: int, outcome: str = "SUCCESS", **more: Any) -> dict[str, Any]:
    body = "held" if outcome == "SUCCESS" else None
    return {"type": "result", "call_id": "7", "epoch": epoch, "outcome": outcome, "payload": body, **more}


def compensation(epoch: int, outcome: str = "OK", **more: Any) -> dict[str, Any]:
    return {"type": "compensation", "call_id": "7", "epoch": epoch, "outcome": outcome, **more}


def said(decision: dict[str, Any]) -> str:
    return f"{decision['verdict']} {decision['reason']}"


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_shared_case(case: dict[str, Any]) -> None:
    decisions = fold(*case["events"])
    assert len(decisions) == len(case["decisions"])
    for got, wanted in zip(decisions, case["decisions"], strict=True):
        assert {**got, **wanted, "dispatch": None} == {**got, "dispatch": None}
        assert (got["dispatch"] is None) == (wanted["dispatch"] is None)
        for name, value in (wanted["dispatch"] or {}).items():
            assert got["dispatch"][name] == value


def test_a_decision_has_every_field_of_the_schema() -> None:
    schema = json.loads((ROOT / "schemas/decision.avsc").read_text("utf-8"))
    names = {field["name"]: field for field in schema["fields"]}
    dispatch = {field["name"] for field in names["dispatch"]["type"][1]["fields"]}
    source = {field["name"] for field in names["input"]["type"]["fields"]}
    for decision in fold(call(), "", timeout(1)):
        assert set(decision) == set(names) | {"type"}
        assert set(decision["input"]) == source
        assert decision["dispatch"] is None or set(decision["dispatch"]) == dispatch


def test_the_json_form_has_the_fields_and_defaults_of_the_schemas() -> None:
    for kind, fields in FIELDS.items():
        schema = json.loads((ROOT / "schemas" / f"{kind}.avsc").read_text("utf-8"))
        assert [field["name"] for field in schema["fields"]] == list(fields)
        for field in schema["fields"]:
            nullable = isinstance(field["type"], list)
            assert fields[field["name"]][1] is nullable, field["name"]
            if "default" in field:
                assert fields[field["name"]][2] == field["default"], field["name"]


UNDECODABLE = [
    b"",
    b"   \n",
    b"[]",
    b"7",
    b"{",
    b"\xef\xbb\xbf{}",
    b'{"type":"timeout","call_id":"\xff","epoch":1}',
    b'{"type":"timeout","call_id":"7","epoch":1,"epoch":1}',
    b'{"type":"timeout","call_id":"7","epoch":1.0}',
    b'{"type":"timeout","call_id":"7","epoch":1e0}',
    b'{"type":"timeout","call_id":"7","epoch":true}',
    b'{"type":"timeout","call_id":"7","epoch":"1"}',
    b'{"type":"timeout","call_id":"7","epoch":9223372036854775808}',
    b'{"type":"timeout","call_id":"7","epoch":NaN}',
    b'{"type":"timeout","call_id":"7","epoch":1,"cause":"UNRECOGNIZED"}',
    b'{"type":"timeout","call_id":"7","epoch":1,"cause":null}',
    b'{"type":"timeout","call_id":"7","epoch":1,"execution_id":"x"}',
    b'{"type":"timeout","call_id":"\\ud800","epoch":1}',
    b'{"type":"timeout","call_id":null,"epoch":1}',
    b'{"type":"timeout","epoch":1}',
    b'{"type":"timeout","call_id":"7","epoch":1,"timestamp_ms":null}',
    b'{"type":"decision","call_id":"7"}',
    b'{"type":"TIMEOUT","call_id":"7","epoch":1}',
    b'{"call_id":"7","epoch":1}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"OK","payload":"x"}',
    b'{"type":"result","call_id":"7","epoch":1,"payload":"x"}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"SUCCESS","payload":"x","incarnation":null}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"SUCCESS","payload":{"base64":"QQ"}}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"SUCCESS","payload":{"base64":"QQ==\\n"}}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"SUCCESS","payload":{"base64":"QUJD="}}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"SUCCESS","payload":{"base64":"QQ==","base64":"QQ=="}}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"SUCCESS","payload":{"base64":"QQ==","x":1}}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"SUCCESS","payload":[1]}',
    b"[" * 100_000,
    b'{"type":"timeout","call_id":"7","epoch":' + b"1" * 5000 + b"}",
]


@pytest.mark.parametrize("line", UNDECODABLE, ids=range(len(UNDECODABLE)))
def test_undecodable_line(line: bytes) -> None:
    (decision,) = fold(line)
    assert said(decision) == "REJECT UNDECODABLE"
    assert (decision["event"], decision["call_id"], decision["call_seq"]) == ("NONE", "", 0)


def test_left_out_fields_come_from_the_line() -> None:
    decision = fold("", '{"type":"result","call_id":"7","outcome":"FAILURE","timestamp_ms":5}')[1]
    assert (decision["execution_id"], decision["input"]["event_id"], decision["epoch"]) == ("1", "1", None)
    assert decision["input"]["timestamp_ms"] == 5
    assert said(decision) == "REJECT MALFORMED"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"call_id": ""}, "MALFORMED"),
        ({"call_id": "é" * 129}, "MALFORMED"),
        ({"call_id": "\0x"}, "MALFORMED"),
        ({"timeout_ms": 0}, "MALFORMED"),
        ({"timeout_ms": 2_592_000_001}, "MALFORMED"),
        ({"max_epochs": 1}, "MALFORMED"),
        ({"max_epochs": 101}, "MALFORMED"),
        ({"tool": ""}, "MALFORMED"),
        ({"runner": ""}, "MALFORMED"),
        ({"policy": "REPLAY"}, "MALFORMED"),
        ({"arguments": "x" * 11}, "OVERSIZED"),
        ({"arguments": "x" * 11, "timeout_ms": 0}, "MALFORMED"),
        ({"timestamp_ms": 101, "occurred_at_ms": 0}, "EXPIRED"),
    ],
)
def test_admission(more: dict[str, Any], reason: str) -> None:
    (decision,) = fold(call(**more), retention_ms=100, max_body_bytes=10)
    assert said(decision) == f"REJECT {reason}"
    assert (decision["call_seq"], decision["live_epoch"], decision["status"]) == (0, 0, None)


def test_at_the_edges_a_call_is_admitted() -> None:
    edge = call(call_id="é" * 128, timeout_ms=2_592_000_000, max_epochs=100, arguments="x" * 10)
    (decision,) = fold({**edge, "timestamp_ms": 100, "occurred_at_ms": 0}, retention_ms=100, max_body_bytes=10)
    assert said(decision) == "OPEN NONE"


def test_the_33rd_orphan_pushes_out_the_first() -> None:
    orphans = [result(1, execution_id=f"x{n}") for n in range(33)]
    decisions = fold(call(), timeout(1), *orphans, orphans[1], orphans[0])
    assert all(decision["orphaned_effect"] for decision in decisions[2:35])
    assert not decisions[35]["orphaned_effect"]
    assert decisions[36]["orphaned_effect"]


def test_an_ok_older_than_the_newest_orphan_commits_but_does_not_settle() -> None:
    events = [call(max_epochs=2, orphans="COMPENSATE"), timeout(1), result(1), compensation(2), timeout(2)]
    last_but_one, last = fold(*events, timeout(2, cause="OPERATOR"), compensation(3, execution_id="c"))[-2:]
    decisions = fold(*events)
    assert decisions[2]["status"] == "ESCALATED"
    assert said(decisions[3]) == "COMMIT NONE"
    assert decisions[3]["unsettled"]
    assert said(decisions[4]) == "REJECT ALREADY_COMMITTED"
    assert last_but_one["dispatch"]["idempotency_key"] == "7@0:compensate:2"
    assert last_but_one["dispatch"]["evidence"] == "held"
    assert said(last) == "SETTLE NONE"
    assert not last["unsettled"]


def test_an_unsettled_call_is_never_forgotten() -> None:
    events = [call(max_epochs=2, orphans="COMPENSATE"), timeout(1), result(1), compensation(2)]
    later = {"type": "timeout", "call_id": "8", "epoch": 2, "timestamp_ms": 10_000}
    assert said(fold(*events, later, timeout(2), retention_ms=10)[-1]) == "REJECT ALREADY_COMMITTED"
    assert said(fold(call(), result(1), later, timeout(1), retention_ms=10)[-1]) == "FENCE FENCED_BEFORE_OPEN"


def test_a_call_is_forgotten_only_when_retention_is_over() -> None:
    early = {"type": "timeout", "call_id": "8", "epoch": 2, "timestamp_ms": 10}
    assert said(fold(call(), result(1), early, result(1), retention_ms=10)[-1]) == "REJECT DUPLICATE"
    late = {**early, "timestamp_ms": 11}
    assert said(fold(call(), result(1), late, result(1), retention_ms=10)[-1]) == "REJECT UNKNOWN_CALL"


def test_an_oversized_payload_leaves_the_older_evidence() -> None:
    decisions = fold(
        call(), result(2, payload="a"), result(2, payload="x" * 11, execution_id="y"), timeout(1), max_body_bytes=10
    )
    assert [said(d) for d in decisions[1:3]] == ["REJECT FUTURE_EPOCH", "REJECT OVERSIZED"]
    assert decisions[3]["dispatch"]["evidence"] == "a"


def test_bytes_that_are_not_utf8_are_written_as_base64() -> None:
    decisions = fold(call(arguments={"base64": "/w=="}), result(1, payload={"base64": ""}))
    assert decisions[0]["dispatch"]["arguments"] == {"base64": "/w=="}
    assert decisions[1]["payload"] == ""
