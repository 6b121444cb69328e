"""Builds the log that a right processor would leave, from the reference and the official avro package.

It is what the checker's own tests damage. The chain is computed here a second time, in the plainest way.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tests.independent.codec import Codec
from tests.independent.jsonform import TOPIC_OF_TYPE
from tests.independent.log import INPUTS, PARTITIONED, Log, Record
from tests.independent.murmur2 import partition_of
from tests.independent.reference import ReferencePartition
from tests.independent.table import CHECKPOINT_KEY, call_record

CLOCK_MS = 10**15


class LogBuilder:
    """Say what arrives, in the order in which it is to be decided; `commit` ends a transaction; `log` is the result."""

    def __init__(self, prefix: str = "t.", partition_count: int = 1, retention_ms: int = 1_000) -> None:
        self.codec = Codec()
        self.partition_count = partition_count
        self.log = Log(prefix, {name: [[] for _ in range(partition_count)] for name in PARTITIONED})
        self.log.topics["schemas"] = [[self._schema(name) for name in self.codec.schemas]]
        self.log.topic_ids = {name: f"id of {name}" for name in (*INPUTS, "decisions")}
        self.references = [ReferencePartition(retention_ms=retention_ms, prefix=prefix) for _ in range(partition_count)]
        self.open: list[list[tuple[dict[str, Any], Record]]] = [[] for _ in range(partition_count)]
        self.chains = [(bytes(32), bytes(32)) for _ in range(partition_count)]
        self.tombstoned: list[set[bytes]] = [set() for _ in range(partition_count)]

    def _schema(self, name: str) -> Record:
        schema = self.codec.schemas[name]
        key: bytes = schema.fingerprint().hex().encode("ascii")
        return Record(0, 0, key, str(schema).encode("utf-8"))

    def say(self, event: dict[str, Any], timestamp_ms: int = 0, *, key: bytes | None = None, skip: int = 0) -> int:
        """Appends an event to its topic and decides it. Fields that the schema needs and are not given are made up.

        `skip` leaves that many offsets out, as an aborted transaction does. Returns the offset.
        """
        kind = event["type"]
        filled = {"event_id": "e", "source": "test", "occurred_at_ms": timestamp_ms, **_DEFAULTS[kind], **event}
        key = filled["call_id"].encode("utf-8") if key is None else key
        reference = self.references[partition_of(key, self.partition_count)]
        if kind in ("result", "compensation") and "incarnation" not in filled:
            known = reference.calls.get(filled["call_id"])
            filled["incarnation"] = (known.incarnation if known is not None else None) or 0
        value = self.codec.encode(kind, {name: item for name, item in filled.items() if name != "type"})
        misrouted = key != filled["call_id"].encode("utf-8")
        return self.poison(kind, value, timestamp_ms, key=key, skip=skip, event=filled, misrouted=misrouted)

    def poison(
        self,
        kind: str,
        value: bytes | None,
        timestamp_ms: int = 0,
        *,
        key: bytes | None = b"7",
        skip: int = 0,
        event: dict[str, Any] | None = None,
        misrouted: bool = False,
    ) -> int:
        """Appends any bytes to the topic of a kind and decides them as the event that they are, by default none."""
        name = TOPIC_OF_TYPE[kind]
        partition = partition_of(key, self.partition_count) if key is not None else 0
        topic = self.log.topics[name][partition]
        record = Record((topic[-1].offset + 1 if topic else 0) + skip, timestamp_ms, key, value)
        topic.append(record)
        at: dict[str, Any] = {"topic": self.log.prefix + name, "partition": partition, "offset": record.offset}
        at |= {"timestamp_ms": timestamp_ms, "misrouted": misrouted or key is None}
        if event is None:
            at["call_id"] = "" if record.is_oversize else (key or b"").decode("utf-8", "ignore")
        decision = self.references[partition].decide(event, at)
        self.open[partition].append((decision | {"decided_at_ms": CLOCK_MS}, record))
        return record.offset

    def commit(self, partition: int = 0) -> None:
        """Ends the partition's transaction: its last decision carries the checkpoint."""
        if not self.open[partition]:
            return
        reference = self.references[partition]
        reference.end_transaction()
        self.open[partition][-1][0]["checkpoint"] = self._checkpoint(partition)
        for decision, _ in self.open[partition]:
            self._append("decisions", partition, decision["call_id"].encode("utf-8"), "decision", _plain(decision))
        checkpoint = self.open[partition][-1][0]["checkpoint"]
        self._append("epoch-table", partition, CHECKPOINT_KEY, "checkpoint", checkpoint)
        self._write_table(partition)
        self.open[partition] = []

    def _checkpoint(self, partition: int) -> dict[str, Any]:
        reference, chain = self.references[partition], self.chains[partition]
        bodies, inputs = chain
        for decision, record in self.open[partition]:
            bodies += self.codec.body("decision", _plain(decision) | {"decided_at_ms": 0, "checkpoint": None})
            inputs += decision["input"]["topic"].encode() + record.offset.to_bytes(8, "big")
            inputs += (record.key or b"") + (record.value or b"")
        self.chains[partition] = (hashlib.sha256(bodies).digest(), hashlib.sha256(inputs).digest())
        positions = []
        for name in INPUTS:
            records = self.log.topics[name][partition]
            position = {"topic": self.log.prefix + name, "topic_id": self.log.topic_ids[name]}
            positions.append(position | {"next_offset": records[-1].offset + 1 if records else 0})
        return {
            "seq": reference.seq,
            "inputs": positions,
            "decisions_topic_id": self.log.topic_ids["decisions"],
            "partition_count": self.partition_count,
            "stream_time_ms": reference.stream_time_ms,
            "retention_ms": reference.retention_ms,
            "max_body_bytes": reference.max_body_bytes,
            "chain": {"decisions": self.chains[partition][0], "inputs": self.chains[partition][1]},
        }

    def _write_table(self, partition: int) -> None:
        calls = {call_id.encode("utf-8"): call for call_id, call in self.references[partition].calls.items()}
        touched = {decision["call_id"].encode("utf-8") for decision, _ in self.open[partition]}
        for key, call in calls.items():
            # A transaction may also forget, or close, calls that it did not touch; those lines are rewritten too.
            if key in touched or call.closed_at_ms == self.references[partition].stream_time_ms:
                self._append("epoch-table", partition, key, "call_record", _FREE | call_record(call))
        written = {record.key or b"" for record in self.log.topics["epoch-table"][partition]} - {CHECKPOINT_KEY}
        for key in written - set(calls):
            self._append("epoch-table", partition, key, "call_record", None)

    def _append(self, topic: str, partition: int, key: bytes, name: str, datum: dict[str, Any] | None) -> None:
        records = self.log.topics[topic][partition]
        value = None if datum is None else self.codec.encode(name, datum)
        records.append(Record(len(records), 0, key, value))

    def edit_decision(self, index: int, partition: int = 0, **changes: Any) -> None:
        """Writes a committed decision anew with other values in it."""
        records = self.log.topics["decisions"][partition]
        datum = self.codec.decode("decision", records[index].value) | changes
        old = records[index]
        records[index] = Record(old.offset, old.timestamp_ms, old.key, self.codec.encode("decision", datum))


def _plain(decision: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in decision.items() if name != "type"}


_DEFAULTS: dict[str, dict[str, Any]] = {
    "tool_call": {
        "tool": "reserve",
        "arguments": b"seat 12",
        "idempotency_key": "",
        "timeout_ms": 1_000,
        "policy": "COMPENSATE",
        "orphans": "REPORT",
        "max_epochs": 8,
        "runner": "gateway",
    },
    "timeout": {"epoch": None, "incarnation": None, "cause": "DEADLINE"},
    "result": {"epoch": None, "execution_id": "x", "payload": None},
    "compensation": {"epoch": None, "execution_id": "x", "payload": None},
}
_FREE: dict[str, Any] = {  # what the text leaves open, see table.call_record
    "suspected": False,
    "orphan_epoch": None,
    "evidence": None,
    "policy": "COMPENSATE",
    "orphans": "REPORT",
    "call_digest": bytes(32),
}
