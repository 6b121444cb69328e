"""The JSON Lines form of events and decisions, as the command line reads and writes it (docs/protocol.md, JSON form).

Strict on purpose: a value of the wrong type, an unknown field or a field given twice is refused and never guessed at,
for what a person types here decides what an agent may do.
"""

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, cast

from epochfence.protocol.decisions import Chain, Decision
from epochfence.protocol.events import Event
from epochfence.protocol.vocabulary import Outcome
from epochfence.wire.schemas import CLASSES, ENUMS, load_schema

EVENT_TYPES = ("tool_call", "timeout", "result", "compensation")
_INT64 = range(-(2**63), 2**63)


class LineError(ValueError):
    """Why a line is no event, in words. In `fold` that makes it UNDECODABLE; `send` refuses it."""


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event read from a line, and what stands beside it."""

    event: Event
    timestamp_ms: int
    """The broker's timestamp that the line gives (`fold` only), else 0."""
    incarnation_left_out: bool
    """A Result or Compensation did not say its incarnation (`fold` only): it is the record's own."""


def read_event(line: bytes, number: int, *, now_ms: int | None = None) -> EventLine:
    """Read the line with that number, counted from 0.

    `now_ms` is given by who sends the event: the line has no broker timestamp then, occurred_at_ms is `now_ms` where
    it is left out, and a Result or Compensation must say its incarnation. Raises LineError.
    """
    values = _object(line)
    kind = values.pop("type", None)
    if kind not in EVENT_TYPES:
        raise LineError("type is none of " + ", ".join(EVENT_TYPES))
    folding = now_ms is None
    timestamp_ms = _integer("timestamp_ms", values.pop("timestamp_ms")) if folding and "timestamp_ms" in values else 0
    left_out = folding and kind in ("result", "compensation") and "incarnation" not in values
    if left_out:
        values["incarnation"] = -1
    values.setdefault("event_id", str(number))
    values.setdefault("source", "")
    values.setdefault("occurred_at_ms", timestamp_ms if now_ms is None else now_ms)
    schema = load_schema(kind)
    names = {field["name"] for field in schema["fields"]}
    if "execution_id" in names:
        values.setdefault("execution_id", values["event_id"])
    unknown = values.keys() - names
    if unknown:
        raise LineError(f"{kind} has no field {min(unknown)}")
    event = CLASSES[schema["name"]](*(_field(field, values) for field in schema["fields"]))
    return EventLine(cast(Event, event), timestamp_ms, left_out)


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except LineError:
        raise
    except (ValueError, RecursionError):  # bad UTF-8, bad JSON, a number of thousands of digits, a tower of brackets
        raise LineError("not a JSON object in UTF-8") from None
    if not isinstance(value, dict):
        raise LineError("not a JSON object")
    return value


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise LineError(f"{name} is there twice")
        values[name] = value
    return values


def _no_constant(name: str) -> Any:
    raise LineError(f"{name} is not JSON")


def _field(field: dict[str, Any], values: dict[str, Any]) -> Any:
    name, kind = field["name"], field["type"]
    nullable = isinstance(kind, list)
    if nullable:
        kind = kind[1]
    if name not in values:
        if nullable:
            return None
        if "default" not in field:
            raise LineError(f"{name} is missing")
        default = field["default"]
        return ENUMS[kind["name"]](default) if isinstance(kind, dict) else default
    value = values[name]
    if value is None:
        if nullable:
            return None
        raise LineError(f"{name} is null")
    if isinstance(kind, dict):
        return _symbol(name, kind, value)
    return {"string": _string, "bytes": _bytes, "long": _integer}[kind](name, value)


def _symbol(name: str, kind: dict[str, Any], value: Any) -> StrEnum:
    if not isinstance(value, str) or value not in kind["symbols"] or value == Outcome.UNRECOGNIZED:
        raise LineError(f"{name} is none of {', '.join(kind['symbols'][:-1])}")
    return ENUMS[kind["name"]](value)


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise LineError(f"{name} is not a string")
    _encoded(name, value)
    return value


def _integer(name: str, value: Any) -> int:
    if type(value) is not int or value not in _INT64:
        raise LineError(f"{name} is not a 64-bit integer")
    return value


def _bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return _encoded(name, value)
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        text = value["base64"]
        try:
            decoded = base64.b64decode(text.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            decoded = None
        # Python's decoder takes padding that is too long and bits that are left over: two texts for the same bytes.
        if decoded is None or base64.b64encode(decoded).decode("ascii") != text:
            raise LineError(f"{name} is not strict base64")
        return decoded
    raise LineError(f"{name} is neither a string nor a base64 object")


def _encoded(name: str, value: str) -> bytes:
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise LineError(f"{name} has half a surrogate pair") from None


def write_decision(decision: Decision, *, decided: bool = True) -> bytes:
    """A decision as one line. Without `decided` its decided_at_ms is null, as in `fold`, where no clock is read."""
    values = {"type": "decision", **to_json(decision)}
    if not decided:
        values["decided_at_ms"] = None
    return json.dumps(values, ensure_ascii=False, separators=(", ", ": ")).encode() + b"\n"


def to_json(value: Any) -> Any:
    """A value of the protocol as JSON data: Avro's field names, bytes that are UTF-8 as a string, digests in hex."""
    if value is None or isinstance(value, str | int):
        return str(value) if isinstance(value, StrEnum) else value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Chain):
        return {"decisions": value.decisions.hex(), "inputs": value.inputs.hex()}
    cls: type = type(value)
    names = _names(cls)
    if names is not None:
        return {
            name: _digest(getattr(value, name))
            if "digest" in name or name == "first_ok_execution"
            else to_json(getattr(value, name))
            for name in names
        }
    return [to_json(item) for item in value]


def _digest(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


@cache
def _names(cls: type) -> tuple[str, ...] | None:
    if is_dataclass(cls):
        return tuple(field.name for field in fields(cls))
    return getattr(cls, "_fields", None)
