"""Source of a decoder: straight-line code, one step a field, that does nothing it can leave to the next step.

How it stays strict and quick:
- A short length, number, symbol or branch is one table or one comparison; anything else goes to a function of varint.py
  that reads it in full or refuses it.
- A value that is cut short is not looked for at each step. Every step but a slice reads at least one byte, which fails
  at the end of the buffer, and one comparison at the end of the value finds a last slice that was too short. Lengths
  and counts never go beyond the buffer by more than one byte can say, so nothing is allocated by a claimed length.
"""

from collections.abc import Mapping
from enum import StrEnum

from epochfence.wire import varint
from epochfence.wire.errors import DecodeError, UnsupportedSchemaError
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
    min_size,
    record_class,
)
from epochfence.wire.source import SourceBuilder


class DecoderSource(SourceBuilder):
    """Writes the functions of one decoder; `root` is the record that it reads."""

    def __init__(
        self, root: Record, classes: Mapping[str, type], enums: Mapping[str, type[StrEnum]], refuse_unrecognized: bool
    ) -> None:
        super().__init__()
        self.classes = classes
        self.enums = enums
        self.refuse_unrecognized = refuse_unrecognized
        self.functions: set[str] = set()
        self.tables: dict[str, tuple[str, str]] = {}
        for name in ("ONE_BYTE", "read_long", "read_long_of_many", "read_int", "read_length", "read_branch"):
            self.bind(name, getattr(varint, name))
        for helper in (read_symbol, check_count, check_block_end, bad_boolean, DecodeError):
            self.bind(helper.__name__, helper)
        self.bind("new_tuple", tuple.__new__)
        self.entry(root)

    def entry(self, root: Record) -> None:
        self.record_functions(root)
        with self.block(f"def decode_{root.name}(b, i):"):
            with self.block("try:"):
                self.fields(root, "")
            with self.block("except IndexError:"):
                self.line(f'raise DecodeError("{root.name}: the bytes end inside a value") from None')
            with self.block("except UnicodeDecodeError:"):
                self.line(f'raise DecodeError("{root.name}: a string is not UTF-8") from None')
            with self.block("if i > len(b):"):
                self.line(f'raise DecodeError("{root.name}: the bytes end inside a value")')
            self.construction(root, "", "return ", ", i")

    def record_functions(self, shape: Shape, inlined: bool = True) -> None:
        """A function for each record that may be absent or repeated; the others are read where they stand."""
        match shape:
            case Nullable() | Array():
                self.record_functions(shape.item, inlined=False)
            case Record():
                for field in shape.fields:
                    self.record_functions(field.shape)
                if not inlined and shape.name not in self.functions:
                    self.functions.add(shape.name)
                    with self.block(f"def read_{shape.name}_record(b, i):"):
                        self.fields(shape, "")
                        self.construction(shape, "", "return ", ", i")
                    self.line()
                    self.line()

    def fields(self, record: Record, prefix: str) -> None:
        """The fields of a record, each in a local variable: f_<path>."""
        for field in record.fields:
            self.line(f"# {prefix.replace('__', '.')}{field.name}")
            if isinstance(field.shape, Record):
                path = f"{prefix}{field.name}__"
                self.fields(field.shape, path)
                self.construction(field.shape, path, f"f_{prefix}{field.name} = ", "")
            else:
                self.value(field.shape, f"f_{prefix}{field.name}")

    def construction(self, record: Record, prefix: str, before: str, after: str) -> None:
        """A statement with the record's object in it."""
        cls = record_class(record, self.classes)
        opening, closing = f"{self.bind(record.name, cls)}(", ")"
        if cls.__bases__ == (tuple,) and hasattr(cls, "_fields"):
            # A NamedTuple's own constructor is a Python function around just this.
            opening, closing = f"new_tuple({opening[:-1]}, (", "))"
        with self.block(f"{before}{opening}"):
            self.listed(f"f_{prefix}{field.name}" for field in record.fields)
        self.line(f"{closing}{after}")

    def value(self, shape: Shape, target: str) -> None:
        match shape:
            case Primitive():
                getattr(self, shape.name)(target)
            case Fixed():
                self.line(f"{target} = b[i : i + {shape.size}]")
                self.line(f"i += {shape.size}")
            case Enum():
                self.enum(shape, target)
            case Nullable():
                self.nullable(shape.item, target)
            case Array():
                self.array(shape.item, target)
            case Record():
                self.line(f"{target}, i = read_{shape.name}_record(b, i)")

    def string(self, target: str) -> None:
        self.length()
        self.line(f"{target} = b[i:end].decode()")
        self.line("i = end")

    def bytes(self, target: str) -> None:
        self.length()
        self.line(f"{target} = b[i:end]")
        self.line("i = end")

    def length(self) -> None:
        self.line("n = b[i]")
        with self.block("if n & 129:  # negative, or more than one byte"):
            self.line("n, i = read_length(b, i)")
            self.line("end = i + n")
        with self.block("else:"):
            self.line("i += 1")
            self.line("end = i + (n >> 1)")

    def long(self, target: str) -> None:
        self.number(target, "read_long_of_many")

    def int(self, target: str) -> None:
        self.number(target, "read_int")

    def number(self, target: str, reader: str) -> None:
        self.line(f"{target} = ONE_BYTE[b[i]]")
        with self.block(f"if {target} is None:"):
            self.line(f"{target}, i = {reader}(b, i)")
        with self.block("else:"):
            self.line("i += 1")

    def boolean(self, target: str) -> None:
        self.line("n = b[i]")
        with self.block("if n > 1:"):
            self.line("raise bad_boolean(i)")
        self.line(f"{target} = n == 1")
        self.line("i += 1")

    def enum(self, enum: Enum, target: str) -> None:
        members = enum_members(enum, self.enums)
        if self.refuse_unrecognized:
            members = tuple(
                None if symbol == UNRECOGNIZED else member for symbol, member in zip(enum.symbols, members, strict=True)
            )
        elif None in members:
            raise UnsupportedSchemaError(f"{self.enums[enum.name].__name__} lacks the symbol {UNRECOGNIZED}")
        if enum.name not in self.tables:
            one_byte = {number << 1: member for number, member in enumerate(members[:64])}
            table = self.bind(enum.name.upper(), tuple(map(one_byte.get, range(256))))
            self.tables[enum.name] = table, self.bind(f"{table}_SYMBOLS", members)
        table, symbols = self.tables[enum.name]
        self.line(f"{target} = {table}[b[i]]")
        with self.block(f"if {target} is None:"):
            self.line(f"{target}, i = read_symbol(b, i, {symbols})")
        with self.block("else:"):
            self.line("i += 1")

    def nullable(self, item: Shape, target: str) -> None:
        self.line("n = b[i]")
        with self.block("if n & 253:  # neither 0 nor 2, the branches in one byte"):
            self.line("n, i = read_branch(b, i)")
        with self.block("else:"):
            self.line("i += 1")
        with self.block("if n:"):
            self.value(item, target)
        with self.block("else:"):
            self.line(f"{target} = None")

    def array(self, item: Shape, target: str) -> None:
        items, item_name, left, block_end = (f"{part}_{target}" for part in ("items", "item", "left", "end"))
        self.line(f"{items} = []")
        with self.block("while True:"):
            self.line(f"{left}, i = read_long(b, i)")
            with self.block(f"if {left} == 0:"):
                self.line("break")
            self.line(f"{block_end} = None")
            with self.block(f"if {left} < 0:  # the block's size in bytes follows"):
                self.line(f"{left} = -{left}")
                self.line("n, i = read_length(b, i)")
                self.line(f"{block_end} = i + n")
            self.line(f"check_count({left}, {min_size(item)}, b, i)")
            with self.block(f"for _ in range({left}):"):
                self.value(item, item_name)
                self.line(f"{items}.append({item_name})")
            with self.block(f"if {block_end} is not None:"):
                self.line(f"check_block_end({block_end}, i)")
        self.line(f"{target} = tuple({items})")


def read_symbol(b: bytes, i: int, members: tuple[StrEnum | None, ...]) -> tuple[StrEnum, int]:
    """An enum's symbol that is not one byte of the table: a number in too many bytes, or one that is refused."""
    n, after = varint.read_int(b, i)
    if not 0 <= n < len(members):
        raise DecodeError(f"the enum at byte {i} has no such symbol")
    member = members[n]
    if member is None:
        raise DecodeError(f"the enum at byte {i} says {UNRECOGNIZED}")
    return member, after


def check_count(count: int, item_size: int, b: bytes, i: int) -> None:
    """Refuses a block with more items than the remaining bytes can hold, before any of them is read."""
    if count * item_size > len(b) - i:
        raise DecodeError(f"the array block before byte {i} claims more items than there are bytes")


def check_block_end(claimed: int, i: int) -> None:
    """A block that says how many bytes it has must have them: another reader would skip by that number."""
    if claimed != i:
        raise DecodeError(f"the array block that ends at byte {i} claims to end at {claimed}")


def bad_boolean(i: int) -> DecodeError:
    return DecodeError(f"the boolean at byte {i} is neither 0 nor 1")
