"""The topics on a cluster against the topics of topics/*.yaml: made where they are missing, compared where not.

What is there is never changed behind a person's back: a partition count and a replication factor never by us, a
setting only when asked to.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from epochfence.engine.kafka.cluster_calls import ANSWER_TIMEOUT_S, ask, failed_with, no_answer, wait
from epochfence.engine.topics.schemas import missing_schemas, write_schemas
from epochfence.engine.topics.specs import (
    CALL_TOPICS,
    DECISIONS,
    EPOCH_TABLE,
    INPUT_TOPICS,
    SCHEMAS,
    TopicSpec,
    load_topic_specs,
    topic_name,
)
from epochfence.errors import UsageError

__all__ = [
    "CALL_TOPICS",
    "DECISIONS",
    "EPOCH_TABLE",
    "INPUT_TOPICS",
    "SCHEMAS",
    "Difference",
    "TopicSpec",
    "apply_topics",
    "check_topics",
    "load_topic_specs",
    "topic_name",
]

_FIX = "`epochfence topics apply --fix-config` sets it"
_BY_HAND = "set it with Kafka's kafka-configs, once no larger record is sent any more"


@dataclass(frozen=True)
class Difference:
    """One thing that is not as topics/*.yaml or the caller says. `topic` carries the prefix."""

    topic: str
    what: str
    """`topic`, `partitions`, `replication`, `schema <name>`, or the name of a Kafka setting."""
    expected: str
    actual: str
    remedy: str
    """What to do about it, for a person."""

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} is {self.actual}, should be {self.expected}: {self.remedy}"


@dataclass(frozen=True)
class _Cluster:
    """What a cluster has of our topics, by their names without the prefix."""

    brokers: int
    topics: Mapping[str, TopicMetadata]

    def partitions(self, name: str) -> int:
        return len(self.topics[name].partitions)

    def replication(self, name: str) -> int:
        return min(len(partition.replicas) for partition in self.topics[name].partitions.values())

    def default_replication(self, spec: TopicSpec) -> int:
        return spec.replication.cluster if self.brokers >= spec.replication.cluster else spec.replication.laptop


def apply_topics(
    admin: AdminClient,
    producer_config: Mapping[str, Any],
    prefix: str,
    *,
    reader_config: Mapping[str, Any],
    partitions: int | None = None,
    replication: int | None = None,
    fix_config: bool = False,
) -> list[str]:
    """Make the topics that are missing, write the schemas that are missing, and say what was done, a line each.

    `partitions` is for the six topics keyed by call; None is what the existing ones have, else the files' number.
    `replication` None is the files' number for a cluster of this size. `fix_config` also sets what `check_topics`
    finds different among Kafka's settings, except a lower max.message.bytes, which would stop records.

    Doing it again does nothing. Raises UsageError where the partition count cannot be as told, ClusterError where
    the cluster does not answer.
    """
    _refuse_unsafe(replication)
    where = str(reader_config["bootstrap.servers"])
    cluster = _describe(admin, prefix, where)
    count = _count_for_new(cluster, prefix, partitions)
    done = []
    for name, spec in load_topic_specs().items():
        if name not in cluster.topics:
            copies = replication or cluster.default_replication(spec)
            number = count if name in CALL_TOPICS else spec.partitions
            if _create(admin, topic_name(prefix, name), spec, number, copies):
                done.append(f"created {topic_name(prefix, name)}: partitions {number}, replication {copies}")
    _wait_for_leaders(admin, prefix, where)
    if fix_config:
        done += _fix_config(admin, _config_differences(admin, prefix, _describe(admin, prefix, where)))
    schemas = topic_name(prefix, SCHEMAS)
    missing = missing_schemas(reader_config, schemas)
    if missing:
        write_schemas(producer_config, schemas, missing)
    return done + [f"wrote schema {name} to {schemas} as {key}" for key, name in missing.items()]


def check_topics(
    admin: AdminClient,
    reader_config: Mapping[str, Any],
    prefix: str,
    *,
    partitions: int | None = None,
    replication: int | None = None,
) -> list[Difference]:
    """Every difference between the cluster and topics/*.yaml; none is an empty list.

    Raises ClusterError where the cluster does not answer.
    """
    _refuse_unsafe(replication)
    where = str(reader_config["bootstrap.servers"])
    cluster = _describe(admin, prefix, where)
    differences = [
        Difference(topic_name(prefix, name), "topic", "there", "missing", "`epochfence topics apply` makes it")
        for name in load_topic_specs()
        if name not in cluster.topics
    ]
    differences += _partition_differences(cluster, prefix, partitions)
    differences += _replication_differences(cluster, prefix, replication)
    differences += _config_differences(admin, prefix, cluster)
    if SCHEMAS in cluster.topics:
        differences += [
            Difference(
                topic_name(prefix, SCHEMAS),
                f"schema {name}",
                f"there as {key}",
                "missing",
                "`epochfence topics apply` writes it",
            )
            for key, name in missing_schemas(reader_config, topic_name(prefix, SCHEMAS)).items()
        ]
    return differences


def _refuse_unsafe(replication: int | None) -> None:
    if replication == 2:
        raise UsageError("replication 2 can be safe or available, not both: use 1 on a laptop, else 3 or more")


def _describe(admin: AdminClient, prefix: str, where: str) -> _Cluster:
    names = {topic_name(prefix, name): name for name in load_topic_specs()}
    metadata = ask(f"list the topics at {where}", lambda: admin.list_topics(timeout=ANSWER_TIMEOUT_S))
    return _Cluster(
        brokers=len(metadata.brokers),
        topics={names[full]: topic for full, topic in metadata.topics.items() if full in names},
    )


def _count_for_new(cluster: _Cluster, prefix: str, told: int | None) -> int:
    """How many partitions a topic that is missing gets: those of a call must have the same number."""
    there = {name: cluster.partitions(name) for name in CALL_TOPICS if name in cluster.topics}
    named = ", ".join(f"{topic_name(prefix, name)} has {count}" for name, count in there.items())
    if told is not None and any(count != told for count in there.values()):
        raise UsageError(
            f"the partition count cannot become {told}, since it never changes: {named}. "
            "Leave the number out, or use another prefix"
        )
    counts = set(there.values())
    if len(counts) > 1 and len(there) < len(CALL_TOPICS):
        raise UsageError(f"partition counts must be equal, so no topic can be added: {named}. Use another prefix")
    return told or (counts.pop() if counts else load_topic_specs()[DECISIONS].partitions)


def _create(admin: AdminClient, full_name: str, spec: TopicSpec, partitions: int, replication: int) -> bool:
    """True where it was made, False where somebody else was faster."""
    new = NewTopic(
        full_name,
        num_partitions=partitions,
        replication_factor=replication,
        config=spec.topic_config(replication),
    )
    requested = admin.create_topics([new], operation_timeout=ANSWER_TIMEOUT_S, request_timeout=ANSWER_TIMEOUT_S)
    made = requested[full_name]
    if failed_with(made, KafkaError.TOPIC_ALREADY_EXISTS):
        return False
    wait(f"create {full_name}", made)
    return True


def _wait_for_leaders(admin: AdminClient, prefix: str, where: str) -> None:
    """A topic that was made can be written once each partition has a leader, which takes a moment."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        topics = _describe(admin, prefix, where).topics
        ready = all(
            name in topics and all(partition.leader >= 0 for partition in topics[name].partitions.values())
            for name in load_topic_specs()
        )
        if ready:
            return
        if time.monotonic() > deadline:
            raise no_answer("use the topics", "not every partition has a leader")
        time.sleep(0.05)


def _partition_differences(cluster: _Cluster, prefix: str, told: int | None) -> list[Difference]:
    counts = {name: cluster.partitions(name) for name in CALL_TOPICS if name in cluster.topics}
    most_common = Counter(counts.values()).most_common(1)
    expected = dict.fromkeys(counts, told or (most_common[0][0] if most_common else 0))
    if SCHEMAS in cluster.topics:
        counts[SCHEMAS], expected[SCHEMAS] = cluster.partitions(SCHEMAS), load_topic_specs()[SCHEMAS].partitions
    return [
        Difference(
            topic_name(prefix, name),
            "partitions",
            str(expected[name]),
            str(count),
            "a partition count never changes; use another prefix",
        )
        for name, count in counts.items()
        if count != expected[name]
    ]


def _replication_differences(cluster: _Cluster, prefix: str, told: int | None) -> list[Difference]:
    differences = []
    for name in cluster.topics:
        least, copies = told or cluster.default_replication(load_topic_specs()[name]), cluster.replication(name)
        if copies == told or (told is None and copies >= least and copies != 2):
            continue
        expected = str(told) if told else f"{max(least, 3) if copies == 2 else least} or more"
        differences.append(
            Difference(
                topic_name(prefix, name),
                "replication",
                expected,
                str(copies),
                "Kafka's kafka-reassign-partitions changes it",
            )
        )
    return differences


def _config_differences(admin: AdminClient, prefix: str, cluster: _Cluster) -> list[Difference]:
    names = {topic_name(prefix, name): name for name in cluster.topics}
    resources = [ConfigResource(ResourceType.TOPIC, full_name) for full_name in names]
    if not resources:
        return []
    described = admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT_S)
    differences = []
    for resource, future in described.items():
        actual = wait(f"describe {resource.name}", future)
        name = names[resource.name]
        for setting, expected in load_topic_specs()[name].topic_config(cluster.replication(name)).items():
            value = str(actual[setting].value)
            if value != expected:
                remedy = _FIX if _is_safe(setting, value, expected) else _BY_HAND
                differences.append(Difference(resource.name, setting, expected, value, remedy))
    return differences


def _is_safe(setting: str, actual: str, expected: str) -> bool:
    """Nothing that is in the topic goes, and nothing that was accepted so far is refused."""
    return setting != "max.message.bytes" or int(expected) > int(actual)


def _fix_config(admin: AdminClient, differences: list[Difference]) -> list[str]:
    done = []
    for difference in differences:
        if difference.remedy != _FIX:
            continue
        entry = ConfigEntry(difference.what, difference.expected, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, difference.topic, incremental_configs=[entry])
        altered = admin.incremental_alter_configs([resource], request_timeout=ANSWER_TIMEOUT_S)[resource]
        wait(f"set {difference.what} of {difference.topic}", altered)
        done.append(f"set {difference.what} of {difference.topic}: {difference.expected}, was {difference.actual}")
    return done
