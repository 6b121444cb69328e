"""The compiled codecs against fastavro and the official avro package, for every schema in schemas/, and against bytes
of any kind. The values are made from the schema alone, so that nothing of the product is its own judge.
"""

import dataclasses
import io
import json
import linecache
from collections import namedtuple
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import avro.io
import avro.schema
import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epochfence.wire.compiler import (
    DecodeError,
    Decoder,
    EncodeError,
    Encoder,
    UnsupportedSchemaError,
    compile_decoder,
    compile_encoder,
)
from epochfence.wire.schemas import CLASSES, ENUMS

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parents[2] / "schemas").glob("*.avsc")}
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
LONG_EDGES = st.sampled_from([sign * (1 << bit) + step for bit in range(63) for sign in (1, -1) for step in (-1, 0, 1)])
INT = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=8) | st.text(min_size=62, max_size=66) | st.sampled_from(["", "é" * 32, "x" * 8192, "\x00"])
BODY = st.binary(max_size=8) | st.binary(min_size=62, max_size=66) | st.sampled_from([b"", bytes(8191), bytes(8192)])

Named = dict[str, Any]


def named_types(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every type that is defined anywhere in a schema, by its name."""
    if isinstance(schema, list):
        for branch in schema:
            yield from named_types(branch)
    elif isinstance(schema, dict):
        if "name" in schema:
            yield schema["name"], schema
        for field in schema.get("fields", ()):
            yield from named_types(field["type"])
        if "items" in schema:
            yield from named_types(schema["items"])


def data(schema: Any, named: Named) -> st.SearchStrategy[Any]:
    """Values in the form that the libraries take: dictionaries, lists, strings for symbols."""
    if isinstance(schema, list):
        return st.none() | data(schema[1], named)
    if isinstance(schema, str):
        plain = {"string": TEXT, "bytes": BODY, "long": LONG | LONG_EDGES, "int": INT, "boolean": st.booleans()}
        return plain[schema] if schema in plain else data(named[schema], named)
    match schema["type"]:
        case "record":
            return st.fixed_dictionaries({f["name"]: data(f["type"], named) for f in schema["fields"]})
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "array":
            return st.lists(data(schema["items"], named), max_size=3)
        case other:
            raise AssertionError(other)


class Rig:
    """One schema with classes made for it, the codec compiled for them, and the two libraries."""

    def __init__(self, schema: Any, make_class: Callable[[str, list[str]], type]) -> None:
        self.schema = schema
        self.named = dict(named_types(schema))
        self.classes = {
            name: make_class(name, [field["name"] for field in definition["fields"]])
            for name, definition in self.named.items()
            if definition["type"] == "record"
        }
        self.enums: dict[str, type[StrEnum]] = {
            name: StrEnum(name, [(symbol, symbol) for symbol in definition["symbols"]])  # type: ignore[misc]
            for name, definition in self.named.items()
            if definition["type"] == "enum"
        }
        self.decode: Decoder = compile_decoder(schema, self.classes, self.enums)
        self.encode: Encoder = compile_encoder(schema, self.classes, self.enums)
        self.values = data(schema, self.named)
        self.for_fastavro = fastavro.parse_schema(schema)
        self.for_avro = avro.schema.parse(json.dumps(schema))

    def to_object(self, value: Any, schema: Any = None) -> Any:
        """What our decoder should give for a value in the libraries' form."""
        schema = self.schema if schema is None else schema
        if isinstance(schema, list):
            return None if value is None else self.to_object(value, schema[1])
        if isinstance(schema, str):
            return self.to_object(value, self.named[schema]) if schema in self.named else value
        match schema["type"]:
            case "record":
                fields = [self.to_object(value[field["name"]], field["type"]) for field in schema["fields"]]
                return self.classes[schema["name"]](*fields)
            case "enum":
                return self.enums[schema["name"]](value)
            case "array":
                return tuple(self.to_object(item, schema["items"]) for item in value)
            case _:
                return value

    def by_fastavro(self, value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.for_fastavro, value)
        return out.getvalue()

    def by_avro(self, value: Any) -> bytes:
        out = io.BytesIO()
        avro.io.DatumWriter(self.for_avro).write(value, avro.io.BinaryEncoder(out))
        return out.getvalue()

    def read_by_avro(self, raw: bytes) -> Any:
        return avro.io.DatumReader(self.for_avro).read(avro.io.BinaryDecoder(io.BytesIO(raw)))


def as_named_tuple(name: str, fields: list[str]) -> type:
    return namedtuple(name, fields)  # type: ignore[misc]


def as_dataclass(name: str, fields: list[str]) -> type:
    return dataclasses.make_dataclass(name, fields, slots=True)


KINDS = {"named tuples": as_named_tuple, "dataclasses": as_dataclass}


@cache
def rig(name: str, kind: str = "dataclasses") -> Rig:
    return Rig(SCHEMAS[name], KINDS[kind])


def one_field(field_type: Any) -> Rig:
    return Rig({"type": "record", "name": "One", "fields": [{"name": "value", "type": field_type}]}, as_dataclass)


each_schema = pytest.mark.parametrize("name", sorted(SCHEMAS))


@pytest.mark.parametrize("kind", KINDS)
@each_schema
@settings(max_examples=60, deadline=None)
@given(draw=st.data())
def test_same_bytes_out_and_same_values_in(name: str, kind: str, draw: st.DataObject) -> None:
    tested = rig(name, kind)
    value = draw.draw(tested.values)
    expected = tested.to_object(value)
    raw = tested.encode(expected)
    assert raw == tested.by_fastavro(value)
    assert raw == tested.by_avro(value)
    assert tested.decode(raw, 0) == (expected, len(raw))
    assert tested.decode(b"\xff" * 9 + raw + b"\xff" * 3, 9) == (expected, 9 + len(raw))
    assert tested.read_by_avro(raw) == value


@each_schema
@settings(max_examples=30, deadline=None)
@given(draw=st.data())
def test_encoder_without_classes_or_enums_writes_the_same(name: str, draw: st.DataObject) -> None:
    tested = rig(name)
    expected = tested.to_object(draw.draw(tested.values))
    assert compile_encoder(tested.schema)(expected) == tested.encode(expected)


@each_schema
@settings(max_examples=30, deadline=None)
@given(draw=st.data())
def test_a_value_cut_short_anywhere_is_refused(name: str, draw: st.DataObject) -> None:
    tested = rig(name)
    raw = tested.encode(tested.to_object(draw.draw(tested.values)))
    for size in {*range(min(len(raw), 300)), *range(max(0, len(raw) - 300), len(raw))}:
        with pytest.raises(DecodeError):
            tested.decode(raw[:size], 0)


def check_any_bytes(tested: Rig, raw: bytes) -> None:
    """A value or DecodeError, nothing else; a value that is accepted is the library's, and survives a round trip."""
    try:
        value, end = tested.decode(raw, 0)
    except DecodeError:
        return
    assert 0 < end <= len(raw)
    again = tested.encode(value)
    assert tested.decode(again, 0) == (value, len(again))
    assert tested.to_object(fastavro.schemaless_reader(io.BytesIO(raw), tested.for_fastavro, None)) == value


@each_schema
@settings(max_examples=300, deadline=None)
@given(
    raw=st.binary(max_size=400) | st.lists(st.sampled_from(b"\x00\x01\x02\x04\x7f\x80\xff"), max_size=200).map(bytes)
)
def test_random_bytes_give_a_value_or_decode_error(name: str, raw: bytes) -> None:
    check_any_bytes(rig(name), raw)


MUTATION = st.tuples(st.sampled_from(["set", "insert", "delete"]), st.integers(0, 1 << 16), st.integers(0, 255))


@each_schema
@settings(max_examples=300, deadline=None)
@given(draw=st.data(), mutations=st.lists(MUTATION, min_size=1, max_size=4))
def test_mutated_bytes_give_a_value_or_decode_error(name: str, draw: st.DataObject, mutations: list[Any]) -> None:
    tested = rig(name)
    raw = bytearray(tested.by_fastavro(draw.draw(tested.values)))
    for what, where, byte in mutations:
        at = where % (len(raw) + 1)
        raw[at : at + (what != "insert")] = b"" if what == "delete" else bytes([byte])
    check_any_bytes(tested, bytes(raw))


@each_schema
def test_the_products_classes_fit_their_schemas(name: str) -> None:
    compile_decoder(SCHEMAS[name], CLASSES, ENUMS)
    compile_encoder(SCHEMAS[name], CLASSES, ENUMS)


VARINT_64_ONES = b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize(
    ("field_type", "raw", "expected"),
    [
        ("long", VARINT_64_ONES, -(1 << 63)),
        ("long", b"\xfe" + b"\xff" * 8 + b"\x01", (1 << 63) - 1),
        ("long", b"\x82\x80\x00", 1),  # more bytes than it needs, which every library reads
        ("long", b"\x82" + b"\x80" * 8 + b"\x00", 1),
        ("int", b"\xff\xff\xff\xff\x0f", -(1 << 31)),
        ("boolean", b"\x01", True),
        (["null", "long"], b"\x82\x00\x02", 1),
        (["null", "long"], b"\x80\x00", None),
        ("string", b"\x82\x00a", "a"),
        ({"type": "array", "items": "long"}, b"\x04\x02\x04\x02\x06\x00", (1, 2, 3)),
        ({"type": "array", "items": "long"}, b"\x03\x04\x02\x04\x00", (1, 2)),  # a count of -2, and two bytes
        ({"type": "array", "items": ["null", "string"]}, b"\x04\x00\x02\x02a\x00", (None, "a")),
    ],
)
def test_legal_forms_that_our_own_encoder_never_writes(field_type: Any, raw: bytes, expected: Any) -> None:
    value, end = one_field(field_type).decode(raw, 0)
    assert (value.value, end) == (expected, len(raw))
    check_any_bytes(one_field(field_type), raw)


@pytest.mark.parametrize(
    ("field_type", "raw", "why"),
    [
        ("long", b"", "end inside"),
        ("long", b"\x80" * 9, "end inside"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("long", b"\x80" * 10 + b"\x00", "more than 64 bits"),
        ("long", b"\xff" * 1000, "more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x10", "32 bits"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        (["null", "long"], b"\x04\x00", "no such branch"),
        (["null", "long"], b"\x01\x00", "no such branch"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04", "no such symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", "no such symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, VARINT_64_ONES, "32 bits"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "end inside"),
        ("string", b"\x02\xff", "UTF-8"),
        ("string", b"\x06\xed\xa0\x80", "UTF-8"),  # a lone surrogate
        ("string", b"\x01", "negative"),
        ("bytes", b"\x7e" + bytes(62), "end inside"),
        ("bytes", VARINT_64_ONES + b"x", "negative"),
        ("bytes", b"\xfe" + b"\xff" * 8 + b"\x01x", "beyond the end"),
        ({"type": "array", "items": "long"}, b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00" * 9, "more items"),
        ({"type": "array", "items": "long"}, VARINT_64_ONES + b"\x02\x00\x00", "more items"),
        ({"type": "array", "items": "long"}, b"\x03\x06\x02\x04\x00", "claims to end"),
        ({"type": "array", "items": "long"}, b"\x03\x03\x02\x04\x00", "negative"),
        ({"type": "array", "items": "long"}, b"\x02\x02", "end inside"),
    ],
)
def test_bytes_that_are_no_value_are_refused_with_the_reason(field_type: Any, raw: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why) as raised:
        one_field(field_type).decode(raw, 0)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_a_claimed_length_or_count_allocates_nothing() -> None:
    tested = one_field({"type": "array", "items": "bytes"})
    billion_items = b"\x80\x94\xeb\xdc\x03"  # zigzag of 500,000,000
    with pytest.raises(DecodeError, match="more items"):
        tested.decode(billion_items + b"\x00" * 100, 0)
    with pytest.raises(DecodeError, match="beyond the end"):
        tested.decode(b"\x02" + billion_items + b"\x00" * 100, 0)


@pytest.mark.parametrize("name", ["tool_call", "timeout", "result", "compensation"])
@settings(max_examples=60, deadline=None)
@given(draw=st.data())
def test_unrecognized_is_refused_only_where_asked(name: str, draw: st.DataObject) -> None:
    tested = rig(name)
    strict = compile_decoder(tested.schema, tested.classes, tested.enums, refuse_unrecognized=True)
    value = draw.draw(tested.values)
    raw = tested.by_fastavro(value)
    enum_fields = [f["name"] for f in tested.schema["fields"] if isinstance(f["type"], dict)]
    if any(value[field] == "UNRECOGNIZED" for field in enum_fields):
        with pytest.raises(DecodeError, match="UNRECOGNIZED"):
            strict(raw, 0)
        assert tested.decode(raw, 0)[1] == len(raw)
    else:
        assert strict(raw, 0) == tested.decode(raw, 0)


@given(value=st.integers(min_value=1 << 31) | st.integers(max_value=-(1 << 31) - 1))
@example(1 << 63)
@example(-(1 << 63) - 1)
@example(1 << 70)
def test_a_number_beyond_its_type_is_never_wrapped(value: int) -> None:
    for field_type, bits in (("int", 31), ("long", 63), (["null", "int"], 31), (["null", "long"], 63)):
        tested = one_field(field_type)
        if -(1 << bits) <= value < 1 << bits:
            assert tested.decode(tested.encode(tested.classes["One"](value)), 0)[0].value == value
        else:
            with pytest.raises(EncodeError, match="bits"):
                tested.encode(tested.classes["One"](value))


def test_a_fixed_of_another_size_and_an_unknown_symbol_are_not_written() -> None:
    for field_type in ({"type": "fixed", "name": "F", "size": 3}, ["null", {"type": "fixed", "name": "F", "size": 3}]):
        tested = one_field(field_type)
        with pytest.raises(EncodeError, match="a F must have 3 bytes"):
            tested.encode(tested.classes["One"](b"ab"))
    tested = one_field({"type": "enum", "name": "E", "symbols": ["A"]})
    with pytest.raises(EncodeError, match="symbols"):
        tested.encode(tested.classes["One"]("B"))


def test_values_with_arrays_in_arrays_and_optional_items() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": {"type": "array", "items": "string"}}]}
    tested = one_field({"type": "array", "items": {"type": "array", "items": ["null", inner]}})
    value = {"value": [[None, {"n": ["a", ""]}], [], [{"n": []}]]}
    raw = tested.by_fastavro(value)
    assert tested.encode(tested.to_object(value)) == raw == tested.by_avro(value)
    assert tested.decode(raw, 0) == (tested.to_object(value), len(raw))


@pytest.mark.parametrize(
    ("field_type", "why"),
    [
        ("double", "double"),
        ("null", "null"),
        (["long", "null"], "long"),
        (["null", "long", "string"], "null"),
        ({"type": "map", "values": "long"}, "map"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "logical"),
        ({"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}, "no bound"),
        (["null", "One"], "recursive"),
        ("Missing", "Missing"),
        ({"type": "enum", "name": "One", "symbols": ["A"]}, "two types"),
    ],
)
def test_a_shape_that_is_not_supported_is_refused_by_name(field_type: Any, why: str) -> None:
    schema = {"type": "record", "name": "One", "fields": [{"name": "value", "type": field_type}]}
    with pytest.raises(UnsupportedSchemaError, match=why):
        compile_encoder(schema)


def test_a_field_name_that_is_code_is_refused() -> None:
    for name in ("x = 1", "import", "a__b", "x\n", ""):
        schema = {"type": "record", "name": "One", "fields": [{"name": name, "type": "long"}]}
        with pytest.raises(UnsupportedSchemaError, match="not well formed"):
            compile_encoder(schema)


def test_a_class_that_has_drifted_from_its_schema_is_refused() -> None:
    schema = SCHEMAS["timeout"]
    tested = rig("timeout")
    swapped = as_dataclass("Timeout", ["call_id", "event_id", *[f["name"] for f in schema["fields"][2:]]])
    with pytest.raises(UnsupportedSchemaError, match="Timeout has the fields"):
        compile_decoder(schema, {"Timeout": swapped}, tested.enums)
    with pytest.raises(UnsupportedSchemaError, match="Cause lacks the symbols"):
        compile_decoder(schema, tested.classes, {"Cause": StrEnum("Cause", [("DEADLINE", "DEADLINE")])})


def test_the_source_is_kept_for_people_and_tracebacks() -> None:
    tested = rig("tool_call")
    for built in (tested.decode, tested.encode):
        assert "f_call_id" in built.source
        assert linecache.getlines(built.__code__.co_filename)  # type: ignore[attr-defined]
