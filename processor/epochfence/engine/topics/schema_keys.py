"""Under which key a schema lies in the topic `schemas`. Apart from how that topic is written: an audit only reads."""

import json

from epochfence.wire.fingerprint import fingerprint, fingerprint_key


def schema_key(text: str) -> str:
    """The key of a schema, given as JSON text, in `schemas`.

    Raises ValueError where the text is no JSON, or no schema.
    """
    return fingerprint_key(fingerprint(json.loads(text)))


def is_under_its_key(key: str, text: str | None) -> bool:
    """Whether a value of `schemas` is the schema that its key says."""
    try:
        return text is not None and schema_key(text) == key
    except (ValueError, RecursionError):  # the latter: brackets, nested deeper than JSON is read
        return False
