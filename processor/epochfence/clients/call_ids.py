"""A call's key."""

from epochfence.errors import UsageError


def key_of(call_id: str) -> bytes:
    """The key of a call's records in every topic. Raises UsageError for what a shell took that is not UTF-8."""
    try:
        return call_id.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("the call's id is not UTF-8, so no call can have it") from None
