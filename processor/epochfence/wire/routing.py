"""Which partition a call lies in: murmur2 over its key, the Java client's default partitioner.

librdkafka's own default is CRC32, which is another partition: a record sent with it is MISROUTED.
"""

from confluent_kafka import murmur2


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a key, 0 to partition_count - 1."""
    return int(murmur2(key, partition_count))


def lies_in(partition: int, key: bytes | None, partition_count: int) -> bool:
    """Whether a record with that key belongs into the partition. One without a key belongs into none."""
    return key is not None and murmur2(key, partition_count) == partition
