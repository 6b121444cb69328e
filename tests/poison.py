"""Records that no honest client sends, made from one that is right."""

import random
from collections.abc import Callable
from typing import NamedTuple


class Record(NamedTuple):
    """What is sent, and how: to the partition that murmur2 gives the key unless it says otherwise."""

    key: bytes | None
    value: bytes | None
    partitions_off: int = 0
    """So many partitions beside the right one."""
    by_crc32: bool = False
    """Sent to the partition that librdkafka's own default partitioner gives."""


Poison = Callable[[random.Random, bytes, bytes], Record]
"""From the key and the value of a right record."""


def _mutated(chance: random.Random, key: bytes, value: bytes) -> Record:
    at = chance.randrange(len(value))
    return Record(key, value[:at] + chance.randbytes(1) + value[at + 1 :])


POISON: dict[str, Poison] = {
    "random bytes": lambda chance, key, value: Record(key, chance.randbytes(chance.randrange(1, 80))),
    "mutated bytes": _mutated,
    "empty value": lambda chance, key, value: Record(key, b""),
    "null value": lambda chance, key, value: Record(key, None),
    "null key": lambda chance, key, value: Record(None, value),
    "null key and value": lambda chance, key, value: Record(None, None),
    "a key that is not the call_id": lambda chance, key, value: Record(key + b"!", value),
    "a key that is no UTF-8": lambda chance, key, value: Record(b"\xff\xfe" + key, chance.choice((value, b"?"))),
    "the wrong partition": lambda chance, key, value: Record(key, value, partitions_off=1),
    "the partition of CRC32": lambda chance, key, value: Record(key, value, by_crc32=True),
    "an unknown fingerprint": lambda chance, key, value: Record(key, value[:2] + chance.randbytes(8) + value[10:]),
    "trailing bytes": lambda chance, key, value: Record(key, value + b"\0"),
    "truncated": lambda chance, key, value: Record(key, value[: chance.randrange(2, len(value))]),
    "Confluent framing": lambda chance, key, value: Record(key, b"\0\0\0\0\1" + value[10:]),
}
