"""Bytes of the topics <-> values of the protocol.

A value says itself which schema wrote it: Avro's single-object encoding (C3 01 and the schema's fingerprint), or
Confluent's framing (00 and a registry's id), told apart by the first byte. Headers are never looked at: they are
outside the chain. The writer's schema is looked up, never guessed; the whole value must be consumed.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, cast

from epochfence.protocol.decisions import Checkpoint, Decision
from epochfence.protocol.events import Event
from epochfence.protocol.records import CallRecord
from epochfence.wire.compiler import Decoder, Encoder, compile_decoder, compile_encoder
from epochfence.wire.errors import DecodeError
from epochfence.wire.fingerprint import fingerprint
from epochfence.wire.resolve import SchemaResolver
from epochfence.wire.schemas import CLASSES, ENUMS, EVENT_SCHEMAS, TOPIC_OF_EVENT, load_schema
from epochfence.wire.varint import write_long

SINGLE_OBJECT_MAGIC = b"\xc3\x01"
FRAME_BYTES = 10
"""Length of the single-object header: the magic and eight bytes of fingerprint."""
CONFLUENT_MAGIC = b"\0"
_CONFLUENT_FRAME_BYTES = 5

MAX_RECORD_BYTES = 1 << 20
"""The largest key and value together that are read. A topic's max.message.bytes is of the compressed batch, so that a
record of any size can come; a decision that repeats its ids would not fit into `decisions`."""

CHECKPOINT_KEY = b"\0checkpoint"
"""The checkpoint's key in epoch-table. No call_id begins with NUL."""


class SchemaLookup(Protocol):
    """Where the schemas of other writers come from. Each answer is JSON text, or None if there is no such schema.

    A source that does not answer is waited for, or raises ClusterError; it never means "no such schema".
    """

    def by_fingerprint(self, fingerprint: bytes) -> str | None: ...

    def by_registry_id(self, schema_id: int) -> str | None: ...


class NoLookup:
    """Knows this program's own schemas only."""

    def by_fingerprint(self, fingerprint: bytes) -> str | None:
        return None

    def by_registry_id(self, schema_id: int) -> str | None:
        return None


@cache
def frame(schema: str) -> bytes:
    """The single-object header of a schema of ours."""
    return SINGLE_OBJECT_MAGIC + fingerprint(load_schema(schema))


@cache
def _encoder(schema: str) -> Encoder:
    return compile_encoder(load_schema(schema), CLASSES, ENUMS)


@cache
def _decoder(schema: str) -> Decoder:
    # An enum symbol from a newer writer is UNRECOGNIZED to us. In an event that makes the whole of it undecodable; in
    # a decision it is for the reader to see.
    refuse = schema in EVENT_SCHEMAS.values()
    return compile_decoder(load_schema(schema), CLASSES, ENUMS, refuse_unrecognized=refuse)


class ValueDecoder:
    """Decodes the values of one topic: those of our own schema by the compiled decoder, others by resolution."""

    def __init__(self, schema: str, lookup: SchemaLookup) -> None:
        self._schema = schema
        self._frame = frame(schema)
        self._own = _decoder(schema)
        self._lookup = lookup
        self._resolvers: dict[str, Callable[[bytes, int], Any]] = {}

    def decode(self, value: bytes | None) -> Any:
        """The value of the topic's record type. Raises DecodeError; ClusterError where a schema's source is silent."""
        if value is None:
            raise DecodeError("there is no value")
        if value[:FRAME_BYTES] == self._frame:
            decoded, end = self._own(value, FRAME_BYTES)
            if end != len(value):
                raise DecodeError(f"{len(value) - end} bytes are left over")
            return decoded
        return self._decode_foreign(value)

    def _decode_foreign(self, value: bytes) -> Any:
        if value[:2] == SINGLE_OBJECT_MAGIC and len(value) >= FRAME_BYTES:
            start, text = FRAME_BYTES, self._lookup.by_fingerprint(value[2:FRAME_BYTES])
        elif value[:1] == CONFLUENT_MAGIC and len(value) >= _CONFLUENT_FRAME_BYTES:
            start = _CONFLUENT_FRAME_BYTES
            text = self._lookup.by_registry_id(int.from_bytes(value[1:start], "big"))
        else:
            raise DecodeError("neither single-object nor Confluent framing")
        if text is None:
            raise DecodeError("its writer's schema is known nowhere")
        decoded, end = self._resolver(text)(value, start)
        if end != len(value):
            raise DecodeError(f"{len(value) - end} bytes are left over")
        return decoded

    def _resolver(self, text: str) -> Callable[[bytes, int], Any]:
        resolver = self._resolvers.get(text)
        if resolver is None:
            resolver = SchemaResolver(
                text,
                load_schema(self._schema),
                CLASSES,
                ENUMS,
                refuse_unrecognized=self._schema in EVENT_SCHEMAS.values(),
            )
            if len(self._resolvers) >= 256:
                self._resolvers.clear()  # bounded: a sender may not fill our memory with schemas
            self._resolvers[text] = resolver
        return resolver


