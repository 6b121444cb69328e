"""Fingerprints, with the official avro package and the text of the specification as the judges.

The official Python package writes a fixed or enum that is used a second time out in full again, which gives no schema
at all (a type defined twice); the Java implementation and fastavro write its name, as the specification says. So where
a schema repeats a type, the specification's rules, written out below, are the only judge here.
"""

import json
from pathlib import Path
from typing import Any

import avro.schema
import fastavro.schema
import pytest

from epochfence.wire.errors import UnsupportedSchemaError
from epochfence.wire.fingerprint import fingerprint, fingerprint_key

SCHEMAS = {path.stem: path.read_text() for path in (Path(__file__).parents[2] / "schemas").glob("*.avsc")}


def crc_64_avro(text: bytes) -> int:
    """The algorithm as the Avro specification prints it."""
    empty = 0xC15D213AA4D7A795
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (empty & -(n & 1))
        table.append(n)
    crc = empty
    for byte in text:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc


def canonical(schema: Any, namespace: str) -> str:
    """Parsing Canonical Form by the specification's rules, for the types that our schemas use."""
    if isinstance(schema, list):
        return f"[{','.join(canonical(branch, namespace) for branch in schema)}]"
    if isinstance(schema, str):
        plain = schema in ("null", "boolean", "int", "long", "bytes", "string") or "." in schema
        return json.dumps(schema if plain else f"{namespace}.{schema}")
    if set(schema) - {"doc"} == {"type"}:
        return canonical(schema["type"], namespace)
    parts = [f'"name":"{namespace}.{schema["name"]}"'] if "name" in schema else []
    parts.append(f'"type":"{schema["type"]}"')
    if "fields" in schema:
        fields = [f'{{"name":"{f["name"]}","type":{canonical(f["type"], namespace)}}}' for f in schema["fields"]]
        parts.append(f'"fields":[{",".join(fields)}]')
    if "symbols" in schema:
        parts.append(f'"symbols":{json.dumps(schema["symbols"], separators=(",", ":"))}')
    if "items" in schema:
        parts.append(f'"items":{canonical(schema["items"], namespace)}')
    if "size" in schema:
        parts.append(f'"size":{schema["size"]}')
    return f"{{{','.join(parts)}}}"


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_it_is_that_of_the_specification(name: str) -> None:
    schema = json.loads(SCHEMAS[name])
    ours = fingerprint(schema)
    assert ours == crc_64_avro(canonical(schema, "epochfence").encode()).to_bytes(8, "little")
    assert fingerprint_key(ours) == ours.hex()


@pytest.mark.parametrize("name", ["compensation", "result", "timeout", "tool_call"])
def test_it_is_that_of_the_official_package_where_no_type_is_used_twice(name: str) -> None:
    judge = avro.schema.parse(SCHEMAS[name])
    assert judge.canonical_form == canonical(json.loads(SCHEMAS[name]), "epochfence")
    assert fingerprint(json.loads(SCHEMAS[name])) == judge.fingerprint("CRC-64-AVRO")


def without_docs(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: without_docs(part) for key, part in schema.items() if key != "doc"}
    return [without_docs(part) for part in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_docs_do_not_change_it_but_a_field_does_and_the_schema_is_left_alone(name: str) -> None:
    schema = json.loads(SCHEMAS[name])
    assert fingerprint(without_docs(schema)) == fingerprint(schema)
    assert fingerprint(schema | {"fields": schema["fields"][1:]}) != fingerprint(schema)
    assert schema == json.loads(SCHEMAS[name])


def test_the_key_is_16_lower_case_hex_digits_in_the_order_of_the_header() -> None:
    assert fingerprint_key(b"\x00\x01\xab\xcd\xef\xff\x10\x02") == "0001abcdefff1002"
    with pytest.raises(ValueError, match="8 bytes"):
        fingerprint_key(b"\x00")


def test_what_is_no_schema_is_refused() -> None:
    for schema in ({}, {"type": "record"}, {"type": "record", "name": "X", "fields": [{"name": "a", "type": "Gone"}]}):
        with pytest.raises(UnsupportedSchemaError, match="not an Avro schema"):
            fingerprint(schema)


def test_fastavro_still_names_the_algorithm_as_we_call_it() -> None:
    assert "CRC-64-AVRO" in fastavro.schema.FINGERPRINT_ALGORITHMS
