"""What names a schema in a value's header and in the topic `schemas`: the CRC-64-AVRO of its Parsing Canonical Form."""

from collections.abc import Mapping
from typing import Any

import fastavro.schema

from epochfence.wire.errors import UnsupportedSchemaError

FINGERPRINT_BYTES = 8


def fingerprint(schema: Mapping[str, Any]) -> bytes:
    """The eight bytes of a schema (as `json.loads` gives it), as they stand in a single-object header: little-endian.

    Docs, defaults and aliases do not change it. Raises UnsupportedSchemaError when the schema is not an Avro schema.
    """
    try:
        canonical = fastavro.schema.to_parsing_canonical_form(dict(schema))
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError) as error:
        raise UnsupportedSchemaError(f"not an Avro schema: {type(error).__name__}") from None
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def fingerprint_key(fingerprint: bytes) -> str:
    """The key of a schema in the topic `schemas`: 16 lower-case hex digits, in the order of the header's bytes."""
    if len(fingerprint) != FINGERPRINT_BYTES:
        raise ValueError(f"a fingerprint has {FINGERPRINT_BYTES} bytes, not {len(fingerprint)}")
    return fingerprint.hex()
