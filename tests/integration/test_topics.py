"""`topics apply` and `topics check` against a real broker, as a person would use them."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from typer.testing import CliRunner

from epochfence.cli import topics as topics_verb
from epochfence.engine.kafka.client_config import admin_config, reader_config, sender_config
from epochfence.engine.topics.cluster import (
    CALL_TOPICS,
    SCHEMAS,
    Difference,
    apply_topics,
    check_topics,
    load_topic_specs,
)
from epochfence.engine.topics.schemas import own_schemas, read_schemas
from epochfence.errors import ClusterError, UsageError
from epochfence.resources import schema_text
from epochfence.settings import Settings, load_settings
from tests.cluster import Cluster

pytestmark = pytest.mark.integration


class Topics:
    """apply and check, with everything but the interesting arguments filled in."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.settings: Settings = load_settings(bootstrap_servers=cluster.bootstrap_servers, topic_prefix=prefix)
        self.bootstrap, self.prefix = cluster.bootstrap_servers, prefix
        self.admin = AdminClient(admin_config(self.settings, self.bootstrap))
        self.reader = reader_config(self.settings, self.bootstrap)
        self.sender = sender_config(self.settings, self.bootstrap)

    def apply(self, **options: object) -> list[str]:
        return apply_topics(self.admin, self.sender, self.prefix, reader_config=self.reader, **options)

    def check(self, **options: object) -> list[Difference]:
        return check_topics(self.admin, self.reader, self.prefix, **options)

    def make(self, name: str, partitions: int = 4, **config: str) -> None:
        new = NewTopic(self.prefix + name, num_partitions=partitions, replication_factor=1, config=config)
        self.admin.create_topics([new])[self.prefix + name].result(timeout=10)
        self.until(lambda: name in self.counts())

    def delete(self, name: str) -> None:
        self.admin.delete_topics([self.prefix + name])[self.prefix + name].result(timeout=10)
        self.until(lambda: name not in self.counts())

    def until(self, seen: Callable[[], bool]) -> None:
        """A broker hears from its controller a moment after the controller has answered."""
        deadline = time.monotonic() + 10
        while not seen():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def counts(self) -> dict[str, int]:
        there = self.admin.list_topics(timeout=10).topics
        return {n.removeprefix(self.prefix): len(t.partitions) for n, t in there.items() if n.startswith(self.prefix)}

    def configs(self, name: str) -> dict[str, str]:
        (future,) = self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, self.prefix + name)]).values()
        return {entry.name: entry.value for entry in future.result(timeout=10).values()}


@pytest.fixture
def topics(cluster: Cluster, prefix: str) -> Topics:
    return Topics(cluster, prefix)


@pytest.fixture
def cli(topics: Topics) -> Callable[..., Any]:
    app = typer.Typer()
    topics_verb.register(app)
    where = ["--bootstrap-servers", topics.bootstrap, "--prefix", topics.prefix]
    return lambda *arguments: CliRunner().invoke(app, ["topics", *arguments, *where])


def whats(differences: list[Difference]) -> set[tuple[str, str]]:
    return {(difference.topic, difference.what) for difference in differences}


def test_an_empty_cluster_gets_all_topics_and_schemas_and_then_nothing_differs(topics: Topics) -> None:
    assert {d.actual for d in topics.check()} == {"missing"}
    done = topics.apply()
    assert topics.counts() == {**dict.fromkeys(CALL_TOPICS, 4), SCHEMAS: 1}
    assert len(done) == 7 + 7
    assert topics.check() == []


def test_what_the_cluster_says_of_each_topic(topics: Topics) -> None:
    topics.apply()
    for name in ("tool-calls", "timeouts", "results", "compensations", "decisions"):
        config = topics.configs(name)
        assert config["cleanup.policy"] == "delete"
        assert (config["retention.ms"], config["retention.bytes"]) == ("-1", "-1")
        assert config["message.timestamp.type"] == "LogAppendTime"
        assert config["min.insync.replicas"] == "1"
        assert config["unclean.leader.election.enable"] == "false"
    assert topics.configs("tool-calls")["max.message.bytes"] == str(1 << 20)
    assert topics.configs("decisions")["max.message.bytes"] == str(8 << 20)
    assert topics.configs("epoch-table")["cleanup.policy"] == "compact"
    assert topics.configs("schemas")["cleanup.policy"] == "compact"


def test_doing_it_again_does_nothing_and_writes_no_schema_twice(topics: Topics) -> None:
    topics.apply()
    ends = high_watermark(topics, SCHEMAS)
    assert topics.apply() == []
    assert high_watermark(topics, SCHEMAS) == ends == 7


def test_the_schemas_are_there_whole_under_their_fingerprints(topics: Topics) -> None:
    topics.apply()
    there = read_schemas(topics.reader, topics.prefix + SCHEMAS)
    assert there == {key: schema_text(name) for key, name in own_schemas().items()}


def test_a_topic_that_was_lost_is_made_again_with_the_count_of_the_others(topics: Topics) -> None:
    topics.apply(partitions=3)
    topics.delete("epoch-table")
    assert whats(topics.check()) == {(f"{topics.prefix}epoch-table", "topic")}
    (line,) = topics.apply()
    assert "epoch-table: partitions 3" in line
    assert topics.check(partitions=3) == []


def test_a_partition_count_never_changes(topics: Topics) -> None:
    topics.apply(partitions=2)
    with pytest.raises(UsageError, match="cannot become 8"):
        topics.apply(partitions=8)
    assert set(topics.counts().values()) == {2, 1}
    named = topics.check(partitions=8)
    assert whats(named) == {(topics.prefix + name, "partitions") for name in CALL_TOPICS}
    assert {(d.expected, d.actual) for d in named} == {("8", "2")}


