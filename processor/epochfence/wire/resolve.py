"""Values that another writer's schema wrote, read as ours: Avro's schema resolution, by fastavro.

fastavro is lax where a processor must not be, so it never sees bytes that walker.py has not walked, nor a schema that
has not been copied part by part; and its output goes through a strict conversion to the classes of the protocol.
"""

import io
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import fastavro

from epochfence.wire.errors import DecodeError
from epochfence.wire.shapes import (
    UNRECOGNIZED,
    Array,
    Enum,
    Fixed,
    Nullable,
    Primitive,
    Record,
    Shape,
    enum_members,
    parse_record,
    record_class,
)
from epochfence.wire.walker import MAX_DEPTH, walk

MAX_SCHEMA_CHARACTERS = 1_000_000
"""The longest schema text that is looked at."""
# What decides how a value is read. Not copied: docs; logical types, which change no byte but would make fastavro give
# a datetime for a long; and whatever fastavro keeps in a schema that it takes to be parsed already.
_SCHEMA_PARTS = ("type", "name", "namespace", "aliases", "fields", "symbols", "items", "values", "size", "default")
_FIELD_PARTS = ("name", "aliases", "default")
_RANGES = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}


class SchemaResolver:
    """A decoder for one pair of schemas: the writer's, as JSON text, and ours, as `json.loads` gives it.

    (buffer, offset) -> (value, offset behind it), in the classes that `compile_decoder` gives. The caller checks that
    the whole buffer was consumed. Making one never fails because of the writer's schema: a text that is no schema, or
    cannot be read as ours, fails at each call, so that a caller may keep the resolver like any other.
    """

    def __init__(
        self,
        writer_schema: str,
        reader_schema: Mapping[str, Any],
        classes: Mapping[str, type],
        enums: Mapping[str, type[StrEnum]],
        *,
        refuse_unrecognized: bool = False,
    ) -> None:
        """Raises UnsupportedSchemaError when our own schema does not fit its classes."""
        self._shape = parse_record(reader_schema)
        self._converter = _Converter(classes, enums, refuse_unrecognized)
        self._converter.check(self._shape)
        self._reader = fastavro.parse_schema(dict(reader_schema))
        self._named: dict[str, Any] = {}
        self._writer: Any = None
        self._failure: str | None = None
        try:
            self._writer = self._parse_writer(writer_schema)
        except DecodeError as error:
            self._failure = str(error)

    def __call__(self, buffer: bytes, offset: int) -> tuple[Any, int]:
        """Raises DecodeError, and nothing else, for whatever bytes."""
        if self._failure is not None:
            raise DecodeError(self._failure)
        end = walk(self._writer, self._named, buffer, offset)
        stream = io.BytesIO(buffer[offset:end])
        try:
            read = fastavro.schemaless_reader(stream, self._writer, self._reader)
        except MemoryError:  # our own trouble must not become a decision about the sender's bytes
            raise
        except Exception as error:  # noqa: BLE001 - whatever a schema that does not resolve makes the library raise
            raise DecodeError(f"the writer's schema does not resolve to {self._shape.name}: {_kind(error)}") from None
        if stream.tell() != end - offset:
            raise DecodeError("the writer's schema does not account for all of the value")
        return self._converter.convert(self._shape, read), end

    def _parse_writer(self, text: str) -> Any:
        if len(text) > MAX_SCHEMA_CHARACTERS:
            raise DecodeError(f"the writer's schema is longer than {MAX_SCHEMA_CHARACTERS} characters")
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError):
            raise DecodeError("the writer's schema is not JSON") from None
        schema = _copy_schema(schema, 0)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise DecodeError("the writer's schema is not a record")
        name = schema.get("name")
        if not isinstance(name, str) or name.rpartition(".")[2] != self._shape.name:
            raise DecodeError(f"the writer's schema is not one of {self._shape.name}")
        try:
            return fastavro.parse_schema(schema, named_schemas=self._named)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - as above: the text is not ours
            raise DecodeError(f"the writer's schema is not an Avro schema: {_kind(error)}") from None


def _copy_schema(schema: Any, depth: int) -> Any:
    """The parts of a schema that decide how a value is read. Raises DecodeError when it nests too deep."""
    if depth > MAX_DEPTH:
        raise DecodeError(f"the writer's schema nests deeper than {MAX_DEPTH}")
    if isinstance(schema, list):
        return [_copy_schema(branch, depth + 1) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {part: schema[part] for part in _SCHEMA_PARTS if part in schema}
    for part in ("type", "items", "values"):
        if part in copied:
            copied[part] = _copy_schema(copied[part], depth + 1)
    if isinstance(copied.get("fields"), list):
        copied["fields"] = [_copy_field(field, depth + 1) for field in copied["fields"]]
    return copied


def _copy_field(field: Any, depth: int) -> Any:
    if not isinstance(field, dict):
        raise DecodeError("the writer's schema is not an Avro schema: a field is not an object")
    copied = {part: field[part] for part in _FIELD_PARTS if part in field}
    return copied | {"type": _copy_schema(field.get("type"), depth)}


class _Converter:
    """fastavro's dictionaries to the classes of the protocol, every type checked."""

    def __init__(
        self, classes: Mapping[str, type], enums: Mapping[str, type[StrEnum]], refuse_unrecognized: bool
    ) -> None:
        self.classes = classes
        self.enums = enums
        self.refuse_unrecognized = refuse_unrecognized

    def check(self, shape: Shape) -> None:
        """Raises UnsupportedSchemaError when a type has no class that fits."""
        match shape:
            case Record():
                record_class(shape, self.classes)
                for field in shape.fields:
                    self.check(field.shape)
            case Enum():
                enum_members(shape, self.enums)
            case Nullable() | Array():
                self.check(shape.item)

    def convert(self, shape: Shape, value: Any) -> Any:
        match shape, value:
            case Nullable(), None:
                return None
            case Nullable(), _:
                return self.convert(shape.item, value)
            case Record(), dict() if value.keys() == {field.name for field in shape.fields}:
                fields = [self.convert(field.shape, value[field.name]) for field in shape.fields]
                return self.classes[shape.name](*fields)
            case Array(), list():
                return tuple(self.convert(shape.item, item) for item in value)
            case Enum(), str():
                return self.symbol(shape, value)
            case Fixed(), bytes() if len(value) == shape.size:
                return value
            case Primitive(name="string"), str():
                return value
            case Primitive(name="bytes"), bytes():
                return value
            case Primitive(name="boolean"), bool():
                return value
            case Primitive(name="int" | "long"), int() if type(value) is int and value in _RANGES[shape.name]:
                return value
            case _:
                raise DecodeError("the writer's schema gives a value of another type than ours")

    def symbol(self, enum: Enum, value: str) -> StrEnum:
        if value == UNRECOGNIZED and self.refuse_unrecognized:
            raise DecodeError(f"the enum {enum.name} says {UNRECOGNIZED}, or a symbol that is not known here")
        try:
            return self.enums[enum.name](value)
        except ValueError:
            raise DecodeError(f"the enum {enum.name} has a symbol that is not known here") from None


def _kind(error: Exception) -> str:
    """The kind of a library's error; its text may repeat the value."""
    return type(error).__name__
