"""The Java client's partitioner, written from its published algorithm (Kafka's Utils.murmur2)."""

from __future__ import annotations

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of a key, unsigned."""
    h = (0x9747B28C ^ len(data)) & _MASK
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < len(data):
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition that the key belongs to."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
