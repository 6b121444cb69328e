"""What the processor must know of its topics before it decides: their ids, their counts, and that they are right."""

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import AdminClient

from epochfence.engine.kafka.cluster_calls import ANSWER_TIMEOUT_S, failed_with, wait
from epochfence.engine.task import TopicFacts
from epochfence.engine.topics.specs import CALL_TOPICS, topic_name
from epochfence.errors import UsageError


def topic_facts(admin: AdminClient, prefix: str) -> TopicFacts:
    """The facts of the six topics. Raises UsageError where one is missing or the partition counts are not equal."""
    names = [topic_name(prefix, name) for name in CALL_TOPICS]
    futures = admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_TIMEOUT_S)
    missing = [name for name in names if failed_with(futures[name], KafkaError.UNKNOWN_TOPIC_OR_PART)]
    if missing:
        raise UsageError(f"topics are missing: {', '.join(missing)}. `epochfence topics apply` makes them")
    described = [wait(f"describe {name}", futures[name]) for name in names]
    counts = {name: len(topic.partitions) for name, topic in zip(names, described, strict=True)}
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UsageError(f"the six topics must have the same number of partitions: {listed}")
    ids = [str(topic.topic_id) for topic in described]
    return TopicFacts(
        input_topics=tuple(names[:4]),
        input_topic_ids=tuple(ids[:4]),
        decisions_topic=names[4],
        decisions_topic_id=ids[4],
        table_topic=names[5],
        partition_count=counts[names[0]],
    )
