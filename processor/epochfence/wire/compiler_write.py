"""Source of an encoder: the fields in local variables, then one join of their bytes.

Small numbers, lengths and symbols are looked up as finished bytes. The output is the one that every Avro library
writes: numbers in the fewest bytes, an array in one block.
"""

from collections.abc import Mapping
from enum import StrEnum

from epochfence.wire import varint
from epochfence.wire.errors import EncodeError
from epochfence.wire.shapes import (
    Array,
    Enum,
    Fixed,
    Nullable,
    Primitive,
    Record,
    Shape,
    enum_members,
    record_class,
)
from epochfence.wire.source import SourceBuilder

NULL, SOME = b"\x00", b"\x02"  # the branches of ["null", X]
SOME_SMALL = tuple(SOME + number for number in varint.SMALL)
LIMIT = varint.SMALL_LIMIT


class EncoderSource(SourceBuilder):
    """Writes the functions of one encoder; `root` is the record that it writes."""

    def __init__(self, root: Record, classes: Mapping[str, type], enums: Mapping[str, type[StrEnum]]) -> None:
        super().__init__()
        self.classes = classes
        self.enums = enums
        self.functions: set[str] = set()
        self.tables: dict[tuple[str, bytes], str] = {}
        for name in ("SMALL", "write_long", "write_int"):
            self.bind(name, getattr(varint, name))
        self.bind("SOME_SMALL", SOME_SMALL)
        self.bind("join", b"".join)
        self.bind("wrong_size", wrong_size)
        self.bind("EncodeError", EncodeError)
        self.entry(root)

    def entry(self, root: Record) -> None:
        self.item_functions(root)
        with self.block(f"def encode_{root.name}(r):"):
            with self.block("try:"):
                self.unpack(root, "r", "")
                self.returned(self.parts(root, ""))
            with self.block("except KeyError:"):
                self.line(f'raise EncodeError("{root.name}: a value is not one of the symbols of its enum") from None')

    def item_functions(self, shape: Shape) -> None:
        """A function for each shape that may be absent as a record, or repeated; the others are written in line."""
        match shape:
            case Nullable(item=Record() as item) | Array(item=item):
                self.item_functions(item)
                self.item_function(item)
            case Nullable():
                self.item_functions(shape.item)
            case Record():
                for field in shape.fields:
                    self.item_functions(field.shape)

    def item_function(self, item: Shape) -> None:
        name = writer_name(item)
        if name in self.functions:
            return
        self.functions.add(name)
        with self.block(f"def {name}(r):"):
            if isinstance(item, Record):
                self.unpack(item, "r", "")
                self.returned(self.parts(item, ""))
            else:
                self.returned(self.value(item, "r"))
        self.line()
        self.line()

    def returned(self, parts: list[str]) -> None:
        with self.block("return join(("):
            self.listed(parts)
        self.line("))")

    def unpack(self, record: Record, source: str, prefix: str) -> None:
        """Puts the fields of a record, and of the records in it, into local variables: f_<path>."""
        names = [f"f_{prefix}{field.name}" for field in record.fields]
        cls = record_class(record, self.classes) if record.name in self.classes else object
        if issubclass(cls, tuple) and names:
            with self.block("("):
                self.listed(names)
            self.line(f") = {source}")
        else:
            for name, field in zip(names, record.fields, strict=True):
                self.line(f"{name} = {source}.{field.name}")
        for name, field in zip(names, record.fields, strict=True):
            if isinstance(field.shape, Record):
                self.unpack(field.shape, name, f"{prefix}{field.name}__")

    def parts(self, record: Record, prefix: str) -> list[str]:
        """Expressions whose bytes, one after the other, are the record's."""
        parts: list[str] = []
        for field in record.fields:
            if isinstance(field.shape, Record):
                parts += self.parts(field.shape, f"{prefix}{field.name}__")
            else:
                parts += self.value(field.shape, f"f_{prefix}{field.name}")
        return parts

    def value(self, shape: Shape, name: str) -> list[str]:
        """The expressions of one value that is in the variable `name`; writes the lines that they need first."""
        match shape:
            case Primitive(name="long" | "int"):
                return [f"SMALL[{name}] if 0 <= {name} < {LIMIT} else write_{shape.name}({name})"]
            case Primitive(name="boolean"):
                return [f'b"\\x01" if {name} else b"\\x00"']
            case Primitive(name="string"):
                self.line(f"{name} = {name}.encode()")
                return [f"SMALL[n] if (n := len({name})) < {LIMIT} else write_long(n)", name]
            case Primitive():
                return [f"SMALL[n] if (n := len({name})) < {LIMIT} else write_long(n)", name]
            case Fixed():
                with self.block(f"if len({name}) != {shape.size}:"):
                    self.line(f'raise wrong_size("{shape.name}", {shape.size})')
                return [name]
            case Enum():
                return [f"{self.symbols(shape, b'')}[{name}]"]
            case Nullable():
                return self.nullable(shape.item, name)
            case Array():
                items = f'join((write_long(len({name})), *map({writer_name(shape.item)}, {name}), b"\\x00"))'
                return [f'{items} if {name} else b"\\x00"']
            case Record():
                return [f"{writer_name(shape)}({name})"]

    def nullable(self, item: Shape, name: str) -> list[str]:
        match item:
            case Primitive(name="long" | "int"):
                some = f'SOME_SMALL[{name}] if 0 <= {name} < {LIMIT} else b"\\x02" + write_{item.name}({name})'
                return [f'b"\\x00" if {name} is None else {some}']
            case Primitive(name="string" | "bytes"):
                with self.block(f"if {name} is None:"):
                    self.line(f'head_{name}, {name} = b"\\x00", b""')
                with self.block("else:"):
                    if item.name == "string":
                        self.line(f"{name} = {name}.encode()")
                    self.line(f"n = len({name})")
                    self.line(f'head_{name} = SOME_SMALL[n] if n < {LIMIT} else b"\\x02" + write_long(n)')
                return [f"head_{name}", name]
            case Enum():
                return [f"{self.symbols(item, SOME)}[{name}]"]
            case _:
                with self.block(f"if {name} is None:"):
                    self.line(f'some_{name} = b"\\x00"')
                with self.block("else:"):
                    parts = ", ".join(self.value(item, name))
                    self.line(f'some_{name} = join((b"\\x02", {parts}))')
                return [f"some_{name}"]

    def symbols(self, enum: Enum, branch: bytes) -> str:
        """The name of a table from symbol to bytes; with a `branch` before them, None is in it too."""
        if (enum.name, branch) not in self.tables:
            members = enum_members(enum, self.enums) if enum.name in self.enums else enum.symbols
            table: dict[str | None, bytes] = {None: NULL} if branch else {}
            table |= {member: branch + varint.SMALL[n] for n, member in enumerate(members) if member is not None}
            name = f"SOME_{enum.name.upper()}" if branch else enum.name.upper()
            self.tables[enum.name, branch] = self.bind(name, table)
        return self.tables[enum.name, branch]


def writer_name(item: Shape) -> str:
    """The name of the function that writes one item of this shape."""
    match item:
        case Record() | Enum() | Fixed():
            return f"write_{item.name}_item"
        case Primitive():
            return f"write_{item.name}_primitive"
        case Nullable():
            return f"{writer_name(item.item)}_or_null"
        case Array():
            return f"{writer_name(item.item)}_array"


def wrong_size(name: str, size: int) -> EncodeError:
    return EncodeError(f"a {name} must have {size} bytes")
