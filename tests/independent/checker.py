"""Checks a processor's work from its topics alone, with the official avro package and none of the product's code.

`check_log` is pure: lists of records in, findings out. `check` reads a cluster. The log must be at rest.

    python -m tests.independent.checker --bootstrap 127.0.0.1:9092 --prefix epochfence.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.independent.chain import ChainCheck
from tests.independent.codec import Codec
from tests.independent.jsonform import UndecodableError
from tests.independent.log import INPUTS, PARTITIONED, Log, LogError, Record, read_log
from tests.independent.murmur2 import partition_of
from tests.independent.reference import ReferencePartition
from tests.independent.table import check_table

Decision = dict[str, Any]
OUTSIDE = ("decided_at_ms", "checkpoint")  # advisory, and checked on its own


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where."""

    kind: str
    topic: str
    partition: int
    offset: int | None
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.topic}[{self.partition}]@{self.offset}: {self.detail}"


@dataclass
class Report:
    """What was counted and what was found."""

    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        return not self.findings

    def kinds(self) -> Counter[str]:
        return Counter(finding.kind for finding in self.findings)

    def __str__(self) -> str:
        lines = [f"{name:<28}{count:>10}" for name, count in sorted(self.counts.items())]
        lines += [f"FAILED {kind:<21}{count:>10}" for kind, count in sorted(self.kinds().items())]
        return "\n".join([*lines, *map(str, self.findings[:50])])


def check(bootstrap_servers: str, prefix: str, *, merge_order: bool = False) -> Report:
    """Reads the topics of a cluster and checks them. Raises LogError where they cannot be read whole."""
    return check_log(read_log(bootstrap_servers, prefix), merge_order=merge_order)


def check_log(log: Log, *, merge_order: bool = False) -> Report:
    """Every check on every partition. With merge_order the decisions must be in the order that a backlog has."""
    report = Report()
    codec = Codec()
    schemas = [(record.key, record.value) for partition in log.topics["schemas"] for record in partition]
    for wrong in codec.learn(schemas):
        report.findings.append(Finding("schema", log.prefix + "schemas", 0, None, wrong))
    counts = {name: len(log.topics[name]) for name in PARTITIONED}
    if len(set(counts.values())) != 1:
        report.findings.append(Finding("partition_count", log.prefix + "*", 0, None, f"they differ: {counts}"))
        return report
    for partition in range(log.partition_count):
        PartitionCheck(log, partition, codec, report).run(merge_order)
    return report


