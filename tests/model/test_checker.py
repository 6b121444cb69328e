"""The independent checker passes a right log and finds each kind of damage. Without this it might check nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.independent.build import LogBuilder
from tests.independent.checker import Report, check_log
from tests.independent.codec import Codec
from tests.independent.generate import Generator
from tests.independent.jsonform import UndecodableError, parse_line
from tests.independent.log import Record
from tests.independent.murmur2 import murmur2, partition_of

CALL = {"type": "tool_call", "call_id": "7"}
TIMEOUT = {"type": "timeout", "call_id": "7", "epoch": 1}
SUCCESS = {"type": "result", "call_id": "7", "epoch": 1, "outcome": "SUCCESS", "payload": b"held"}
OK = {"type": "compensation", "call_id": "7", "epoch": 2, "outcome": "OK", "execution_id": "c"}


def ghost_write() -> LogBuilder:
    """The ghost write, fenced, in two transactions, with a second call beside it that is still in flight."""
    builder = LogBuilder()
    builder.say(CALL, 10)
    builder.say({**CALL, "call_id": "8"}, 11)
    builder.say(TIMEOUT, 20)
    builder.commit()
    builder.say(SUCCESS, 30)
    builder.poison("result", b"not avro", 31)
    builder.say(OK, 40)
    builder.commit()
    return builder


def decisions(builder: LogBuilder) -> list[Record]:
    return builder.log.topics["decisions"][0]


def found(builder: LogBuilder, *, merge_order: bool = False) -> set[str]:
    return set(check_log(builder.log, merge_order=merge_order).kinds())


def test_a_right_log_passes() -> None:
    report = check_log(ghost_write().log, merge_order=True)
    assert report.ok, str(report)
    counts = {name: report.counts[name] for name in ("inputs", "decisions", "transactions", "verdict COMMIT")}
    assert counts == {"inputs": 6, "decisions": 6, "transactions": 2, "verdict COMMIT": 1}
    assert report.counts["calls in the table"] == 2


@pytest.mark.parametrize(("size_bytes", "decided_as"), [((1 << 20) - 1, "7"), (1 << 20, "")])
def test_what_is_too_large_to_be_read_is_undecodable_and_of_no_call(size_bytes: int, decided_as: str) -> None:
    """The key, of one byte, counts too."""
    builder = LogBuilder()
    builder.poison("result", bytes(size_bytes))
    builder.commit()
    assert check_log(builder.log).ok
    assert Codec().decode("decision", decisions(builder)[0].value)["call_id"] == decided_as
    builder.edit_decision(0, call_id="7" if decided_as == "" else "")
    assert "refold" in found(builder)


def test_an_event_in_a_record_that_is_too_large_is_not_decided() -> None:
    builder = LogBuilder()
    builder.say({**CALL, "tool": "x" * (1 << 20)}, 10)
    builder.commit()
    assert "refold" in found(builder)


def random_log(seed: int, lines: int) -> LogBuilder:
    """Two partitions of adversarial events, poison and misrouted keys, in transactions of changing length."""
    generator = Generator(seed, retention_ms=300)
    builder = LogBuilder(partition_count=2, retention_ms=300)
    for line in generator.lines(lines):
        try:
            event, timestamp_ms = parse_line(line, 0)
        except UndecodableError:
            builder.poison("timeout", line or None, generator.rng.randrange(1_000))
            continue
        key = b"elsewhere" if generator.rng.random() < 0.02 else None
        if generator.rng.random() < 0.8:
            event.pop("incarnation", None)  # a line's number is no offset here: let it be the record's own
        builder.say(event, timestamp_ms, key=key, skip=generator.rng.choice([0, 0, 0, 1]))
        for partition in (0, 1):
            if generator.rng.random() < 0.2:
                builder.commit(partition)
    builder.commit(0)
    builder.commit(1)
    return builder


@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_right_log_passes(seed: int) -> None:
    report = check_log(random_log(seed, 600).log)
    assert report.ok, str(report)
    reasons = {name.removeprefix("reason ") for name in report.counts if name.startswith("reason ")}
    assert {"UNDECODABLE", "MISROUTED", "STALE_EPOCH", "WRONG_INCARNATION", "UNKNOWN_CALL"} <= reasons
    assert report.counts["verdict COMMIT"] > 5
    assert report.counts["calls in the table"] > 0


def drop_decision(builder: LogBuilder) -> None:
    del decisions(builder)[1]


def double_decision(builder: LogBuilder) -> None:
    records = decisions(builder)
    records.insert(2, replace(records[1], offset=100))


def swap_decisions(builder: LogBuilder) -> None:
    records = decisions(builder)
    records[0], records[1] = records[1], records[0]


def edit_decision(builder: LogBuilder) -> None:
    builder.edit_decision(3, orphaned_effect=False)


def second_commit(builder: LogBuilder) -> None:
    builder.edit_decision(3, verdict="COMMIT", reason="NONE")


def garble_decision(builder: LogBuilder) -> None:
    records = decisions(builder)
    records[3] = replace(records[3], value=b"\xc3\x01 no")


def rekey_decision(builder: LogBuilder) -> None:
    records = decisions(builder)
    records[3] = replace(records[3], key=b"8")


def tear_the_end(builder: LogBuilder) -> None:
    del decisions(builder)[-1]


def tear_the_middle(builder: LogBuilder) -> None:
    del decisions(builder)[2]


def lose_an_input(builder: LogBuilder) -> None:
    del builder.log.topics["timeouts"][0][0]


def add_an_input(builder: LogBuilder) -> None:
    record = builder.log.topics["timeouts"][0][0]
    builder.log.topics["timeouts"][0].append(replace(record, offset=1))


def rewrite_an_input(builder: LogBuilder) -> None:
    records = builder.log.topics["results"][0]
    records[1] = replace(records[1], value=b"still not avro")


def rewrite_a_decided_result(builder: LogBuilder) -> None:
    records = builder.log.topics["results"][0]
    result = builder.codec.decode("result", records[0].value) | {"outcome": "FAILURE"}
    records[0] = replace(records[0], value=builder.codec.encode("result", result))


def change_a_time(builder: LogBuilder) -> None:
    records = builder.log.topics["results"][0]
    records[0] = replace(records[0], timestamp_ms=29)


def send_without_a_fence(builder: LogBuilder) -> None:
    fence = builder.codec.decode("decision", decisions(builder)[2].value)
    builder.edit_decision(5, dispatch=fence["dispatch"])


def lower_the_epoch(builder: LogBuilder) -> None:
    builder.edit_decision(3, live_epoch=1)


def skip_a_call_seq(builder: LogBuilder) -> None:
    builder.edit_decision(3, call_seq=4)


def wrong_token(builder: LogBuilder) -> None:
    fence = builder.codec.decode("decision", decisions(builder)[2].value)
    builder.edit_decision(2, dispatch=fence["dispatch"] | {"epoch": 3})


def edit_checkpoint(name: str, value: object) -> Callable[[LogBuilder], None]:
    def damage(builder: LogBuilder) -> None:
        checkpoint = builder.codec.decode("decision", decisions(builder)[2].value)["checkpoint"]
        builder.edit_decision(2, checkpoint=checkpoint | {name: value})

    return damage


def edit_position(name: str, value: object) -> Callable[[LogBuilder], None]:
    def damage(builder: LogBuilder) -> None:
        checkpoint = builder.codec.decode("decision", decisions(builder)[2].value)["checkpoint"]
        checkpoint["inputs"][2][name] = value
        builder.edit_decision(2, checkpoint=checkpoint)

    return damage


def table_loses_a_call(builder: LogBuilder) -> None:
    table = builder.log.topics["epoch-table"][0]
    table.append(Record(100, 0, b"8", None))


def table_has_an_older_record(builder: LogBuilder) -> None:
    table = builder.log.topics["epoch-table"][0]
    table.append(next(record for record in table if record.key == b"7"))


def table_has_a_stranger(builder: LogBuilder) -> None:
    table = builder.log.topics["epoch-table"][0]
    table.append(replace(table[-1], key=b"9"))


def table_has_an_older_checkpoint(builder: LogBuilder) -> None:
    table = builder.log.topics["epoch-table"][0]
    table.append(table[0])


def table_is_garbled(builder: LogBuilder) -> None:
    builder.log.topics["epoch-table"][0].append(Record(100, 0, b"8", b"?"))


def schema_under_a_wrong_key(builder: LogBuilder) -> None:
    records = builder.log.topics["schemas"][0]
    records[0] = replace(records[0], key=b"0" * 16)


def lose_a_partition(builder: LogBuilder) -> None:
    builder.log.topics["results"].append([])


DAMAGE: list[tuple[Callable[[LogBuilder], None], set[str]]] = [
    (drop_decision, {"seq", "undecided", "chain_decisions", "chain_inputs"}),
    (double_decision, {"seq", "decided_twice", "chain_decisions"}),
    (swap_decisions, {"seq", "topic_order", "chain_decisions", "chain_inputs"}),
    (edit_decision, {"refold", "chain_decisions"}),
    (second_commit, {"refold", "chain_decisions", "two_commits"}),
    (garble_decision, {"decision_undecodable", "undecided", "seq"}),
    (rekey_decision, {"decision_key"}),
    (tear_the_end, {"torn_transaction", "undecided", "table"}),
    (tear_the_middle, {"undecided", "seq", "chain_decisions"}),
    (lose_an_input, {"decision_without_input", "chain_inputs"}),
    (add_an_input, {"undecided"}),
    (rewrite_an_input, {"chain_inputs"}),
    (rewrite_a_decided_result, {"refold", "chain_inputs"}),
    (change_a_time, {"refold"}),
    (send_without_a_fence, {"send_without_fence", "refold", "chain_decisions"}),
    (lower_the_epoch, {"epoch_lowered", "refold", "chain_decisions"}),
    (skip_a_call_seq, {"call_seq", "refold", "chain_decisions"}),
    (wrong_token, {"fence_token", "refold", "chain_decisions"}),
    (edit_checkpoint("seq", 2), {"checkpoint"}),
    (edit_checkpoint("partition_count", 2), {"checkpoint"}),
    (edit_checkpoint("stream_time_ms", 21), {"stream_time"}),
    (edit_checkpoint("stream_time_ms", 19), {"stream_time"}),
    (edit_checkpoint("decisions_topic_id", "another"), {"topic_id"}),
    (edit_checkpoint("chain", {"decisions": bytes(32), "inputs": bytes(32)}), {"chain_decisions", "chain_inputs"}),
    (edit_checkpoint("max_body_bytes", 3), {"refold"}),
    (edit_position("next_offset", 1), {"checkpoint_offset"}),
    (edit_position("topic", "t.result"), {"checkpoint"}),
    (edit_position("topic_id", "another"), {"topic_id"}),
    (table_loses_a_call, {"table_missing"}),
    (table_has_an_older_record, {"table"}),
    (table_has_a_stranger, {"table_extra"}),
    (table_has_an_older_checkpoint, {"table_checkpoint"}),
    (table_is_garbled, {"table_undecodable"}),
    (schema_under_a_wrong_key, {"schema"}),
    (lose_a_partition, {"partition_count"}),
]


@pytest.mark.parametrize(("damage", "kinds"), DAMAGE, ids=[f"{n}-{d.__name__}" for n, (d, _) in enumerate(DAMAGE)])
def test_damage_is_found(damage: Callable[[LogBuilder], None], kinds: set[str]) -> None:
    builder = ghost_write()
    damage(builder)
    assert kinds <= found(builder)


def test_a_finding_says_where() -> None:
    builder = ghost_write()
    edit_decision(builder)
    (finding,) = [f for f in check_log(builder.log).findings if f.kind == "refold"]
    assert (finding.topic, finding.partition, finding.offset) == ("t.decisions", 0, 3)
    assert "orphaned_effect" in finding.detail


def test_a_backlog_read_topic_by_topic_is_not_in_merge_order() -> None:
    builder = LogBuilder()
    builder.say(CALL, 10)
    builder.say(TIMEOUT, 30)
    builder.say(SUCCESS, 20)
    builder.commit()
    assert found(builder) == set()
    assert found(builder, merge_order=True) == {"merge_order"}


def test_at_one_millisecond_a_result_comes_before_a_timeout() -> None:
    builder = LogBuilder()
    builder.say(CALL, 10)
    builder.say(SUCCESS, 10)
    builder.say(TIMEOUT, 10)
    builder.commit()
    assert found(builder, merge_order=True) == set()


def test_forgetting_reaches_the_table() -> None:
    builder = LogBuilder(retention_ms=100)
    builder.say(CALL, 10)
    builder.say(SUCCESS, 20)
    builder.commit()
    builder.say({**CALL, "call_id": "8"}, 121)
    builder.commit()
    assert found(builder) == set()
    table = builder.log.topics["epoch-table"][0]
    table.append(next(record for record in reversed(table) if record.key == b"7" and record.value is not None))
    assert found(builder) == {"table_extra"}


def test_the_chain_is_the_one_in_the_text() -> None:
    """By hand: one timeout for an unknown call, one decision, one transaction."""
    from hashlib import sha256

    builder = LogBuilder()
    builder.say({**TIMEOUT, "epoch": 2}, 5)
    builder.commit()
    (record,) = decisions(builder)
    assert record.value is not None
    tail = builder.codec.decode("decision", record.value)["checkpoint"]
    body = builder.codec.body("checkpoint", tail)
    # The framed value is header, body up to rules_version, decided_at_ms, a 1 for the union, the checkpoint.
    start = record.value[10 : -len(body) - 1]
    clock = _long(10**15)
    assert start.endswith(clock)
    outside_taken_as_zero_and_null = start[: -len(clock)] + b"\0" + b"\0"
    assert tail["chain"]["decisions"] == sha256(bytes(32) + outside_taken_as_zero_and_null).digest()
    (source,) = builder.log.topics["timeouts"][0]
    assert source.value is not None
    assert tail["chain"]["inputs"] == sha256(bytes(32) + b"t.timeouts" + bytes(8) + b"7" + source.value).digest()


def _long(value: int) -> bytes:
    out, rest = b"", value << 1
    while rest > 0x7F:
        out, rest = out + bytes([rest & 0x7F | 0x80]), rest >> 7
    return out + bytes([rest])


def test_what_is_no_event_on_the_wire() -> None:
    codec = Codec()
    event = {"event_id": "e", "call_id": "7", "epoch": 1, "incarnation": None, "cause": "DEADLINE", "source": ""}
    good = codec.encode("timeout", event | {"occurred_at_ms": 0})
    assert codec.decode_event("timeout", good)["call_id"] == "7"
    unrecognized = codec.encode("timeout", event | {"occurred_at_ms": 0, "cause": "UNRECOGNIZED"})
    result = {name: value for name, value in event.items() if name != "cause"}
    wrong_type = codec.encode("result", {**result, "execution_id": "x", "outcome": "UNKNOWN", "payload": None,
                                         "incarnation": 0, "occurred_at_ms": 0})  # fmt: skip
    wrong = [None, b"", b"\xc3\x01", good[:-1], good + b"\0", b"\0" + good[1:], good[:2] + bytes(8) + good[10:]]
    for value in [*wrong, unrecognized, wrong_type, good[10:]]:
        with pytest.raises(UndecodableError):
            codec.decode_event("timeout", value)


def test_an_older_reader_decodes_by_the_writers_schema() -> None:
    codec = Codec()
    newer = json.loads(str(codec.schemas["timeout"]))
    newer["fields"].append({"name": "more", "type": "string", "default": ""})
    text = json.dumps(newer).encode("utf-8")
    import avro.schema

    fingerprint: bytes = avro.schema.parse(text.decode()).fingerprint()
    event = {"event_id": "e", "call_id": "7", "epoch": 1, "incarnation": None, "cause": "DEADLINE", "source": ""}
    value = b"\xc3\x01" + fingerprint + codec.body("timeout", event | {"occurred_at_ms": 0}) + b"\x02x"
    with pytest.raises(UndecodableError):
        codec.decode_event("timeout", value)
    assert codec.learn([(fingerprint.hex().encode(), text)]) == []
    assert codec.decode_event("timeout", value) == {"type": "timeout", **event, "occurred_at_ms": 0}


def test_murmur2_is_the_java_clients() -> None:
    """Hashes from Apache Kafka's own UtilsTest.testMurmur2, as unsigned."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
             b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
             b"abc": 479470107}  # fmt: skip
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}
    assert partition_of(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_the_report_prints_its_findings() -> None:
    builder = ghost_write()
    drop_decision(builder)
    report: Report = check_log(builder.log)
    assert "FAILED seq" in str(report)
    assert "t.decisions[0]@" in str(report)