class EventDecoder:
    """Decodes an input topic's values to events; None is what the protocol calls UNDECODABLE."""

    def __init__(self, topic: str, lookup: SchemaLookup) -> None:
        self._values = ValueDecoder(EVENT_SCHEMAS[topic], lookup)

    def __call__(self, key: bytes | None, value: bytes | None) -> Event | None:
        """The event, or None for bytes of any other kind. Raises ClusterError where a schema's source is silent."""
        if value is None or is_oversize(key, value):
            return None
        try:
            return cast(Event, self._values.decode(value))
        except DecodeError:
            return None


def is_oversize(key: bytes | None, value: bytes | None) -> bool:
    """Whether a record is too large to be read at all."""
    return len(key or b"") + len(value or b"") > MAX_RECORD_BYTES


def undecodable_call_id(key: bytes | None, value: bytes | None) -> str:
    """The call_id of a record that does not decode: its key, where that is UTF-8 and the record not oversize."""
    if key is None or is_oversize(key, value):
        return ""
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def encode_event(event: Event) -> bytes:
    """An event as its topic's value."""
    schema = EVENT_SCHEMAS[TOPIC_OF_EVENT[type(event)]]
    return frame(schema) + _encoder(schema)(event)


class DecisionEncoder:
    """Encodes decisions. The chain's bytes and the topic's value share one encoding.

    decided_at_ms and checkpoint are the schema's last two fields. A decision is made with 0 and None there, which is
    what the chain takes them as; their two bytes are replaced for the topic.
    """

    def __init__(self) -> None:
        self._encode = _encoder("decision")
        self._encode_checkpoint = _encoder("checkpoint")
        self._frame = frame("decision")

    def body(self, decision: Decision) -> bytes:
        """The Avro bytes that the chain runs over: without a header, decided_at_ms as 0, checkpoint as null."""
        assert decision.decided_at_ms == 0, "the chain takes it as zero"
        assert decision.checkpoint is None, "the chain takes it as null"
        return self._encode(decision)

    def tail(self, decided_at_ms: int, checkpoint: Checkpoint | None) -> bytes:
        """The bytes of the last two fields; the same for all decisions of a batch, so made once for them."""
        stands = b"\0" if checkpoint is None else b"\2" + self._encode_checkpoint(checkpoint)
        return write_long(decided_at_ms) + stands

    def value(self, body: bytes, tail: bytes) -> bytes:
        """The topic's value, from the chain's bytes and a `tail`."""
        return b"".join((self._frame, body[:-2], tail))


def encode_record(record: CallRecord) -> bytes:
    """A call record as epoch-table's value."""
    return frame("call_record") + _encoder("call_record")(record)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as epoch-table's value."""
    return frame("checkpoint") + _encoder("checkpoint")(checkpoint)


class OutputDecoder:
    """Decodes what the processor wrote: decisions, call records and checkpoints."""

    def __init__(self, lookup: SchemaLookup) -> None:
        self._decisions = ValueDecoder("decision", lookup)
        self._records = ValueDecoder("call_record", lookup)
        self._checkpoints = ValueDecoder("checkpoint", lookup)

    def decision(self, value: bytes | None) -> Decision:
        """A decision. Raises DecodeError: only the processor writes them, so that is damage."""
        return cast(Decision, self._decisions.decode(value))

    def record(self, value: bytes | None) -> CallRecord:
        """A call record. Raises DecodeError."""
        return cast(CallRecord, self._records.decode(value))

    def checkpoint(self, value: bytes | None) -> Checkpoint:
        """A checkpoint. Raises DecodeError."""
        return cast(Checkpoint, self._checkpoints.decode(value))
