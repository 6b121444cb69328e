"""Values of other writers' schemas, read as ours. The official avro package is the judge of what they mean."""

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import avro.io
import avro.schema
import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochfence.protocol.events import Result, Timeout, ToolCall
from epochfence.protocol.vocabulary import Cause, Orphans, Outcome, Policy
from epochfence.wire.compiler import compile_decoder
from epochfence.wire.errors import DecodeError
from epochfence.wire.resolve import MAX_SCHEMA_CHARACTERS, SchemaResolver
from epochfence.wire.schemas import CLASSES, ENUMS

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parents[2] / "schemas").glob("*.avsc")}
TOOL_CALL = {
    "event_id": "e-1",
    "call_id": "c-1",
    "tool": "reserve",
    "arguments": b"\x00\xff",
    "idempotency_key": "",
    "timeout_ms": 30_000,
    "policy": "REPLAY",
    "orphans": "REPORT",
    "max_epochs": 5,
    "runner": "gateway",
    "source": "é",
    "occurred_at_ms": 1_764_580_000_123,
}
AS_OURS = ToolCall(**(TOOL_CALL | {"policy": Policy.REPLAY, "orphans": Orphans.REPORT}))  # type: ignore[arg-type]


def changed(name: str, change: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """A copy of a schema of ours whose list of fields went through `change`."""
    schema: dict[str, Any] = copy.deepcopy(SCHEMAS[name])
    change(schema["fields"])
    return schema


def field(fields: list[Any], name: str) -> Any:
    return next(f for f in fields if f["name"] == name)


def write(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return out.getvalue()


def resolver(schema: Any, name: str = "tool_call", **options: bool) -> SchemaResolver:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return SchemaResolver(text, SCHEMAS[name], CLASSES, ENUMS, **options)


def by_avro(writer: Any, reader: Any, raw: bytes) -> Any:
    datum_reader = avro.io.DatumReader(avro.schema.parse(json.dumps(writer)), avro.schema.parse(json.dumps(reader)))
    return datum_reader.read(avro.io.BinaryDecoder(io.BytesIO(raw)))


NEWER = changed(
    "tool_call",
    lambda fields: fields.insert(
        2, {"name": "labels", "type": {"type": "map", "values": {"type": "array", "items": ["null", "double"]}}}
    ),
)
OLDER = changed("tool_call", lambda fields: [fields.remove(field(fields, name)) for name in ("runner", "max_epochs")])
NARROWER = changed("tool_call", lambda fields: field(fields, "timeout_ms").update(type="int"))
REORDERED = changed("tool_call", lambda fields: fields.reverse())


@pytest.mark.parametrize(
    ("writer", "extra", "expected"),
    [
        (NEWER, {"labels": {"a": [None, 1.5], "b": []}}, {}),
        (OLDER, {}, {"runner": "gateway", "max_epochs": 8}),
        (NARROWER, {}, {}),
        (REORDERED, {}, {}),
        (SCHEMAS["tool_call"] | {"namespace": "somewhere.else", "doc": "a stranger's"}, {}, {}),
    ],
)
def test_another_writers_value_becomes_our_class_as_the_official_package_reads_it(
    writer: Any, extra: Any, expected: Any
) -> None:
    raw = write(writer, TOOL_CALL | {"max_epochs": 5, "runner": "gateway"} | extra)
    value, end = resolver(writer)(b"head" + raw + b"tail", 4)
    assert end == 4 + len(raw)
    assert type(value) is ToolCall
    for name, ours in (TOOL_CALL | expected).items():
        assert getattr(value, name) == ours
    if writer.get("namespace") == "epochfence":  # the official package also compares namespaces
        judged = by_avro(writer, SCHEMAS["tool_call"], raw)
        assert {name: getattr(value, name) for name in TOOL_CALL} == judged
    assert isinstance(value.policy, Policy)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=300) | st.lists(st.sampled_from(b"\x00\x01\x02\x04\x80\xff"), max_size=200).map(bytes))
