"""Lookups by id in a real registry, also while it is down."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from epochfence.errors import ClusterError
from epochfence.wire.registry import Registry
from tests import registry_server
from tests.registry_server import RegistryServer

pytestmark = pytest.mark.integration
SCHEMA_DIRECTORY = Path(__file__).parents[2] / "schemas"
ANSWER_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with registry_server.provide(tmp_path_factory.mktemp("registry")) as running:
        yield running


class Log:
    """Lines that were logged, and an event for the first of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.has_line = threading.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self.has_line.set()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def in_background() -> Iterator[Callable[[Callable[[], str | None]], "Future[str | None]"]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def never() -> bool:
    return False


@pytest.mark.parametrize("name", ["tool_call", "decision"])
def test_a_registered_schema_is_read_by_its_id(server: RegistryServer, log: Log, name: str) -> None:
    text = (SCHEMA_DIRECTORY / f"{name}.avsc").read_text()
    schema_id = server.register(f"{name}-value", text)
    registry = Registry(server.url, never, log)
    read = registry.schema_by_id(schema_id)
    assert read is not None
    assert json.loads(read) == json.loads(text)
    assert log.lines == []


def test_an_id_that_the_registry_does_not_know_is_none_until_it_does(server: RegistryServer, log: Log) -> None:
    registry = Registry(server.url, never, log)
    text = '{"type": "record", "name": "LateComer", "fields": []}'
    newest = server.register("first-value", '{"type": "record", "name": "First", "fields": []}')
    for unknown in (newest + 1, 2_000_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 0):
        assert registry.schema_by_id(unknown) is None
    assert server.register("late-value", text) == newest + 1
    found = registry.schema_by_id(newest + 1)
    assert found is not None
    assert json.loads(found) == json.loads(text)
    assert log.lines == []


def test_what_is_not_one_whole_avro_schema_is_none(server: RegistryServer, log: Log) -> None:
    registry = Registry(server.url, never, log)
    object_schema = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
    json_schema = server.register("json-value", object_schema, schemaType="JSON")
    assert registry.schema_by_id(json_schema) is None
    server.register("inner-value", '{"type": "record", "name": "Inner", "fields": []}')
    outer = '{"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}'
    reference = {"name": "Inner", "subject": "inner-value", "version": 1}
    assert registry.schema_by_id(server.register("outer-value", outer, references=[reference])) is None
    assert log.lines == []


def test_a_lookup_waits_while_the_registry_is_down_and_what_was_found_stays(
    server: RegistryServer, log: Log, in_background: Callable[[Callable[[], str | None]], "Future[str | None]"]
) -> None:
    text = '{"type": "record", "name": "Patient", "fields": []}'
    waited_for = server.register("patient-value", text)
    known = server.register("known-value", '{"type": "record", "name": "Known", "fields": []}')
    secret_url = server.url.replace("http://", "http://reader:s3cret@")
    registry = Registry(secret_url, never, log)
    known_text = registry.schema_by_id(known)
    server.stop()
    try:
        assert registry.schema_by_id(known) == known_text
        assert log.lines == []
        lookup = in_background(lambda: registry.schema_by_id(waited_for))
        assert log.has_line.wait(ANSWER_S)
        assert not lookup.done()
    finally:
        server.start()
    found = lookup.result(ANSWER_S)
    assert found is not None
    assert json.loads(found) == json.loads(text)
    assert all(server.url in line and f"schema {waited_for}" in line for line in log.lines)
    assert "s3cret" not in "".join(log.lines)


def test_a_stop_ends_the_wait(
    server: RegistryServer, log: Log, in_background: Callable[[Callable[[], str | None]], "Future[str | None]"]
) -> None:
    stopped = threading.Event()
    secret_url = server.url.replace("http://", "http://reader:s3cret@")
    registry = Registry(secret_url, stopped.is_set, log, longest_wait_ms=3_600_000, first_wait_ms=3_600_000)
    server.stop()
    try:
        lookup = in_background(lambda: registry.schema_by_id(1))
        assert log.has_line.wait(ANSWER_S)
        stopped.set()
        with pytest.raises(ClusterError, match="stopped while waiting for schema 1") as raised:
            lookup.result(ANSWER_S)
    finally:
        stopped.set()
        server.start()
    assert "s3cret" not in str(raised.value)
