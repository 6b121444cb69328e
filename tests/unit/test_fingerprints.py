"""A schema has one fingerprint, whoever computes it: readers in other languages look schemas up by it."""

import json
from typing import Any

import avro.schema
import pytest

from epochfence.engine.topics.schema_keys import schema_key
from epochfence.resources import schema_names, schema_text
from epochfence.wire.fingerprint import fingerprint, fingerprint_key


@pytest.mark.parametrize("name", schema_names())
def test_the_official_avro_gives_the_same_fingerprint(name: str) -> None:
    judge = avro.schema.parse(schema_text(name)).fingerprint("CRC-64-AVRO")
    assert fingerprint(json.loads(schema_text(name))) == judge
    assert schema_key(schema_text(name)) == fingerprint_key(judge)


@pytest.mark.parametrize("name", schema_names())
def test_no_named_type_is_used_twice(name: str) -> None:
    """Implementations differ on the canonical form of a reference: the official avro writes the type out again."""
    defined: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                walk(item)
        elif isinstance(node, dict):
            if node["type"] in ("record", "enum", "fixed"):
                assert node["name"] not in defined, f"{node['name']} is defined twice"
                defined.add(node["name"])
            for field in node.get("fields", []):
                walk(field["type"])
            for inner in ("items", "values"):
                walk(node.get(inner, []))
            if isinstance(node["type"], dict | list):
                walk(node["type"])
        else:
            assert node in ("null", "string", "bytes", "long", "int", "boolean"), f"a reference to {node}"

    walk(json.loads(schema_text(name)))
