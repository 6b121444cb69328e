"""The JSON form, sentence by sentence, as `epochfence fold` reads and writes it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Chain, Checkpoint, InputPosition
from epochfence.protocol.events import Compensation, Result, Timeout, ToolCall
from epochfence.protocol.vocabulary import Cause, Orphans, Outcome, Policy
from epochfence.simulation.lines import LineFold
from epochfence.wire.jsonl import LineError, read_event, to_json, write_decision
from epochfence.wire.schemas import load_schema

CALL = {"type": "tool_call", "call_id": "7", "tool": "reserve", "timeout_ms": 1000}
TIMEOUT = {"type": "timeout", "call_id": "7", "epoch": 1}
RESULT = {"type": "result", "call_id": "7", "epoch": 1, "outcome": "SUCCESS", "payload": "held"}
COMPENSATION = {"type": "compensation", "call_id": "7", "epoch": 2, "outcome": "OK"}
EACH = pytest.mark.parametrize("good", [CALL, TIMEOUT, RESULT, COMPENSATION], ids=lambda line: line["type"])


def line(base: dict[str, Any], *leave_out: str, **more: Any) -> bytes:
    values = {name: value for name, value in {**base, **more}.items() if name not in leave_out}
    return json.dumps(values).encode()


def read(base: dict[str, Any], *leave_out: str, **more: Any) -> Any:
    return read_event(line(base, *leave_out, **more), 4).event


def decide(*lines: bytes) -> list[dict[str, Any]]:
    """What `fold` prints."""
    fold = LineFold(Parameters())
    return [json.loads(write_decision(fold.decide(each), decided=False)) for each in lines]


# ---- what may be left out ----------------------------------------------------------------------------------------


def test_what_may_be_left_out_of_a_tool_call() -> None:
    assert read(CALL) == ToolCall(
        "4", "7", "reserve", None, "", 1000, Policy.COMPENSATE, Orphans.REPORT, 8, "gateway", "", 0
    )


def test_what_may_be_left_out_of_a_timeout() -> None:
    assert read(TIMEOUT, "epoch") == Timeout("4", "7", None, None, Cause.DEADLINE, "", 0)


def test_what_may_be_left_out_of_an_answer() -> None:
    assert read(RESULT, "epoch", "payload", incarnation=3) == Result(
        "4", "7", None, 3, "4", Outcome.SUCCESS, None, "", 0
    )
    assert read(COMPENSATION, incarnation=3) == Compensation("4", "7", 2, 3, "4", Outcome.OK, None, "", 0)


def test_execution_id_is_the_event_id_and_that_the_line_number_as_a_string() -> None:
    assert read(RESULT, event_id="e").execution_id == "e"
    assert read(RESULT, event_id="").execution_id == ""
    assert read(RESULT, event_id="e", execution_id="x").execution_id == "x"


def test_occurred_at_ms_is_the_timestamp_of_the_broker_where_it_is_left_out() -> None:
    assert read(CALL, timestamp_ms=5).occurred_at_ms == 5
    assert read(CALL, timestamp_ms=5, occurred_at_ms=-6).occurred_at_ms == -6
    assert read_event(line(CALL, timestamp_ms=5), 0).timestamp_ms == 5
    assert read_event(line(CALL), 0).timestamp_ms == 0


def test_everything_can_be_said() -> None:
    said = {
        "event_id": "e",
        "arguments": "seat 12",
        "idempotency_key": "k",
        "policy": "REPLAY",
        "orphans": "COMPENSATE",
        "max_epochs": 3,
        "runner": "p",
        "source": "s",
        "occurred_at_ms": 9,
    }
    assert read(CALL, **said) == ToolCall(
        "e", "7", "reserve", b"seat 12", "k", 1000, Policy.REPLAY, Orphans.COMPENSATE, 3, "p", "s", 9
    )
    assert read(TIMEOUT, incarnation=2, cause="OPERATOR").cause is Cause.OPERATOR


@pytest.mark.parametrize(
    ("base", "names"),
    [
        (CALL, ["type", "call_id", "tool", "timeout_ms"]),
        (TIMEOUT, ["type", "call_id"]),
        (RESULT, ["type", "call_id", "outcome"]),
        (COMPENSATION, ["type", "call_id", "outcome"]),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_what_may_not_be_left_out(base: dict[str, Any], names: list[str]) -> None:
    for name in base:
        if name in names:
            with pytest.raises(LineError):
                read(base, name)
        else:
            read(base, name)


@EACH
def test_only_nullable_fields_may_be_null(good: dict[str, Any]) -> None:
    for field in load_schema(good["type"])["fields"]:
        said = {field["name"]: None}
        if isinstance(field["type"], list):
            assert getattr(read(good, **said), field["name"]) is None
        else:
            with pytest.raises(LineError):
                read(good, **said)
    for name in ("type", "timestamp_ms"):
        with pytest.raises(LineError):
            read(good, **{name: None})


# ---- what makes a line undecodable -------------------------------------------------------------------------------

NO_EVENTS = {
    "blank": b"",
    "spaces": b"  \t ",
    "not JSON": b"{",
    "no object": b"[]",
    "a string": b'"tool_call"',
    "null": b"null",
    "two objects": line(CALL) + b" " + line(CALL),
    "something after it": line(CALL) + b" x",
    "a comment": b"# " + line(CALL),
    "single quotes": line(CALL).replace(b'"', b"'"),
    "bad UTF-8": line(CALL)[:-1] + b', "source": "\xff"}',
    "a byte order mark": b"\xef\xbb\xbf" + line(CALL),
    "UTF-16": line(CALL).decode().encode("utf-16"),
    "half a surrogate pair": line(CALL)[:-1] + b', "source": "\\ud800"}',
    "half a surrogate pair in bytes": line(CALL)[:-1] + b', "arguments": "\\udc00"}',
    "no type": line(CALL, "type"),
    "another type": line(CALL, type="decision"),
    "type in upper case": line(CALL, type="TOOL_CALL"),
    "type of the wrong type": line(CALL, type=["tool_call"]),
    "unknown field": line(CALL, epochs=3),
    "a field of another event": line(CALL, epoch=1),
    "a field twice": line(CALL)[:-1] + b', "tool": "reserve"}',
    "type twice": line(CALL)[:-1] + b', "type": "tool_call"}',
    "timestamp twice": line(CALL, timestamp_ms=1)[:-1] + b', "timestamp_ms": 1}',
    "base64 twice": line(CALL)[:-1] + b', "arguments": {"base64": "", "base64": ""}}',
    "NaN": line(CALL, "timeout_ms")[:-1] + b', "timeout_ms": NaN}',
    "Infinity where nobody looks": line(CALL)[:-1] + b', "max_epochs": -Infinity}',
    "a number of thousands of digits": line(CALL, "timeout_ms")[:-1] + b', "timeout_ms": ' + b"9" * 5000 + b"}",
    "a tower of brackets": b"[" * 100_000,
    "a control character in a string": line(CALL)[:-1] + b', "source": "\x01"}',
}


@pytest.mark.parametrize("text", NO_EVENTS.values(), ids=NO_EVENTS.keys())
def test_a_line_that_is_no_event_is_decided_undecodable(text: bytes) -> None:
    with pytest.raises(LineError):
        read_event(text, 0)
    opened, poison, again = decide(line(CALL, timestamp_ms=3), text, line(CALL))
    assert (poison["verdict"], poison["reason"], poison["seq"]) == ("REJECT", "UNDECODABLE", 2)
    assert (poison["call_id"], poison["call_seq"], poison["event"], poison["epoch"]) == ("", 0, "NONE", None)
    assert poison["input"]["offset"] == 1
    assert (opened["seq"], again["seq"], again["reason"]) == (1, 3, "DUPLICATE")


WRONG = {
    "long": [1.0, 1e3, "1", True, [], {}, 2**63, -(2**63) - 1],
    "string": [1, True, [], {}, {"base64": "eA=="}],
    "bytes": [1, True, [], {}, {"base64": 1}, {"base64": "eA==", "x": 1}, {"hex": "00"}, ["x"]],
    "enum": [1, "", "deadline", "UNRECOGNIZED", [], {}, "NOBODY"],
}


@EACH
def test_a_value_of_the_wrong_type(good: dict[str, Any]) -> None:
    for field in load_schema(good["type"])["fields"]:
        kind = field["type"][1] if isinstance(field["type"], list) else field["type"]
        for value in WRONG[kind["type"] if isinstance(kind, dict) else kind]:
            with pytest.raises(LineError):
                read(good, **{field["name"]: value})
    for value in WRONG["long"]:
        with pytest.raises(LineError):
            read(good, timestamp_ms=value)


def test_symbols_of_the_other_answer_are_unknown() -> None:
    for base, outcome in ((RESULT, "OK"), (RESULT, "FAILED"), (COMPENSATION, "SUCCESS"), (COMPENSATION, "FAILURE")):
        with pytest.raises(LineError):
            read(base, outcome=outcome)


def test_integers_have_64_bits() -> None:
    for value in (2**63 - 1, -(2**63), 0):
        assert read(CALL, timeout_ms=value).timeout_ms == value
    assert read_event(line(CALL, "timeout_ms")[:-1] + b', "timeout_ms": -0}', 0).event.timeout_ms == 0  # type: ignore[union-attr]


def test_white_space_is_free() -> None:
    assert read_event(b" \t" + line(CALL) + b" \r", 4).event == read(CALL)


# ---- bytes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"seat 12", "sitz é €".encode(), b"\xff\x00\xfe", bytes(range(256))])
def test_bytes_are_a_string_or_base64(body: bytes) -> None:
    assert read(CALL, arguments={"base64": base64.b64encode(body).decode()}).arguments == body
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return
    assert read(CALL, arguments=text).arguments == body


@pytest.mark.parametrize("text", ["e", "eA", "eA=", "eA===", "e A==", "eA==\n", "eA-_", "eA==eA==", "=", "é"])
def test_base64_is_strict(text: str) -> None:
    with pytest.raises(LineError):
        read(CALL, arguments={"base64": text})


def test_null_and_empty_bytes_differ() -> None:
    assert read(CALL, arguments=None).arguments is None
    assert read(CALL, arguments="").arguments == b""
    assert read(CALL, arguments={"base64": ""}).arguments == b""
    first, second = decide(line(CALL, arguments=None), line(CALL, arguments=""))
    assert first["dispatch"]["arguments"] is None
    assert second["reason"] == "CONFLICT"


def test_bytes_that_are_utf_8_are_written_as_a_string() -> None:
    for body, written in ((b"caf\xc3\xa9", "café"), (b"", ""), (b"\xff", {"base64": "/w=="}), (b"\x00", "\0")):
        said = {"base64": base64.b64encode(body).decode()}
        assert decide(line(CALL, arguments=said))[0]["dispatch"]["arguments"] == written


# ---- fold --------------------------------------------------------------------------------------------------------


def test_fold_is_one_partition_of_topics_with_the_default_prefix_and_offsets_are_line_numbers() -> None:
    decisions = decide(line(CALL, timestamp_ms=8), line(TIMEOUT), line(COMPENSATION), line(RESULT))
    assert [decision["input"] for decision in decisions] == [
        {"topic": f"epochfence.{topic}", "partition": 0, "offset": n, "timestamp_ms": 8 * (n == 0), "event_id": str(n)}
        for n, topic in enumerate(("tool-calls", "timeouts", "compensations", "results"))
    ]
    assert decisions[0]["incarnation"] == decisions[0]["dispatch"]["incarnation"] == 0


def test_incarnation_left_out_of_an_answer_is_the_records_own() -> None:
    decisions = decide(b"", line(CALL), line(RESULT), line(RESULT, call_id="8"), line(RESULT, incarnation=0))
    assert [decision["incarnation"] for decision in decisions] == [None, 1, 1, None, 1]
    assert [decision["reason"] for decision in decisions[2:]] == ["NONE", "UNKNOWN_CALL", "WRONG_INCARNATION"]


def test_incarnation_left_out_on_a_cancelled_call_is_wrong() -> None:
    assert decide(line(TIMEOUT), line(RESULT))[1]["reason"] == "WRONG_INCARNATION"


def test_incarnation_left_out_of_a_timeout_is_null() -> None:
    assert [decision["verdict"] for decision in decide(line(CALL), line(TIMEOUT))] == ["OPEN", "FENCE"]


def test_an_undecodable_line_does_not_move_stream_time() -> None:
    old = line(CALL, timestamp_ms=2**62, tool=3)
    decisions = decide(line(CALL), line(RESULT), old, line(RESULT))
    assert decisions[3]["reason"] == "DUPLICATE"


def test_each_event_is_a_transaction_with_no_other_clock() -> None:
    late = line({**CALL, "call_id": "8"}, timestamp_ms=86_400_002)
    decisions = decide(line(CALL, timestamp_ms=1), line(RESULT, timestamp_ms=1), late, line(RESULT))
    assert decisions[3]["reason"] == "UNKNOWN_CALL"
    late = line({**CALL, "call_id": "8"}, timestamp_ms=86_400_001)
    decisions = decide(line(CALL, timestamp_ms=1), line(RESULT, timestamp_ms=1), late, line(RESULT))
    assert decisions[3]["reason"] == "DUPLICATE"


# ---- sending -----------------------------------------------------------------------------------------------------


def test_who_sends_has_no_brokers_timestamp_and_must_say_the_incarnation() -> None:
    assert read_event(line(CALL), 0, now_ms=5).event.occurred_at_ms == 5
    assert read_event(line(RESULT, incarnation=2), 0, now_ms=5).event.incarnation == 2  # type: ignore[union-attr]
    for refused in (line(CALL, timestamp_ms=1), line(RESULT), line(COMPENSATION)):
        with pytest.raises(LineError):
            read_event(refused, 0, now_ms=5)


# ---- writing -----------------------------------------------------------------------------------------------------


def test_a_decision_has_the_names_of_the_schema_in_its_order_and_one_line() -> None:
    fold = LineFold(Parameters())
    decision = fold.decide(line(CALL, arguments="a\nb"))
    text = write_decision(decision, decided=False)
    assert text.count(b"\n") == 1
    assert text.endswith(b"\n")
    written = json.loads(text)
    names = [field["name"] for field in load_schema("decision")["fields"]]
    assert list(written) == ["type", *names]
    assert (written["type"], written["decided_at_ms"], written["checkpoint"]) == ("decision", None, None)
    fields = {field["name"]: field for field in load_schema("decision")["fields"]}
    assert list(written["dispatch"]) == [field["name"] for field in fields["dispatch"]["type"][1]["fields"]]
    decision.decided_at_ms = 77
    assert json.loads(write_decision(decision))["decided_at_ms"] == 77


def test_a_checkpoint_is_written_with_digests_in_hex() -> None:
    chain = Chain(b"\x01" * 32, b"ab" * 16)
    checkpoint = Checkpoint(3, (InputPosition("t", "id", 9),), "d", 4, 5, 6, 7, chain)
    assert to_json(checkpoint) == {
        "seq": 3,
        "inputs": [{"topic": "t", "topic_id": "id", "next_offset": 9}],
        "decisions_topic_id": "d",
        "partition_count": 4,
        "stream_time_ms": 5,
        "retention_ms": 6,
        "max_body_bytes": 7,
        "chain": {"decisions": "01" * 32, "inputs": "6162" * 16},
    }


def test_a_call_record_is_written_with_digests_in_hex_and_bodies_as_bytes() -> None:
    fold = LineFold(Parameters())
    for text in (
        line(CALL, orphans="COMPENSATE"),
        line(TIMEOUT),
        line(COMPENSATION, execution_id="a"),
        line(RESULT, execution_id="b"),
    ):
        fold.decide(text)
    written = to_json(fold.partition.calls["7"])
    assert list(written) == [field["name"] for field in load_schema("call_record")["fields"]]
    assert written["evidence"] == "held"
    assert written["remembered_orphans"][0]["outcome"] == "SUCCESS"
    assert written["content_digest"] is None
    for digest in (written["call_digest"], written["remembered_orphans"][0]["execution_digest"]):
        assert bytes.fromhex(digest).__len__() == 32
    json.dumps(written)
