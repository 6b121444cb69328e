"""Two values of one field, in words. What a call carried is never repeated: of a body its length is told."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from epochfence.protocol.decisions import Dispatch

_LONGEST = 200


class Difference(NamedTuple):
    """The field that differs, and both values for a person."""

    field: str
    logged: str
    computed: str


def first_difference(names: Sequence[str], logged: object, computed: object) -> Difference:
    """The first of the fields in which two values differ; in a dispatch, the field inside it."""
    name = next(name for name in names if getattr(logged, name) != getattr(computed, name))
    ours, theirs = getattr(logged, name), getattr(computed, name)
    if isinstance(ours, Dispatch) and isinstance(theirs, Dispatch):
        inner = first_difference(Dispatch._fields, ours, theirs)
        return inner._replace(field=f"{name}.{inner.field}")
    return difference(name, ours, theirs)


def difference(name: str, logged: object, computed: object) -> Difference:
    """Of one field."""
    ours, theirs = shown(name, logged), shown(name, computed)
    return Difference(name, ours, f"other {theirs}" if ours == theirs else theirs)


def shown(name: str, value: Any) -> str:
    """A value of a field, in a few words."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        hashed = "digest" in name or "chain" in name or name == "first_ok_execution"
        return value.hex() if hashed else f"{len(value)} bytes"
    if isinstance(value, Dispatch):
        return f"{value.action} of epoch {value.epoch}"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
