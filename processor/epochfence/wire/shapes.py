"""An Avro schema as a small tree of typed values, names resolved: what the compilers and the resolver work on.

Only the shapes that `schemas/` uses: records of string, bytes, long, int, boolean, enum, fixed, ["null", X], nested
records and arrays. Everything else is refused at once, by name, rather than written or read in some half-right way.
"""

import dataclasses
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, cast

from epochfence.wire.errors import UnsupportedSchemaError

UNRECOGNIZED = "UNRECOGNIZED"
"""The default symbol of every enum: what a reader sees that is older than the writer (protocol, *Decisions*)."""

PrimitiveName = Literal["string", "bytes", "long", "int", "boolean"]
PRIMITIVES = ("string", "bytes", "long", "int", "boolean")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")  # two underscores join a path in the compiled source


@dataclass(frozen=True, slots=True)
class Primitive:
    name: PrimitiveName


@dataclass(frozen=True, slots=True)
class Fixed:
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Enum:
    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nullable:
    """["null", X], in that order."""

    item: "Shape"


@dataclass(frozen=True, slots=True)
class Array:
    item: "Shape"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    shape: "Shape"


@dataclass(frozen=True, slots=True)
class Record:
    name: str
    fields: tuple[Field, ...]


Shape = Primitive | Fixed | Enum | Nullable | Array | Record


def parse_record(schema: Mapping[str, Any]) -> Record:
    """The shape of a record schema, as `json.loads` gives it. Type names lose their namespace.

    Raises UnsupportedSchemaError, naming the type or field.
    """
    shape = _Parser().shape(schema, "")
    if not isinstance(shape, Record):
        raise UnsupportedSchemaError(f"a record is needed, not {_describe(shape)}")
    return shape


def min_size(shape: Shape) -> int:
    """The fewest bytes that a value of this shape can take."""
    match shape:
        case Record():
            return sum(min_size(field.shape) for field in shape.fields)
        case Fixed():
            return shape.size
        case _:
            return 1


def record_class(record: Record, classes: Mapping[str, type]) -> type:
    """The class of a record; its fields, where they can be known, must be the schema's, in the schema's order.

    Raises UnsupportedSchemaError: a class and its schema that have drifted apart would swap values silently.
    """
    cls = classes.get(record.name)
    if cls is None:
        raise UnsupportedSchemaError(f"no class for the record {record.name}")
    names: tuple[str, ...] | None = getattr(cls, "_fields", None)
    if names is None and dataclasses.is_dataclass(cls):
        names = tuple(field.name for field in dataclasses.fields(cls) if field.init)
    expected = tuple(field.name for field in record.fields)
    if names is not None and names != expected:
        raise UnsupportedSchemaError(f"{cls.__name__} has the fields {names}, the schema of {record.name} {expected}")
    return cls


def enum_members(enum: Enum, enums: Mapping[str, type[StrEnum]]) -> tuple[StrEnum | None, ...]:
    """The member of each symbol, in the schema's order; None for UNRECOGNIZED where the class does not have it.

    Raises UnsupportedSchemaError when there is no class, or it lacks another symbol.
    """
    cls = enums.get(enum.name)
    if cls is None:
        raise UnsupportedSchemaError(f"no class for the enum {enum.name}")
    known = {str(member): member for member in cls}
    missing = [symbol for symbol in enum.symbols if symbol not in known and symbol != UNRECOGNIZED]
    if missing:
        raise UnsupportedSchemaError(f"{cls.__name__} lacks the symbols {', '.join(missing)} of {enum.name}")
    return tuple(known.get(symbol) for symbol in enum.symbols)


class _Parser:
    """Walks a schema once; `named` holds the types defined so far, by full name."""

    def __init__(self) -> None:
        self.named: dict[str, Fixed | Enum | Record] = {}
        self.open: set[str] = set()

    def shape(self, schema: Any, namespace: str) -> Shape:
        match schema:
            case str() if schema in PRIMITIVES:
                return Primitive(cast(PrimitiveName, schema))
            case str():
                return self.reference(schema, namespace)
            case ["null", item] if item != "null" and not isinstance(item, list):
                return Nullable(self.shape(item, namespace))
            case {"logicalType": _}:
                raise UnsupportedSchemaError("logical types are not supported: times are plain long milliseconds")
            case {"type": "record" | "enum" | "fixed"}:
                return self.definition(schema, namespace)
            case {"type": "array", "items": items}:
                return self.array(items, namespace)
            case {"type": str() as name}:
                return self.shape(name, namespace)
            case _:
                raise UnsupportedSchemaError(f"a type that is not supported: {_describe(schema)}")

    def reference(self, name: str, namespace: str) -> Shape:
        full = _full_name(name, namespace)
        if full in self.open:
            raise UnsupportedSchemaError(f"{name} contains itself: recursive types are not supported")
        if full not in self.named:
            raise UnsupportedSchemaError(f"a type that is not supported or not defined: {name}")
        return self.named[full]

    def array(self, items: Any, namespace: str) -> Shape:
        item = self.shape(items, namespace)
        if min_size(item) == 0:
            raise UnsupportedSchemaError("an array of items without bytes has no bound and is not supported")
        return Array(item)

    def definition(self, schema: Mapping[str, Any], namespace: str) -> Shape:
        name = schema.get("name")
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
            raise UnsupportedSchemaError(f"not a type name: {_describe(name)}")
        full = _full_name(name, schema.get("namespace", namespace))
        short = full.rpartition(".")[2]
        if full in self.open or any(taken.rpartition(".")[2] == short for taken in self.named):
            raise UnsupportedSchemaError(f"two types have the name {short}")
        self.open.add(full)
        self.named[full] = shape = self.body(short, full.rpartition(".")[0], schema)
        self.open.discard(full)
        return shape

    def body(self, name: str, namespace: str, schema: Mapping[str, Any]) -> Fixed | Enum | Record:
        match schema:
            case {"type": "fixed", "size": int() as size} if size > 0:
                return Fixed(name, size)
            case {"type": "enum", "symbols": [*symbols]} if symbols and all(map(_is_name, symbols)):
                return Enum(name, tuple(symbols))
            case {"type": "record", "fields": [*fields]}:
                return Record(name, tuple(self.field(name, field, namespace) for field in fields))
            case _:
                raise UnsupportedSchemaError(f"the type {name} is not well formed")

    def field(self, record: str, field: Any, namespace: str) -> Field:
        name = field.get("name") if isinstance(field, Mapping) else None
        if not isinstance(name, str) or not _FIELD_NAME.fullmatch(name) or keyword.iskeyword(name):
            raise UnsupportedSchemaError(f"a field of {record} is not well formed: {_describe(name)}")
        try:
            return Field(name, self.shape(field.get("type"), namespace))
        except UnsupportedSchemaError as error:
            raise UnsupportedSchemaError(f"{record}.{name}: {error}") from None


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _describe(thing: object) -> str:
    return repr(thing)[:80]
