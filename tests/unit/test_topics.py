"""What topics/*.yaml says, and what the fingerprints in the topic `schemas` are. No cluster."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import avro.schema
import pytest
import yaml
from pydantic import ValidationError

from epochfence import resources
from epochfence.engine.kafka.client_config import INPUT_MESSAGE_MAX_BYTES, OUTPUT_MESSAGE_MAX_BYTES
from epochfence.engine.topics.cluster import CALL_TOPICS, INPUT_TOPICS, SCHEMAS, TopicSpec, load_topic_specs, topic_name
from epochfence.engine.topics.schema_keys import schema_key
from epochfence.engine.topics.schemas import own_schemas
from epochfence.errors import UsageError

REPOSITORY = Path(__file__).parents[2]


def test_the_seven_topics_of_the_protocol() -> None:
    assert list(load_topic_specs()) == [*INPUT_TOPICS, "decisions", "epoch-table", "schemas"]
    assert INPUT_TOPICS == ("tool-calls", "timeouts", "results", "compensations")
    assert {path.stem for path in (REPOSITORY / "topics").glob("*.yaml")} == set(load_topic_specs())


def test_partitions_replication_and_in_sync_replicas() -> None:
    for name, spec in load_topic_specs().items():
        assert spec.partitions == (1 if name == SCHEMAS else 4)
        assert (spec.replication.laptop, spec.replication.cluster) == (1, 3)
        assert spec.topic_config(1)["min.insync.replicas"] == "1"
        assert spec.topic_config(3)["min.insync.replicas"] == "2"
        assert spec.topic_config(5)["min.insync.replicas"] == "2"


@pytest.mark.parametrize("name", [*INPUT_TOPICS, "decisions"])
def test_what_the_truth_is_made_of_is_kept_for_ever(name: str) -> None:
    config = load_topic_specs()[name].topic_config(1)
    assert (config["cleanup.policy"], config["retention.ms"], config["retention.bytes"]) == ("delete", "-1", "-1")


def test_the_broker_stamps_every_record_and_never_elects_an_unclean_leader() -> None:
    for spec in load_topic_specs().values():
        config = spec.topic_config(1)
        assert config["message.timestamp.type"] == "LogAppendTime"
        assert config["unclean.leader.election.enable"] == "false"


def test_the_clients_and_the_topics_agree_on_the_largest_record() -> None:
    for name, spec in load_topic_specs().items():
        output = name in ("decisions", "epoch-table")
        limit = OUTPUT_MESSAGE_MAX_BYTES if output else INPUT_MESSAGE_MAX_BYTES
        assert spec.topic_config(1)["max.message.bytes"] == str(limit)


def test_only_the_processor_decides_and_no_planner_reports_a_result() -> None:
    specs = load_topic_specs()
    assert specs["decisions"].writers == specs["epoch-table"].writers == ["processor"]
    assert "planner" not in specs["results"].writers + specs["compensations"].writers
    assert all("processor" in specs[name].readers for name in CALL_TOPICS)


def test_a_topic_says_which_schema_its_values_have() -> None:
    values = {spec.value for spec in load_topic_specs().values()}
    assert values == {*resources.schema_names(), "avro_schema"} - {"checkpoint"}


@pytest.mark.parametrize("change", [{"unknown": 1}, {"partitions": 0}, {"partitions": "4"}, {"writers": ["anyone"]}])
def test_a_file_of_another_form_is_refused(change: dict[str, Any]) -> None:
    good = yaml.safe_load(resources.topic_texts()["results"])
    TopicSpec.model_validate(good)
    with pytest.raises(ValidationError):
        TopicSpec.model_validate({**good, **change})
    for field in good:
        with pytest.raises(ValidationError):
            TopicSpec.model_validate({name: value for name, value in good.items() if name != field})


@pytest.mark.parametrize("prefix", ["a b.", "é.", "x" * 201, "a/"])
def test_a_prefix_that_kafka_would_refuse(prefix: str) -> None:
    with pytest.raises(UsageError, match="topic prefix"):
        topic_name(prefix, "results")


def test_an_empty_prefix_is_one() -> None:
    assert topic_name("", "results") == "results"


@pytest.mark.parametrize("name", resources.schema_names())
def test_a_schemas_key_is_its_official_fingerprint_in_the_byte_order_of_the_header(name: str) -> None:
    text = resources.schema_text(name)
    assert schema_key(text) == avro.schema.parse(text).fingerprint("CRC-64-AVRO").hex()


def test_the_specifications_own_value() -> None:
    """For the schema "int" it is 0x7275D51A3F395C8F, here as little-endian bytes."""
    assert schema_key('{"type": "int"}') == "8f5c393f1ad57572"


def test_docs_and_defaults_do_not_change_the_key_and_a_field_does() -> None:
    schema = json.loads(resources.schema_text("timeout"))
    key = schema_key(json.dumps(schema))
    assert schema_key(json.dumps({**schema, "doc": "other"})) == key
    assert schema_key(json.dumps({**schema, "fields": schema["fields"][1:]})) != key


def test_every_schema_has_a_key_of_its_own() -> None:
    assert set(own_schemas().values()) == set(resources.schema_names())


@pytest.mark.parametrize("text", ["", "[", "5", "{}", '{"type": "record", "name": 5}', '"nothing"'])
def test_what_is_no_schema_has_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        schema_key(text)


def test_an_unknown_schema_is_named() -> None:
    with pytest.raises(KeyError, match="tool_call"):
        resources.schema_text("../pyproject")


APPLY = """
import sys, typer
from epochfence.cli import topics
from epochfence.errors import EpochfenceError
app = typer.Typer()
topics.register(app)
try:
    app(sys.argv[1:], standalone_mode=False)
except EpochfenceError as error:
    print(f"epochfence: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("verb", ["apply", "check"])
def test_a_cluster_that_does_not_answer_is_one_line_and_exit_3_in_bounded_time(verb: str) -> None:
    with socket.socket() as listener:  # it takes the connection and says nothing: the slowest kind of silence
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-c", APPLY, "topics", verb, "--bootstrap-servers", address],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert f"at {address}: the cluster does not answer" in ended.stderr
    assert time.monotonic() - began < 20
