"""What is checked before a processor starts: topics on which it could not keep its promises are refused."""

import structlog
from confluent_kafka.admin import AdminClient

from epochfence.engine.kafka.client_config import admin_config, open_client, reader_config
from epochfence.engine.topics.cluster import Difference, check_topics
from epochfence.engine.topics.specs import DECISIONS, EPOCH_TABLE
from epochfence.errors import UsageError
from epochfence.settings import Settings

log = structlog.get_logger()

_DECISIVE = frozenset({"topic", "partitions", "cleanup.policy", "message.timestamp.type"})
"""Without these a record may be lost, found in another partition, or dated by its sender."""


def refuse_unfit_topics(settings: Settings, bootstrap: str) -> None:
    """Raise UsageError, naming every decisive difference. Log the others. Raises ClusterError where nobody answers."""
    admin = open_client(AdminClient, admin_config(settings, bootstrap))
    differences = check_topics(admin, reader_config(settings, bootstrap), settings.topic_prefix)
    decisive = [difference for difference in differences if _is_decisive(difference)]
    if decisive:
        raise UsageError("these topics cannot be decided on: " + "; ".join(map(str, decisive)))
    for difference in differences:
        _warn(difference)


def _is_decisive(difference: Difference) -> bool:
    if difference.what in _DECISIVE:
        return True
    # A decision that its topic does not take could not be written, and its partition would stand still for ever.
    is_output = difference.topic.endswith((DECISIONS, EPOCH_TABLE))
    too_small = difference.what == "max.message.bytes" and int(difference.actual) < int(difference.expected)
    return is_output and too_small


def _warn(difference: Difference) -> None:
    log.warning(
        "a topic is not as topics/ says",
        topic=difference.topic,
        what=difference.what,
        expected=difference.expected,
        actual=difference.actual,
    )
