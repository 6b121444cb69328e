"""Walks one value by whatever Avro schema and says where it ends: a strict look before a lax library reads it.

A general reader trusts what a value says of itself: it takes 7 for a boolean, allocates by a claimed length, and runs
for hours over an array that claims a billion items of no bytes. What has been walked is well formed and bounded.
"""

from collections.abc import Mapping
from typing import Any

from epochfence.wire.errors import DecodeError
from epochfence.wire.varint import read_int, read_length, read_long

MAX_DEPTH = 64
"""Deepest nesting of a value. A schema that contains itself would otherwise have no bound."""
_FREE_STEPS = 10_000  # values without bytes (null, an empty record) that any input may have,
_STEPS_PER_BYTE = 16  # and those that each of its bytes allows on top
_FIXED_SIZES = {"null": 0, "float": 4, "double": 8}


def walk(schema: Any, named: Mapping[str, Any], buffer: bytes, offset: int) -> int:
    """The offset behind the value at `offset`. `schema` and `named` are as fastavro.parse_schema leaves them.

    Raises DecodeError, and nothing else, for whatever bytes; in a time that the buffer's length bounds.
    """
    walker = _Walker(named, buffer)
    try:
        return walker.value(schema, offset, 0)
    except IndexError:
        raise DecodeError("the bytes end inside a value") from None


class _Walker:
    def __init__(self, named: Mapping[str, Any], buffer: bytes) -> None:
        self.named = named
        self.buffer = buffer
        self.steps_left = _FREE_STEPS + _STEPS_PER_BYTE * len(buffer)

    def value(self, schema: Any, i: int, depth: int) -> int:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise DecodeError("the value claims to hold far more than its bytes")
        if depth > MAX_DEPTH:
            raise DecodeError(f"the value nests deeper than {MAX_DEPTH}")
        match schema:
            case list():
                branch, i = self.index(len(schema), "union", i)
                return self.value(schema[branch], i, depth + 1)
            case {"type": "record", "fields": fields}:
                for field in fields:
                    i = self.value(field["type"], i, depth + 1)
                return i
            case {"type": "array", "items": item}:
                return self.blocks(item, i, depth, keyed=False)
            case {"type": "map", "values": item}:
                return self.blocks(item, i, depth, keyed=True)
            case {"type": "enum", "symbols": symbols}:
                return self.index(len(symbols), "enum", i)[1]
            case {"type": "fixed", "size": int() as size}:
                return self.skip(size, i)
            case {"type": inner}:
                return self.value(inner, i, depth + 1)
            case str():
                return self.primitive(schema, i, depth)
            case _:
                raise DecodeError("the writer's schema has a type that is not known")

    def primitive(self, name: str, i: int, depth: int) -> int:
        match name:
            case "null" | "float" | "double":
                return self.skip(_FIXED_SIZES[name], i)
            case "boolean":
                if self.buffer[i] > 1:
                    raise DecodeError(f"the boolean at byte {i} is neither 0 nor 1")
                return i + 1
            case "int":
                return read_int(self.buffer, i)[1]
            case "long":
                return read_long(self.buffer, i)[1]
            case "bytes":
                length, i = read_length(self.buffer, i)
                return i + length
            case "string":
                return self.string(i)
            case _ if name in self.named:
                return self.value(self.named[name], i, depth + 1)
            case _:
                raise DecodeError("the writer's schema has a type that is not known")

    def skip(self, size: int, i: int) -> int:
        if not 0 <= size <= len(self.buffer) - i:
            raise DecodeError("the bytes end inside a value")
        return i + size

    def string(self, i: int) -> int:
        length, i = read_length(self.buffer, i)
        try:
            self.buffer[i : i + length].decode()
        except UnicodeDecodeError:
            raise DecodeError(f"the string at byte {i} is not UTF-8") from None
        return i + length

    def index(self, choices: int, what: str, i: int) -> tuple[int, int]:
        index, after = read_int(self.buffer, i)
        if not 0 <= index < choices:
            raise DecodeError(f"the {what} at byte {i} has no such branch or symbol")
        return index, after

    def blocks(self, item: Any, i: int, depth: int, *, keyed: bool) -> int:
        """The blocks of an array or a map. Those with a negative count say their size in bytes, which must be true."""
        while True:
            count, i = read_long(self.buffer, i)
            if count == 0:
                return i
            claimed_end = None
            if count < 0:
                count = -count
                size, i = read_length(self.buffer, i)
                claimed_end = i + size
            for _ in range(count):  # steps_left ends a count that is a lie
                if keyed:
                    i = self.string(i)
                i = self.value(item, i, depth + 1)
            if claimed_end is not None and claimed_end != i:
                raise DecodeError(f"the block that ends at byte {i} claims to end at {claimed_end}")