def test_with_our_own_schema_it_gives_what_the_compiled_decoder_gives(name: str, raw: bytes) -> None:
    compiled = compile_decoder(SCHEMAS[name], CLASSES, ENUMS)
    resolved = resolver(SCHEMAS[name], name)
    try:
        expected = compiled(raw, 0)
    except DecodeError:
        with pytest.raises(DecodeError):
            resolved(raw, 0)
    else:
        assert resolved(raw, 0) == expected


@settings(max_examples=300, deadline=None)
@given(
    cuts=st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=3)), max_size=3),
    size=st.integers(0, 200),
)
def test_mutated_bytes_of_another_writer_give_a_value_or_decode_error(cuts: list[Any], size: int) -> None:
    raw = bytearray(write(NEWER, TOOL_CALL | {"labels": {"a": [None, 1.5]}}))
    for at, piece in cuts:
        raw[at : at + len(piece)] = piece
    mutated = bytes(raw[:size] if size < 60 else raw)
    try:
        value, end = resolver(NEWER)(mutated, 0)
    except DecodeError:
        return
    assert type(value) is ToolCall
    assert end <= len(mutated)


def test_every_cut_is_refused() -> None:
    raw = write(NEWER, TOOL_CALL | {"labels": {"a": [None, 1.5]}})
    for size in range(len(raw)):
        with pytest.raises(DecodeError):
            resolver(NEWER)(raw[:size], 0)


def test_a_symbol_that_is_not_known_here_is_unrecognized_or_refused() -> None:
    writer = changed("timeout", lambda fields: field(fields, "cause")["type"]["symbols"].insert(0, "PARENT_DIED"))
    value = {"event_id": "e", "call_id": "c", "epoch": 1, "incarnation": None, "source": "s", "occurred_at_ms": 1}
    raw = write(writer, value | {"cause": "PARENT_DIED"})
    assert resolver(writer, "timeout")(raw, 0)[0] == Timeout("e", "c", 1, None, Cause.UNRECOGNIZED, "s", 1)
    with pytest.raises(DecodeError, match="UNRECOGNIZED"):
        resolver(writer, "timeout", refuse_unrecognized=True)(raw, 0)
    known = write(writer, value | {"cause": "OPERATOR"})
    assert resolver(writer, "timeout", refuse_unrecognized=True)(known, 0)[0].cause is Cause.OPERATOR


def test_a_union_of_the_writer_is_read_as_our_plain_type_only_where_it_fits() -> None:
    writer = changed("result", lambda fields: field(fields, "incarnation").update(type=["null", "long"]))
    value: dict[str, Any] = dict.fromkeys(("event_id", "call_id", "execution_id", "source"), "x")
    value |= {"epoch": 1, "outcome": "SUCCESS", "payload": b"p", "occurred_at_ms": 1}
    good = resolver(writer, "result")(write(writer, value | {"incarnation": 7}), 0)[0]
    assert good == Result("x", "x", 1, 7, "x", Outcome.SUCCESS, b"p", "x", 1)
    with pytest.raises(DecodeError, match="does not resolve"):
        resolver(writer, "result")(write(writer, value | {"incarnation": None}), 0)


def test_a_logical_type_of_the_writer_changes_nothing() -> None:
    logical = {"type": "long", "logicalType": "timestamp-millis"}
    writer = changed("tool_call", lambda fields: field(fields, "occurred_at_ms").update(type=logical))
    assert resolver(writer)(write(SCHEMAS["tool_call"], TOOL_CALL), 0)[0] == AS_OURS


