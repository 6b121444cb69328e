"""A sound log, damaged at a place and in a way that chance picks: the audit finds it, and never breaks itself."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from epochfence.audit.proof import prove
from epochfence.engine.history import LogRecord
from epochfence.errors import UsageError
from epochfence.protocol.admission import Parameters
from epochfence.protocol.vocabulary import Orphans
from epochfence.wire.codec import OutputDecoder
from epochfence.wire.errors import DecodeError
from tests.builders import call, compensation, result, timeout
from tests.memory_archive import DECISIONS, NAMES, TABLE, MemoryArchive

Damage = Callable[[list[LogRecord], int, random.Random], None]


def _sound() -> MemoryArchive:
    """Five call_ids, each used again after it was forgotten, fenced, compensated and late; and poison."""
    archive = MemoryArchive(Parameters(retention_ms=400))
    for number in range(12):
        name = str(number % 5)
        archive.say(
            call(call_id=name, occurred_at_ms=archive.now_ms, orphans=Orphans.COMPENSATE), timeout(1, call_id=name)
        )
        archive.say(result(1, call_id=name, incarnation=number), compensation(2, call_id=name, incarnation=number))
        archive.say(compensation(3, call_id=name, incarnation=number, execution_id="y"))
    archive.say(b"poison")
    return archive


SOUND = _sound()


def _flip(records: list[LogRecord], index: int, chance: random.Random) -> None:
    value = bytearray(records[index].value or b"\0")
    value[chance.randrange(len(value))] ^= 1 << chance.randrange(8)
    records[index] = records[index]._replace(value=bytes(value))


def _drop(records: list[LogRecord], index: int, _chance: random.Random) -> None:
    del records[index]


def _double(records: list[LogRecord], index: int, _chance: random.Random) -> None:
    records.insert(index, records[index])


def _swap(records: list[LogRecord], index: int, _chance: random.Random) -> None:
    one, other = records[index - 1], records[index]
    records[index - 1], records[index] = other._replace(offset=one.offset), one._replace(offset=other.offset)


def _shorten(records: list[LogRecord], index: int, _chance: random.Random) -> None:
    records[index] = records[index]._replace(value=(records[index].value or b"")[:-1])


def _rekey(records: list[LogRecord], index: int, _chance: random.Random) -> None:
    records[index] = records[index]._replace(key=b"zz")


def _cut(records: list[LogRecord], index: int, _chance: random.Random) -> None:
    del records[index:]


def _damaged(topic: str, damage: Damage, seed: int) -> MemoryArchive | None:
    """A copy of the sound log, damaged; None where the damage is of what nothing is said about."""
    chance = random.Random(f"{topic} {damage.__name__} {seed}")
    archive = MemoryArchive()
    archive.topics = {name: list(records) for name, records in SOUND.topics.items()}
    records = archive.topics[topic]
    index = chance.randrange(len(records))
    before = records[index]
    damage(records, index, chance)
    if topic == DECISIONS and damage is _flip and _when(before) != _when(records[index]) is not None:
        return None  # decided_at_ms is advisory, and in no chain
    return archive


def _when(record: LogRecord) -> int | None:
    try:
        return OutputDecoder(SOUND.lookup).decision(record.value).decided_at_ms
    except DecodeError:
        return None


@pytest.mark.parametrize("damage", [_flip, _drop, _double, _swap, _shorten, _rekey, _cut], ids=lambda d: d.__name__[1:])
@pytest.mark.parametrize("topic", [DECISIONS, *NAMES])
def test_no_damage_to_decisions_or_inputs_is_called_verified(topic: str, damage: Damage) -> None:
    tried = 0
    for seed in range(40 if damage is _flip else 6):
        archive = _damaged(topic, damage, seed)
        if archive is None:
            continue
        tried += 1
        try:
            proof = prove(archive, at_rest=False)
        except UsageError:  # a flipped bit made its rules newer than ours
            assert damage is _flip
            continue
        assert not (proof.holds and proof.complete), seed
    assert tried


@pytest.mark.parametrize("damage", [_flip, _drop, _double, _swap, _shorten, _rekey, _cut], ids=lambda d: d.__name__[1:])
def test_no_damage_to_the_table_breaks_the_audit(damage: Damage) -> None:
    """Most of its values were written over: what is found is for the unit tests to say."""
    for seed in range(6):
        archive = _damaged(TABLE, damage, seed)
        assert archive is not None
        prove(archive, at_rest=False)


def test_the_log_is_sound_before_it_is_damaged() -> None:
    proof = prove(SOUND)
    assert proof.findings == []
    assert proof.complete
    assert proof.counts["decisions"] == 61
