"""Lines that are no events, one kind for each thing that the JSON form names, and lines that only look so."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

RESULT: dict[str, Any] = {"type": "result", "call_id": "7", "epoch": 1, "outcome": "SUCCESS", "payload": "held"}
EVENTS: list[dict[str, Any]] = [
    {"type": "tool_call", "call_id": "7", "tool": "reserve", "arguments": "seat 12", "timeout_ms": 1000},
    {"type": "timeout", "call_id": "7", "epoch": 1, "cause": "DEADLINE", "incarnation": 0},
    RESULT | {"incarnation": 0, "execution_id": "x"},
    {"type": "compensation", "call_id": "7", "epoch": 2, "outcome": "OK", "incarnation": 0, "execution_id": "x"},
]
RAW = [
    b"",
    b" ",
    b"\t \r",
    b"null",
    b"true",
    b"7",
    b'"timeout"',
    b"[]",
    b"{}",
    b"{",
    b"not json",
    b'{"type":"timeout"}',
    b'\xef\xbb\xbf{"type":"timeout","call_id":"7","epoch":1}',
    b'{"type":"timeout","call_id":"7","epoch":1}}',
    b'{"type":"timeout","call_id":"7","epoch":1,}',
    b'{"type":"timeout","call_id":"7","epoch":1} {"type":"timeout","call_id":"7","epoch":1}',
    b"{'type':'timeout','call_id':'7','epoch':1}",
    b'{"type":"timeout","call_id":"7","epoch":01}',
    b'{"type":"timeout","call_id":"7","epoch":+1}',
    b'{"type":"timeout","call_id":"7","epoch":NaN}',
    b'{"type":"timeout","call_id":"7","epoch":-Infinity}',
    b'{"type":"timeout","call_id":"7","epoch":1e0}',
    b'{"type":"timeout","call_id":"7","epoch":' + b"9" * 5_000 + b"}",
    b'{"type":"timeout","call_id":"7","epoch":1,"cause":' + b"[" * 50_000,
    b'{"type":"timeout","call_id":"a\tb","epoch":1}',
    b'{"type":"timeout","call_id":"\xff","epoch":1}',
    b'{"type":"timeout","call_id":"\xed\xa0\x80","epoch":1}',
    b'{"type":"timeout","call_id":"\xc0\x80","epoch":1}',
    b'{"type":"timeout","call_id":"\\ud800","epoch":1}',
    b'{"type":"timeout","call_id":"7","epoch":1,"source":"\\udfff"}',
    b'{"type":"timeout","type":"timeout","call_id":"7","epoch":1}',
    b'{"type":"timeout","call_id":"7","epoch":1,"\\u0065poch":1}',
    b'{"type":"result","call_id":"7","epoch":1,"outcome":"SUCCESS","payload":{"base64":"","base64":""}}',
    b'{"type":"decision","call_id":"7","seq":1}',
    # These are events, for all that they look odd.
    b' {"type" : "timeout", "call_id":"\\ud83d\\udd12", "epoch" : -0 } \r',
    b'{"type":"timeout","call_id":"\\u0037","epoch":1,"cause":"CANCELLED"}',
]
BASE64 = [
    "QQ",
    "QQ=",
    "QQ===",
    "Q",
    "Q===",
    "=QQ=",
    "QQ==QQ==",
    "QUJD=",
    "QR==",
    "Q Q=",
    "QQ==\n",
    "-_==",
    "é",
    "QUI=A",
]
WRONG: list[Any] = [
    1.0,
    True,
    False,
    "",
    "1",
    [],
    [1],
    {},
    {"base64": "QQ=="},
    None,
    2**63,
    -(2**63) - 1,
    2**64,
    0.5,
    7,
]


def malformed_line(rng: random.Random) -> bytes:
    """One line without its newline. Nearly all are undecodable; a few are chance events."""
    maker: Callable[[random.Random], bytes] = rng.choice(
        [_raw, _raw, _wrong_value, _wrong_value, _missing, _unknown, _body]
    )
    return maker(rng)


def _raw(rng: random.Random) -> bytes:
    return rng.choice(RAW)


def _event(rng: random.Random) -> dict[str, Any]:
    return dict(rng.choice(EVENTS))


def _dump(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode("utf-8")


def _wrong_value(rng: random.Random) -> bytes:
    event = _event(rng)
    optional = ["timestamp_ms", "event_id", "source", "occurred_at_ms"]
    if event["type"] == "tool_call":
        optional += ["idempotency_key", "policy", "orphans", "max_epochs", "runner"]
    name = rng.choice([*event, *optional])
    symbols = ["UNRECOGNIZED", "deadline", "OK", "SUCCESS", "FAILED", "NONE"]
    return _dump(event | {name: rng.choice([*WRONG, rng.choice(symbols)])})


def _missing(rng: random.Random) -> bytes:
    event = _event(rng)
    event.pop(rng.choice(list(event)))
    return _dump(event)


def _unknown(rng: random.Random) -> bytes:
    names = [
        "Epoch",
        "epoch ",
        "call-id",
        "extra",
        "",
        "execution_id",
        "payload",
        "cause",
        "tool",
        "offset",
        "seq",
        "outcome",
    ]
    return _dump(_event(rng) | {rng.choice(names): rng.choice([None, 1, "SUCCESS"])})


def _body(rng: random.Random) -> bytes:
    payloads: list[Any] = [{"base64": text} for text in BASE64]
    payloads += [{"base64": 1}, {"base64": None}, {"BASE64": "QQ=="}, {"base64": "QQ==", "x": 1}, ["QQ=="], 1, "\ud800"]
    return _dump(RESULT | {"payload": rng.choice(payloads)})
