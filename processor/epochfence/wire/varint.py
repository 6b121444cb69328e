"""Avro's numbers: zigzag, then seven bits a byte, the lowest first, the high bit set on all but the last.

The readers raise IndexError at the end of the buffer; the compiled decoders turn it into DecodeError in one place. A
number in more bytes than it needs is read, as every Avro library does; one beyond 64 bits is refused.

Two bytes at a time go through a table: a time in milliseconds is six bytes, and a loop over them takes twice as long.
The tables hold about 4 MB.
"""

import struct

from epochfence.wire.errors import DecodeError, EncodeError

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_PAIR_BITS = 14  # what two bytes of a varint hold
_PAIR = 1 << _PAIR_BITS
_PAIR_MASK = _PAIR - 1

ONE_BYTE: tuple[int | None, ...] = tuple((n >> 1) ^ -(n & 1) if n < 128 else None for n in range(256))
"""The number that a first byte alone is; None when more bytes follow."""

# Writing: 14 bits as two bytes that are followed by more, and as the last one or two bytes.
_MORE: tuple[bytes, ...] = tuple(bytes((n & 127 | 128, n >> 7 | 128)) for n in range(_PAIR))
_LAST: tuple[bytes, ...] = tuple(bytes((n,) if n < 128 else (n & 127 | 128, n >> 7)) for n in range(_PAIR))
_MORE_OF_POSITIVE = _MORE[::2]  # the zigzag of a positive number ends in a zero bit
_POSITIVE_MASK = _PAIR // 2 - 1

SMALL_LIMIT = _PAIR // 2
SMALL: tuple[bytes, ...] = _LAST[::2]
"""The bytes of the numbers 0 up to SMALL_LIMIT, itself excluded."""

# Reading: two bytes, as a little-endian 16-bit number, to their 14 bits. None where they are not of that kind.
_of_more = {int.from_bytes(pair, "little"): n for n, pair in enumerate(_MORE)}
_of_last = {int.from_bytes(pair, "little"): n for n, pair in enumerate(_LAST) if len(pair) == 2}
_PAIR_WITH_MORE: tuple[int | None, ...] = tuple(map(_of_more.get, range(1 << 16)))
_PAIR_AT_END: tuple[int | None, ...] = tuple(map(_of_last.get, range(1 << 16)))
_three_pairs = struct.Struct("<HHH").unpack_from


def read_long(buffer: bytes, i: int) -> tuple[int, int]:
    """The 64-bit number at `i` and the offset behind it. Raises IndexError at the end, DecodeError beyond 64 bits."""
    byte = buffer[i]
    n = byte & 127
    shift = 7
    while byte > 127:
        i += 1
        byte = buffer[i]
        n += (byte & 127) << shift
        if shift == 63 and byte > 1:  # the tenth byte has room for one bit
            raise DecodeError(f"the number that ends at byte {i} has more than 64 bits")
        shift += 7
    return (n >> 1) ^ -(n & 1), i + 1


def read_long_of_many(buffer: bytes, i: int) -> tuple[int, int]:
    """As `read_long`, for a number whose first byte has its high bit set: 2, 3, 4 and 6 bytes take a shorter way."""
    second = buffer[i + 1]
    if second < 128:
        n = (buffer[i] & 127) + (second << 7)
        return (n >> 1) ^ -(n & 1), i + 2
    third = buffer[i + 2]
    if third < 128:
        n = (buffer[i] & 127) + ((second & 127) << 7) + (third << 14)
        return (n >> 1) ^ -(n & 1), i + 3
    try:
        first_pair, second_pair, third_pair = _three_pairs(buffer, i)
    except struct.error:  # fewer than six bytes are left
        return read_long(buffer, i)
    low, middle, high, after = (
        _PAIR_WITH_MORE[first_pair],
        _PAIR_WITH_MORE[second_pair],
        _PAIR_AT_END[third_pair],
        i + 6,
    )
    if middle is None:
        middle, high, after = _PAIR_AT_END[second_pair], 0, i + 4
    if low is None or middle is None or high is None:
        return read_long(buffer, i)
    if low & 1:
        return ~((low >> 1) + (middle << 13) + (high << 27)), after
    return (low >> 1) + (middle << 13) + (high << 27), after


def read_int(buffer: bytes, i: int) -> tuple[int, int]:
    """The 32-bit number at `i` and the offset behind it. Raises IndexError at the end, DecodeError out of range."""
    n, after = read_long(buffer, i)
    if not _INT_MIN <= n <= _INT_MAX:
        raise DecodeError(f"the number at byte {i} does not fit in 32 bits")
    return n, after


def read_length(buffer: bytes, i: int) -> tuple[int, int]:
    """A length at `i`, within the buffer, and the offset behind it. Raises IndexError at the end, DecodeError else."""
    n, after = read_long(buffer, i)
    if not 0 <= n <= len(buffer) - after:
        raise DecodeError(f"the length at byte {i} is negative or goes beyond the end")
    return n, after


def read_branch(buffer: bytes, i: int) -> tuple[int, int]:
    """The branch of a ["null", X] union: 0 or 1, and the offset behind it. Raises as `read_length` does."""
    n, after = read_long(buffer, i)
    if n not in (0, 1):
        raise DecodeError(f"the union at byte {i} has no such branch")
    return n, after


def write_long(value: int) -> bytes:
    """The bytes of a 64-bit number. Raises EncodeError when it has more bits."""
    if 0 <= value < 1 << 41:  # a time in milliseconds until 2039, an offset, a length
        if value < SMALL_LIMIT:
            return SMALL[value]
        if value < 1 << 27:
            return _MORE_OF_POSITIVE[value & _POSITIVE_MASK] + _LAST[value >> 13]
        return _MORE_OF_POSITIVE[value & _POSITIVE_MASK] + _MORE[value >> 13 & _PAIR_MASK] + _LAST[value >> 27]
    n = value << 1 if value >= 0 else ~(value << 1)
    if n >= 1 << 64:
        raise EncodeError("a number does not fit in 64 bits")
    parts = []
    while n >= _PAIR:
        parts.append(_MORE[n & _PAIR_MASK])
        n >>= _PAIR_BITS
    parts.append(_LAST[n])
    return b"".join(parts)


def write_int(value: int) -> bytes:
    """The bytes of a 32-bit number. Raises EncodeError when it has more bits."""
    if not _INT_MIN <= value <= _INT_MAX:
        raise EncodeError("a number does not fit in 32 bits")
    return write_long(value)