@pytest.mark.parametrize(
    ("writer", "why"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("nul", "not JSON"),
        ("null", "not a record"),
        ('"string"', "not a record"),
        ([SCHEMAS["tool_call"]], "not a record"),
        (SCHEMAS["timeout"], "not one of ToolCall"),
        (SCHEMAS["tool_call"] | {"name": 7}, "not one of ToolCall"),
        (SCHEMAS["tool_call"] | {"fields": 7}, "not an Avro schema"),
        (SCHEMAS["tool_call"] | {"fields": [7]}, "not an Avro schema"),
        (SCHEMAS["tool_call"] | {"fields": [{"name": "a", "type": "Gone"}]}, "not an Avro schema"),
        (" " * (MAX_SCHEMA_CHARACTERS + 1), "longer than"),
        ({"type": "record", "name": "ToolCall", "fields": []}, "does not resolve"),
        (changed("tool_call", lambda fields: field(fields, "timeout_ms").update(type="string")), "beyond the end"),
    ],
)
def test_a_schema_that_cannot_be_read_as_ours_fails_at_each_call_and_not_before(writer: Any, why: str) -> None:
    resolved = resolver(writer)
    for _ in range(2):
        with pytest.raises(DecodeError, match=why):
            resolved(write(SCHEMAS["tool_call"], TOOL_CALL), 0)


def test_a_schema_nested_without_end_is_refused() -> None:
    nested: Any = "long"
    for _ in range(200):
        nested = {"type": "array", "items": nested}
    writer = changed("tool_call", lambda fields: fields.append({"name": "deep", "type": nested}))
    with pytest.raises(DecodeError, match="deeper"):
        resolver(writer)(b"", 0)


def test_what_a_schema_says_of_itself_to_fastavro_is_not_believed() -> None:
    writer = changed("tool_call", lambda fields: fields.append({"name": "extra", "type": "Gone"}))
    writer |= {"__fastavro_parsed": True, "__named_schemas": {"Gone": {"type": "null"}}}
    with pytest.raises(DecodeError, match="not an Avro schema"):
        resolver(writer)(write(SCHEMAS["tool_call"], TOOL_CALL), 0)


@pytest.mark.parametrize(("count", "fits"), [(5_000, True), (50_000, False)])
def test_items_without_bytes_are_read_up_to_a_bound(count: int, fits: bool) -> None:
    nulls = {"type": "array", "items": "null"}
    writer = changed("tool_call", lambda fields: fields.append({"name": "extra", "type": nulls}))
    raw = write(writer, TOOL_CALL | {"extra": [None] * count})
    if fits:
        assert resolver(writer)(raw, 0) == (AS_OURS, len(raw))
    else:
        with pytest.raises(DecodeError, match="far more"):
            resolver(writer)(raw, 0)


NOTHING = {"type": "record", "name": "Nothing", "fields": []}


@pytest.mark.parametrize(
    ("extra_type", "extra", "why"),
    [
        ({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01", "far more"),
        ({"type": "array", "items": NOTHING}, b"\xff" * 9 + b"\x01\x00", "far more"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 1 << 40}}, b"\x02", "end inside"),
        ({"type": "map", "values": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01", "end inside"),
        ({"type": "record", "name": "Loop", "fields": [{"name": "next", "type": "Loop"}]}, b"", "deeper"),
        ({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}, b"\x02" * 500, "deeper"),
        ({"type": "array", "items": "boolean"}, b"\x02\x02\x00", "neither 0 nor 1"),
        ({"type": "map", "values": "int"}, b"\x02\x02\xff\x00\x00", "UTF-8"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no such"),
        ({"type": "array", "items": "int"}, b"\x01\x06\x00\x00\x00", "claims to end"),
        ("double", b"\x00" * 7, "end inside"),
    ],
)
def test_a_field_that_we_skip_is_as_strict_and_as_bounded(extra_type: Any, extra: bytes, why: str) -> None:
    writer = changed("tool_call", lambda fields: fields.append({"name": "extra", "type": extra_type}))
    with pytest.raises(DecodeError, match=why):
        resolver(writer)(write(SCHEMAS["tool_call"], TOOL_CALL) + extra, 0)


def test_no_message_repeats_the_value() -> None:
    writer = changed("tool_call", lambda fields: field(fields, "tool").update(type="bytes"))
    raw = write(writer, TOOL_CALL | {"tool": b"\xffsecret"})
    with pytest.raises(DecodeError) as raised:
        resolver(writer)(raw, 0)
    assert "secret" not in str(raised.value)
    assert raised.value.__suppress_context__
