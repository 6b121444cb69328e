"""The JSON form of events and decisions, read from the protocol's section of that name.

Where the text is silent the literal reading is taken; each such place is marked SILENT.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

REQUIRED = object()
"""The field has no default: a line without it is undecodable."""
DERIVED = object()
"""The field may be left out; its value then comes from the line (see parse_line)."""

TEXT, LONG, BYTES = "string", "long", "bytes"
CAUSES = ("DEADLINE", "CANCELLED", "WATCHDOG", "OPERATOR")

# Per type: field -> (kind, nullable, value when left out). An enum's kind is its symbols without UNRECOGNIZED: a
# processor that meets that one in an input decides UNDECODABLE, as it does for a symbol that does not exist.
# SILENT: a source that is left out. It is in no decision; the empty string stands for it.
# SILENT: an int field (max_epochs). "Integers are 64-bit" is taken to the letter: 2**40 is an integer out of range
# (MALFORMED), 2**63 is not an integer of the form (UNDECODABLE).
FIELDS: dict[str, dict[str, tuple[Any, bool, Any]]] = {
    "tool_call": {
        "event_id": (TEXT, False, DERIVED),
        "call_id": (TEXT, False, REQUIRED),
        "tool": (TEXT, False, REQUIRED),
        "arguments": (BYTES, True, None),
        "idempotency_key": (TEXT, False, ""),
        "timeout_ms": (LONG, False, REQUIRED),
        "policy": (("COMPENSATE", "REPLAY"), False, "COMPENSATE"),
        "orphans": (("REPORT", "COMPENSATE"), False, "REPORT"),
        "max_epochs": (LONG, False, 8),
        "runner": (TEXT, False, "gateway"),
        "source": (TEXT, False, ""),
        "occurred_at_ms": (LONG, False, DERIVED),
    },
    "timeout": {
        "event_id": (TEXT, False, DERIVED),
        "call_id": (TEXT, False, REQUIRED),
        "epoch": (LONG, True, None),
        "incarnation": (LONG, True, None),
        "cause": (CAUSES, False, "DEADLINE"),
        "source": (TEXT, False, ""),
        "occurred_at_ms": (LONG, False, DERIVED),
    },
    "result": {
        "event_id": (TEXT, False, DERIVED),
        "call_id": (TEXT, False, REQUIRED),
        "epoch": (LONG, True, None),
        "incarnation": (LONG, False, DERIVED),
        "execution_id": (TEXT, False, DERIVED),
        "outcome": (("SUCCESS", "FAILURE", "UNKNOWN"), False, REQUIRED),
        "payload": (BYTES, True, None),
        "source": (TEXT, False, ""),
        "occurred_at_ms": (LONG, False, DERIVED),
    },
    "compensation": {
        "event_id": (TEXT, False, DERIVED),
        "call_id": (TEXT, False, REQUIRED),
        "epoch": (LONG, True, None),
        "incarnation": (LONG, False, DERIVED),
        "execution_id": (TEXT, False, DERIVED),
        "outcome": (("OK", "FAILED", "UNKNOWN"), False, REQUIRED),
        "payload": (BYTES, True, None),
        "source": (TEXT, False, ""),
        "occurred_at_ms": (LONG, False, DERIVED),
    },
}

TOPIC_OF_TYPE = {
    "tool_call": "tool-calls",
    "timeout": "timeouts",
    "result": "results",
    "compensation": "compensations",
}


class UndecodableError(Exception):
    """The bytes are not an event. They are decided all the same, as UNDECODABLE."""


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    obj: dict[str, Any] = {}
    for key, value in pairs:
        if key in obj:
            raise UndecodableError(f"{key} is there twice")
        obj[key] = value
    return obj


def _no_constant(name: str) -> Any:
    raise UndecodableError(f"{name} is not JSON")


def _text(value: Any) -> str:
    if type(value) is not str:
        raise UndecodableError("not a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise UndecodableError("a lone surrogate has no UTF-8") from None
    return value


def _long(value: Any) -> int:
    if type(value) is not int:  # a bool is not one, nor is 1.0
        raise UndecodableError("not an integer")
    if not LONG_MIN <= value <= LONG_MAX:
        raise UndecodableError("not a 64-bit integer")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is str:
        return _text(value).encode("utf-8")
    if type(value) is not dict or set(value) != {"base64"}:
        raise UndecodableError("neither a string nor a base64 object")
    text = _text(value["base64"])
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UndecodableError("not base64") from None
    # SILENT: how strict. Taken as RFC 4648 canonical: the standard alphabet, exact padding, no bits left over.
    if base64.b64encode(raw).decode("ascii") != text:
        raise UndecodableError("not canonical base64")
    return raw


def _value(kind: Any, nullable: bool, value: Any) -> Any:
    if value is None:
        if nullable:
            return None
        raise UndecodableError("null where it may not be")
    if kind == TEXT:
        return _text(value)
    if kind == LONG:
        return _long(value)
    if kind == BYTES:
        return _bytes(value)
    symbol = _text(value)
    if symbol not in kind:
        raise UndecodableError("not a symbol of the enum")
    return symbol


def _object(line: bytes) -> dict[str, Any]:
    try:
        obj = json.loads(line.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors; so is a huge integer
        raise UndecodableError("not JSON in UTF-8") from None
    if type(obj) is not dict:
        raise UndecodableError("not an object")
    return obj


def parse_line(line: bytes, line_number: int) -> tuple[dict[str, Any], int]:
    """One event and the broker's timestamp in milliseconds, from one line of `fold`'s input.

    A Result or Compensation without an incarnation comes back without one: it is then the record's own.
    Raises UndecodableError.
    """
    obj = _object(line)
    kind = obj.pop("type", None)
    if type(kind) is not str or kind not in FIELDS:
        raise UndecodableError("no such type")  # a decision is a type of the form, but not an event
    timestamp_ms = _long(obj.pop("timestamp_ms", 0))
    fields = FIELDS[kind]
    if not set(obj) <= set(fields):
        raise UndecodableError("an unknown field")
    event: dict[str, Any] = {"type": kind}
    for name, (value_kind, nullable, default) in fields.items():
        if name in obj:
            event[name] = _value(value_kind, nullable, obj[name])
        elif default is REQUIRED:
            raise UndecodableError(f"{name} is missing")
        elif default is not DERIVED:
            event[name] = default
    event.setdefault("event_id", str(line_number))
    event.setdefault("occurred_at_ms", timestamp_ms)
    if "execution_id" in fields:
        event.setdefault("execution_id", event["event_id"])
    return event, timestamp_ms


def jsonable(value: Any) -> Any:
    """The JSON form of a decision's value: bytes that are UTF-8 are a string, others a base64 object."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    return value