class PartitionCheck:
    """The checks of one partition. The decisions are walked once for each question, for the sake of plainness."""

    def __init__(self, log: Log, partition: int, codec: Codec, report: Report) -> None:
        self.log, self.partition, self.codec, self.report = log, partition, codec, report
        self.inputs = {
            (log.prefix + name, record.offset): (kind, record)
            for name, kind in INPUTS.items()
            for record in log.topics[name][partition]
        }
        self.decisions: list[tuple[Record, Decision]] = []
        self.reference = ReferencePartition(prefix=log.prefix)

    def find(self, kind: str, offset: int | None, detail: str, topic: str = "decisions") -> None:
        name = topic if topic.startswith(self.log.prefix) else self.log.prefix + topic
        self.report.findings.append(Finding(kind, name, self.partition, offset, detail))

    def run(self, merge_order: bool) -> None:
        self.decode_decisions()
        self.check_seq()
        self.check_one_decision_an_input()
        self.check_call_seq()
        self.check_one_commit_a_call()
        self.check_sends()
        if merge_order:
            self.check_merge_order()
        self.refold()
        ChainCheck(self).run()
        check_table(self)
        self.report.counts["inputs"] += len(self.inputs)
        self.report.counts["decisions"] += len(self.decisions)
        for _, decision in self.decisions:
            self.report.counts[f"verdict {decision['verdict']}"] += 1
            if decision["reason"] != "NONE":
                self.report.counts[f"reason {decision['reason']}"] += 1
            self.report.counts["transactions"] += decision["checkpoint"] is not None

    def decode_decisions(self) -> None:
        for record in self.log.topics["decisions"][self.partition]:
            try:
                decision = self.codec.decode("decision", record.value)
            except UndecodableError as error:
                self.find("decision_undecodable", record.offset, str(error))
                continue
            self.decisions.append((record, decision))
            if decision["call_seq"] > 0 and record.key != decision["call_id"].encode("utf-8"):
                self.find("decision_key", record.offset, f"key {record.key!r}, call_id {decision['call_id']!r}")

    def check_seq(self) -> None:
        expected = 1
        for record, decision in self.decisions:
            if decision["seq"] != expected:
                self.find("seq", record.offset, f"seq {decision['seq']}, not {expected}")
            expected = decision["seq"] + 1

    def check_one_decision_an_input(self) -> None:
        decided: Counter[tuple[str, int]] = Counter()
        newest: dict[str, int] = {}
        for record, decision in self.decisions:
            source = decision["input"]
            place = (source["topic"], source["offset"])
            decided[place] += 1
            if place not in self.inputs or source["partition"] != self.partition:
                self.find("decision_without_input", record.offset, f"{place} in partition {source['partition']}")
            if decided[place] > 1:
                self.find("decided_twice", record.offset, f"{place} has been decided before")
            elif source["offset"] <= newest.get(source["topic"], -1):
                self.find("topic_order", record.offset, f"{place} comes after {newest[source['topic']]}")
            newest[source["topic"]] = max(source["offset"], newest.get(source["topic"], -1))
        for topic, offset in self.inputs:
            if (topic, offset) not in decided:
                self.find("undecided", offset, "no decision names it", topic)

    def check_call_seq(self) -> None:
        """Gapless per incarnation, from 1. Two lives that were CANCELLED have no offset to tell them apart."""
        last: dict[tuple[str, int | None], int] = {}
        for record, decision in self.decisions:
            if decision["call_seq"] == 0:
                continue
            call = (decision["call_id"], decision["incarnation"])
            opens = decision["verdict"] == "OPEN" or (decision["verdict"], decision["event"], decision["status"]) == (
                "FENCE",
                "TIMEOUT",
                "CANCELLED",
            )
            expected = 1 if opens else last.get(call, 0) + 1
            if decision["call_seq"] != expected:
                self.find("call_seq", record.offset, f"{call} has call_seq {decision['call_seq']}, not {expected}")
            last[call] = decision["call_seq"]

    def check_one_commit_a_call(self) -> None:
        commits: dict[tuple[str, int | None], int] = {}
        for record, decision in self.decisions:
            call = (decision["call_id"], decision["incarnation"])
            if decision["verdict"] == "COMMIT":
                if call in commits:
                    self.find("two_commits", record.offset, f"{call} was committed at offset {commits[call]}")
                commits.setdefault(call, record.offset)

    def check_sends(self) -> None:
        """What is sent was released by a decision that raised the epoch, and carries that epoch's fence token."""
        live: dict[tuple[str, int | None], int] = {}
        for record, decision in self.decisions:
            call = (decision["call_id"], decision["incarnation"])
            before, dispatch = live.get(call, 0), decision["dispatch"]
            if decision["call_seq"] > 0:
                live[call] = decision["live_epoch"]
                if decision["live_epoch"] < before and decision["call_seq"] > 1:
                    self.find("epoch_lowered", record.offset, f"{call}: {before} to {decision['live_epoch']}")
            if dispatch is None:
                continue
            token = (dispatch["incarnation"], dispatch["epoch"])
            if token != (decision["incarnation"], decision["live_epoch"]):
                self.find("fence_token", record.offset, f"{call}: {token}, live epoch {decision['live_epoch']}")
            if decision["live_epoch"] <= before:
                self.find("send_without_fence", record.offset, f"{call}: the epoch was {before} before")
            fenced = decision["verdict"] == "FENCE"
            if dispatch["action"] == "COMPENSATE":
                released = fenced or (decision["verdict"] == "REJECT" and decision["orphaned_effect"])
            else:
                released = fenced or decision["verdict"] == "OPEN"
            if not released:
                self.find(
                    "send_without_fence", record.offset, f"{call}: a {decision['verdict']} sends {dispatch['action']}"
                )

    def check_merge_order(self) -> None:
        """Of the four heads the lowest broker timestamp, and at the same millisecond the order of protocol.md."""
        rank = {
            self.log.prefix + name: n for n, name in enumerate(("tool-calls", "results", "compensations", "timeouts"))
        }
        heads: dict[str, list[Record]] = {
            topic: list(reversed(self.log.topics[topic.removeprefix(self.log.prefix)][self.partition]))
            for topic in rank
        }
        for record, decision in self.decisions:
            waiting = [topic for topic in rank if heads[topic]]
            if not waiting:
                return
            topic = min(waiting, key=lambda name: (heads[name][-1].timestamp_ms, rank[name]))
            wanted = (topic, heads[topic].pop().offset)
            got = (decision["input"]["topic"], decision["input"]["offset"])
            if got != wanted:
                self.find(
                    "merge_order", record.offset, f"decides {got} where {wanted} is next; the rest is not looked at"
                )
                return

    def is_misrouted(self, event: dict[str, Any], key: bytes | None) -> bool:
        if key is None or key != event["call_id"].encode("utf-8"):
            return True
        return partition_of(key, self.log.partition_count) != self.partition

    def refold(self) -> None:
        """Decides every input again, with the parameters that the log states, and compares all fields."""
        checkpoints = [decision["checkpoint"] for _, decision in self.decisions if decision["checkpoint"] is not None]
        if checkpoints:
            self.set_parameters(checkpoints[0])
        for record, decision in self.decisions:
            source = decision["input"]
            found = self.inputs.get((source["topic"], source["offset"]))
            if found is not None:
                self.refold_one(record, decision, *found)
            if decision["checkpoint"] is not None:
                self.end_transaction(record, decision)

    def refold_one(self, record: Record, decision: Decision, kind: str, source: Record) -> None:
        at: dict[str, Any] = {"topic": decision["input"]["topic"], "partition": self.partition}
        at |= {"offset": source.offset, "timestamp_ms": source.timestamp_ms}
        event: dict[str, Any] | None
        try:
            if source.is_oversize:
                raise UndecodableError("too large to be read")
            event = self.codec.decode_event(kind, source.value)
            at["misrouted"] = self.is_misrouted(event, source.key)
        except UndecodableError:
            event = None
            at["call_id"] = "" if source.is_oversize else _utf8_or_empty(source.key)
        self.reference.seq = decision["seq"] - 1  # a gap is found elsewhere and must not spoil what follows
        wanted = self.reference.decide(event, at)
        for name, value in wanted.items():
            if name not in OUTSIDE and name != "type" and decision[name] != value:
                detail = f"{name} is {decision[name]!r:.200}, refolded {value!r:.200}; row {self.reference.last_row}"
                self.find("refold", record.offset, detail)

    def set_parameters(self, checkpoint: dict[str, Any]) -> None:
        self.reference.retention_ms = checkpoint["retention_ms"]
        self.reference.max_body_bytes = checkpoint["max_body_bytes"]

    def end_transaction(self, record: Record, decision: Decision) -> None:
        """Stream time: the newest input's, bounded by the processor's clock, which decided_at_ms tells in part."""
        before_ms, stated_ms = self.reference.stream_time_ms, decision["checkpoint"]["stream_time_ms"]
        highest_ms = max([before_ms, *self.reference.timestamps_ms])
        lowest_ms = max(before_ms, min(highest_ms, decision["decided_at_ms"]))
        if not lowest_ms <= stated_ms <= highest_ms:
            wanted = f"{lowest_ms} to {highest_ms}" if lowest_ms != highest_ms else str(highest_ms)
            self.find("stream_time", record.offset, f"{stated_ms}, not {wanted}")
        self.reference.end_transaction(now_ms=stated_ms)
        self.set_parameters(decision["checkpoint"])


def _utf8_or_empty(key: bytes | None) -> str:
    try:
        return (key or b"").decode("utf-8")
    except UnicodeDecodeError:
        return ""


def main() -> int:
    """0: all checks hold. 1: something was found, or the topics could not be read whole."""
    parser = argparse.ArgumentParser(description="Checks a processor's work from its topics alone.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", default="epochfence.")
    parser.add_argument("--merge-order", action="store_true", help="the decisions must be in merge order (a backlog)")
    options = parser.parse_args()
    try:
        report = check(options.bootstrap, options.prefix, merge_order=options.merge_order)
    except LogError as error:
        print(f"FAILED: {error}")
        return 1
    print(report)
    print("OK" if report.ok else f"FAILED: {len(report.findings)} findings")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
