"""What is wrong with bytes that do not decode, and with values that cannot be written."""

from epochfence.errors import EpochfenceError


class DecodeError(EpochfenceError):
    """The bytes' fault: they are no value of the schema. The processor decides UNDECODABLE.

    The message says where and why and never repeats the bytes: they may be secrets.
    """


class EncodeError(ValueError):
    """The caller's fault: a value that the schema has no bytes for, such as a number beyond 64 bits."""


class UnsupportedSchemaError(ValueError):
    """Our own fault: a schema with a shape that the compiler does not know, or that does not fit its classes."""