def test_topics_of_unequal_counts_are_named_and_nothing_is_added_to_them(topics: Topics) -> None:
    topics.make("results", 4)
    topics.make("timeouts", 5)
    with pytest.raises(UsageError, match=r"timeouts has 5, .*results has 4"):
        topics.apply()
    assert topics.counts() == {"results": 4, "timeouts": 5}
    assert any(d.what == "partitions" for d in topics.check())


def test_a_schemas_topic_of_many_partitions_is_named(topics: Topics) -> None:
    topics.make(SCHEMAS, 3, **{"cleanup.policy": "compact"})
    topics.apply()
    assert (topics.prefix + SCHEMAS, "partitions") in whats(topics.check())


def test_settings_that_differ_are_named_and_only_fixed_when_asked(topics: Topics) -> None:
    topics.make(
        "results",
        **{
            "cleanup.policy": "compact",
            "retention.ms": "1000000",
            "retention.bytes": "12345678",
            "message.timestamp.type": "CreateTime",
            "max.message.bytes": "5000",
            "unclean.leader.election.enable": "true",
        },
    )
    differing = {
        (topics.prefix + "results", what)
        for what in (
            "cleanup.policy",
            "retention.ms",
            "retention.bytes",
            "message.timestamp.type",
            "max.message.bytes",
            "unclean.leader.election.enable",
        )
    }
    topics.apply()
    assert whats(topics.check()) == differing
    done = topics.apply(fix_config=True)
    assert len(done) == len(differing)
    assert topics.check() == []


def test_a_lower_record_limit_is_named_but_never_set(topics: Topics) -> None:
    """Records that were accepted so far would be refused."""
    topics.make("results", **{"max.message.bytes": str(64 << 20)})
    topics.apply(fix_config=True)
    (difference,) = topics.check()
    assert (difference.what, difference.actual) == ("max.message.bytes", str(64 << 20))


def test_one_copy_with_two_in_sync_replicas_would_refuse_every_write(topics: Topics) -> None:
    topics.make("results", **{"min.insync.replicas": "2"})
    topics.apply()
    (difference,) = [d for d in topics.check() if d.what == "min.insync.replicas"]
    assert (difference.expected, difference.actual) == ("1", "2")


def test_replication_that_is_not_as_told_is_named(topics: Topics) -> None:
    topics.apply()
    assert {(d.what, d.expected, d.actual) for d in topics.check(replication=3)} == {("replication", "3", "1")}
    with pytest.raises(UsageError, match="replication 2"):
        topics.apply(replication=2)


def test_more_copies_than_brokers_is_the_callers_mistake(topics: Topics) -> None:
    brokers = len(topics.admin.list_topics(timeout=10).brokers)
    with pytest.raises(UsageError, match="could not create"):
        topics.apply(replication=max(3, brokers + 1))


def test_a_schema_that_is_gone_or_spoilt_is_named_and_written_again(topics: Topics) -> None:
    topics.apply()
    keys = {name: key for key, name in own_schemas().items()}
    producer = Producer(topics.sender)
    producer.produce(topics.prefix + SCHEMAS, key=keys["result"], value=None)
    producer.produce(topics.prefix + SCHEMAS, key=keys["timeout"], value=b"not \xff a schema")
    producer.produce(topics.prefix + SCHEMAS, key=keys["decision"], value=schema_text("result"))
    assert producer.flush(10) == 0
    assert {d.what for d in topics.check()} == {"schema result", "schema timeout", "schema decision"}
    topics.apply()
    assert topics.check() == []


def test_two_applies_at_once_both_succeed(topics: Topics, cluster: Cluster) -> None:
    others = [Topics(cluster, topics.prefix) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        done = [line for lines in pool.map(Topics.apply, others) for line in lines]
    assert len([line for line in done if line.startswith("created")]) == 7
    assert topics.check() == []


def test_the_verb_says_what_it_did_and_its_exit_codes_mean_something(topics: Topics, cli: Callable[..., Any]) -> None:
    first = cli("check")
    assert first.exit_code == 1
    assert f"{topics.prefix}tool-calls: topic is missing, should be there" in first.stdout
    applied = cli("apply", "--partitions", "2")
    assert applied.exit_code == 0, applied.output
    assert f"created {topics.prefix}tool-calls: partitions 2, replication 1" in applied.stdout
    assert cli("apply").stdout == "nothing to do\n"
    assert cli("check").exit_code == 0
    assert cli("check", "--json").stdout == ""
    different = cli("check", "--json", "--partitions", "6")
    assert different.exit_code == 1
    assert {json.loads(line)["actual"] for line in different.stdout.splitlines()} == {"2"}
    assert isinstance(cli("apply", "--partitions", "6").exception, UsageError)


def test_apply_names_on_standard_error_what_it_left_different(topics: Topics, cli: Callable[..., Any]) -> None:
    topics.apply()
    topics.delete("results")
    topics.make("results", **load_topic_specs()["results"].topic_config(1) | {"retention.ms": "1000"})
    left = cli("apply")
    assert left.exit_code == 1
    assert left.stdout == "nothing to do\n"
    assert left.stderr.strip() == (
        f"{topics.prefix}results: retention.ms is 1000, should be -1: `epochfence topics apply --fix-config` sets it"
    )
    assert cli("apply", "--fix-config").exit_code == 0


def test_reading_schemas_of_a_topic_that_is_not_there_is_an_error_of_one_line(topics: Topics) -> None:
    with pytest.raises(ClusterError, match=r"could not read .*nowhere"):
        read_schemas(topics.reader, topics.prefix + "nowhere")


def high_watermark(topics: Topics, name: str) -> int:
    consumer = Consumer(topics.reader)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topics.prefix + name, 0), timeout=10)[1]
    finally:
        consumer.close()
