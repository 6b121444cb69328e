"""Avro single-object encoding by the official `avro` package: C3 01, the fingerprint, the body."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import avro.errors
import avro.io
import avro.schema

from tests.independent.jsonform import UndecodableError

SCHEMA_FOLDER = Path(__file__).parents[2] / "schemas"
NAMES = ("tool_call", "timeout", "result", "compensation", "decision", "call_record", "checkpoint")
MARKER = b"\xc3\x01"
HEADER_BYTES = 10


def load_schemas(folder: Path = SCHEMA_FOLDER) -> dict[str, avro.schema.Schema]:
    """The schemas of the source tree by file name."""
    return {name: avro.schema.parse((folder / f"{name}.avsc").read_text("utf-8")) for name in NAMES}


class Codec:
    """Decodes values by the schema that they name, encodes by the source tree's."""

    def __init__(self) -> None:
        self.schemas = load_schemas()
        self.by_fingerprint: dict[bytes, avro.schema.Schema] = {s.fingerprint(): s for s in self.schemas.values()}

    def learn(self, schema_topic: Iterable[tuple[bytes | None, bytes | None]]) -> list[str]:
        """Takes in the (key, value) pairs of the `schemas` topic; says what is wrong with them."""
        wrong = []
        for key, value in schema_topic:
            try:
                schema = avro.schema.parse((value or b"").decode("utf-8"))
            except (avro.errors.AvroException, UnicodeDecodeError) as error:
                wrong.append(f"{key!r}: not a schema: {error}")
                continue
            fingerprint: bytes = schema.fingerprint()
            if key != fingerprint.hex().encode("ascii"):
                wrong.append(f"{key!r} holds the schema of {fingerprint.hex()}")
            self.by_fingerprint[fingerprint] = schema
        return wrong

    def decode(self, name: str, value: bytes | None) -> dict[str, Any]:
        """The record in a value that must be of the named type, read whole. Raises UndecodableError."""
        if value is None or value[:2] != MARKER or len(value) < HEADER_BYTES:
            raise UndecodableError("not a single-object encoding")
        writer = self.by_fingerprint.get(value[2:HEADER_BYTES])
        reader = self.schemas[name]
        if writer is None:
            raise UndecodableError(f"no schema has the fingerprint {value[2:HEADER_BYTES].hex()}")
        if getattr(writer, "fullname", None) != getattr(reader, "fullname", None):
            raise UndecodableError(f"not a {name}")
        body = io.BytesIO(value[HEADER_BYTES:])
        try:
            datum = avro.io.DatumReader(writer, reader).read(avro.io.BinaryDecoder(body))
        except (avro.errors.AvroException, ValueError, TypeError, EOFError) as error:
            raise UndecodableError(f"not a {name}: {error}") from None
        if body.read(1):
            raise UndecodableError("trailing bytes")
        assert isinstance(datum, dict)
        return datum

    def body(self, name: str, datum: dict[str, Any]) -> bytes:
        """The Avro bytes of a record, without framing."""
        out = io.BytesIO()
        avro.io.DatumWriter(self.schemas[name]).write(datum, avro.io.BinaryEncoder(out))
        return out.getvalue()

    def encode(self, name: str, datum: dict[str, Any]) -> bytes:
        """A whole value: marker, fingerprint, body."""
        fingerprint: bytes = self.schemas[name].fingerprint()
        return MARKER + fingerprint + self.body(name, datum)

    def decode_event(self, kind: str, value: bytes | None) -> dict[str, Any]:
        """An input as the reference takes it. An enum symbol UNRECOGNIZED makes it undecodable."""
        event = self.decode(kind, value)
        if "UNRECOGNIZED" in (event.get(name) for name in ("policy", "orphans", "cause", "outcome")):
            raise UndecodableError("an enum symbol that this reader does not know")
        return {"type": kind, **event}
