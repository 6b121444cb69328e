"""The checkpoints of a partition: where each says the partition stands, and the two running hashes."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from tests.independent.log import INPUTS, Record

if TYPE_CHECKING:
    from tests.independent.checker import Decision, PartitionCheck

ZERO = bytes(32)


def hash_of_decisions(previous: bytes, bodies: list[bytes]) -> bytes:
    """ "the previous such value ... and the Avro bytes of every decision since" """
    return hashlib.sha256(previous + b"".join(bodies)).digest()


def hash_of_inputs(previous: bytes, inputs: list[tuple[str, Record]]) -> bytes:
    """ "the previous such value and each input since, as topic, offset (8 bytes), key and value" (null: nothing)"""
    running = hashlib.sha256(previous)
    for topic, record in inputs:
        running.update(topic.encode("utf-8") + record.offset.to_bytes(8, "big"))
        running.update((record.key or b"") + (record.value or b""))
    return running.digest()


class ChainCheck:
    """Each transaction is checked from the values that the one before it states, so that a break is found once."""

    def __init__(self, partition: PartitionCheck) -> None:
        self.check = partition
        self.bodies: list[bytes] = []
        self.inputs: list[tuple[str, Record]] = []
        self.next_offsets = {partition.log.prefix + name: 0 for name in INPUTS}
        self.previous: dict[str, Any] = {"chain": {"decisions": ZERO, "inputs": ZERO}}

    def run(self) -> None:
        for record, decision in self.check.decisions:
            self.take(decision)
            if decision["checkpoint"] is not None:
                self.end(record, decision["checkpoint"], decision)
        if self.bodies:
            last = self.check.decisions[-1][0].offset
            self.check.find("torn_transaction", last, f"the last {len(self.bodies)} decisions have no checkpoint")

    def take(self, decision: Decision) -> None:
        self.bodies.append(self.check.codec.body("decision", decision | {"decided_at_ms": 0, "checkpoint": None}))
        source = decision["input"]
        found = self.check.inputs.get((source["topic"], source["offset"]))
        if found is not None:  # else it has been found already, and the hash of the inputs will not hold
            self.inputs.append((source["topic"], found[1]))
        if source["topic"] in self.next_offsets:
            self.next_offsets[source["topic"]] = max(source["offset"] + 1, self.next_offsets[source["topic"]])

    def end(self, record: Record, checkpoint: dict[str, Any], decision: Decision) -> None:
        find, before, chain = self.check.find, self.previous, checkpoint["chain"]
        if chain["decisions"] != hash_of_decisions(before["chain"]["decisions"], self.bodies):
            find("chain_decisions", record.offset, f"does not hold over the {len(self.bodies)} decisions up to here")
        if chain["inputs"] != hash_of_inputs(before["chain"]["inputs"], self.inputs):
            find("chain_inputs", record.offset, f"does not hold over the {len(self.inputs)} inputs up to here")
        if checkpoint["seq"] != decision["seq"]:
            find("checkpoint", record.offset, f"seq {checkpoint['seq']} on the decision {decision['seq']}")
        if checkpoint["partition_count"] != self.check.log.partition_count:
            find("checkpoint", record.offset, f"partition count {checkpoint['partition_count']}")
        self.check_positions(record, checkpoint)
        self.check_topic_ids(record, checkpoint)
        self.previous, self.bodies, self.inputs = checkpoint, [], []

    def check_positions(self, record: Record, checkpoint: dict[str, Any]) -> None:
        """Past what is decided, and not past what is not. Between them lie aborted records and control records."""
        topics = [position["topic"] for position in checkpoint["inputs"]]
        if topics != list(self.next_offsets):
            self.check.find("checkpoint", record.offset, f"inputs {topics}, not {list(self.next_offsets)}")
            return
        for position in checkpoint["inputs"]:
            topic, stated, lowest = position["topic"], position["next_offset"], self.next_offsets[position["topic"]]
            name = topic.removeprefix(self.check.log.prefix)
            records = self.check.log.topics[name][self.check.partition]
            at = bisect_left(records, lowest, key=lambda found: found.offset)
            highest = records[at].offset if at < len(records) else None
            if stated < lowest or (highest is not None and stated > highest):
                detail = f"next offset of {topic} is {stated}, not {lowest}" + (
                    "" if highest is None else f" to {highest}"
                )
                self.check.find("checkpoint_offset", record.offset, detail)

    def check_topic_ids(self, record: Record, checkpoint: dict[str, Any]) -> None:
        stated = {position["topic"]: position["topic_id"] for position in checkpoint["inputs"]}
        stated[self.check.log.prefix + "decisions"] = checkpoint["decisions_topic_id"]
        for topic, topic_id in stated.items():
            wanted = self.check.log.topic_ids.get(topic.removeprefix(self.check.log.prefix), topic_id)
            if topic_id != wanted:
                self.check.find("topic_id", record.offset, f"{topic} is {topic_id}, on the cluster {wanted}")
