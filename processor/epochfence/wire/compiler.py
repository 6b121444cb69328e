"""Decoders and encoders compiled from the schemas: the hot path (a library's dictionaries would cost twice the time).

The bytes are those of fastavro and of the official avro package, proven by tests/property/test_compiled_codec.py. Each
function keeps its Python text in the attribute `source`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol, cast

from epochfence.wire.compiler_read import DecoderSource
from epochfence.wire.compiler_write import EncoderSource
from epochfence.wire.errors import DecodeError, EncodeError, UnsupportedSchemaError
from epochfence.wire.shapes import parse_record

__all__ = [
    "DecodeError",
    "Decoder",
    "EncodeError",
    "Encoder",
    "UnsupportedSchemaError",
    "compile_decoder",
    "compile_encoder",
]


class Decoder(Protocol):
    """(buffer, offset) -> (value, offset of the first byte behind it). The offset is 0 or more.

    Raises DecodeError, and nothing else, for whatever bytes; in a time that the buffer's length bounds.
    """

    source: str

    def __call__(self, buffer: bytes, offset: int, /) -> tuple[Any, int]: ...


class Encoder(Protocol):
    """value -> its Avro bytes, without a header.

    Raises EncodeError for a number beyond its type, a fixed of another size, a symbol that the schema does not have.
    """

    source: str

    def __call__(self, value: Any, /) -> bytes: ...


def compile_decoder(
    schema: Mapping[str, Any],
    classes: Mapping[str, type],
    enums: Mapping[str, type[StrEnum]],
    *,
    refuse_unrecognized: bool = False,
) -> Decoder:
    """A decoder for the values of a record schema, as `json.loads` gives it.

    `classes` and `enums` go by the type's name without its namespace. A record becomes `classes[name](...)`, its fields
    positional in the schema's order; an enum's symbol the member with that value; bytes and fixed bytes; an array a
    tuple. With `refuse_unrecognized` the symbol UNRECOGNIZED raises DecodeError, as a processor's inputs need.

    The caller checks that the whole buffer was consumed. Raises UnsupportedSchemaError when the schema has a shape that
    is not supported, or does not fit its classes.
    """
    record = parse_record(schema)
    built = DecoderSource(record, classes, enums, refuse_unrecognized)
    return cast(Decoder, built.build(f"decode_{record.name}", f"Avro decoder of {record.name}"))


def compile_encoder(
    schema: Mapping[str, Any],
    classes: Mapping[str, type] | None = None,
    enums: Mapping[str, type[StrEnum]] | None = None,
) -> Encoder:
    """An encoder for the values of a record schema, as `json.loads` gives it.

    It reads attributes by field name, or unpacks the value where `classes` says that it is a NamedTuple, which is
    quicker. Values are trusted to have the right types. `enums` makes the look-up of symbols quicker; without it any
    StrEnum or string does. Raises UnsupportedSchemaError as `compile_decoder` does.
    """
    record = parse_record(schema)
    built = EncoderSource(record, classes or {}, enums or {})
    return cast(Encoder, built.build(f"encode_{record.name}", f"Avro encoder of {record.name}"))
