"""Where the schemas of other writers come from: the topic `schemas`, and a registry if one is set."""

import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from confluent_kafka.admin import AdminClient

from epochfence.engine.kafka.client_config import reader_config
from epochfence.engine.kafka.history import KafkaHistory, Stopped
from epochfence.engine.topics.schema_keys import is_under_its_key
from epochfence.engine.topics.specs import SCHEMAS, topic_name
from epochfence.errors import ClusterError
from epochfence.settings import Settings
from epochfence.wire.fingerprint import fingerprint_key
from epochfence.wire.registry import Registry

log = structlog.get_logger()

Answer = TypeVar("Answer")

LOOKUP_TIMEOUT_S = 2.0
"""A task asks while its transaction is open, so the answer must come well within the transaction timeout."""
_SILENCE_S = 1.0
"""For so long after a source did not answer it is not asked again: other partitions would wait for it as well."""


class TopicSchemaLookup:
    """Looks a fingerprint up in `schemas`, an id in the registry. See wire.codec.SchemaLookup.

    What was read is remembered: a fingerprint is its schema's content. For an unknown one the topic is asked whether
    it has grown, and what is new is read, so that "no such schema" is always said of the whole topic as it is now.
    """

    def __init__(self, settings: Settings, bootstrap: str, admin: AdminClient) -> None:
        self._topic = topic_name(settings.topic_prefix, SCHEMAS)
        self._deadline = 0.0
        self._history = KafkaHistory(0, admin, reader_config(settings, bootstrap), self._too_late, LOOKUP_TIMEOUT_S)
        self._read_up_to = 0
        self._known: dict[str, str] = {}
        self._silent_until = 0.0
        self._asked = False
        """Whether the topic was asked since records arrived last."""
        self._unknown_ids: set[int] = set()
        """Likewise, what the registry has said that it does not have."""
        url = settings.schema_registry_url
        self._registry = (
            Registry(url, self._too_late, log.warning, timeout_ms=int(LOOKUP_TIMEOUT_S * 1000)) if url else None
        )

    def _too_late(self) -> bool:
        return time.monotonic() > self._deadline

    def by_fingerprint(self, fingerprint: bytes) -> str | None:
        """The schema's JSON text, or None where the topic has none. Raises ClusterError where it does not answer."""
        key = fingerprint_key(fingerprint)
        if key not in self._known and not self._asked:
            self._patiently(self._read_what_is_new)
            self._asked = True
        return self._known.get(key)

    def records_arrived(self) -> None:
        """Records were fetched: a schema that was written before they were sent may be there now.

        Once for them all is enough to ask. A sender who makes up fingerprints costs one question a fetch, not one each.
        """
        self._asked = False
        self._unknown_ids.clear()

    def _read_what_is_new(self) -> None:
        end = self._history.bounds(self._topic).high_watermark
        for record in self._history.read(self._topic, self._read_up_to, end):
            if record.value is not None:
                key = (record.key or b"").decode("utf-8", "replace")
                text = record.value.decode("utf-8", "replace")
                if is_under_its_key(key, text):  # another schema would decode its values to garbage
                    self._known[key] = text
        self._read_up_to = end

    def by_registry_id(self, schema_id: int) -> str | None:
        """The schema's JSON text, or None without a registry or where it has none. Raises ClusterError."""
        registry = self._registry
        if registry is None or schema_id in self._unknown_ids:
            return None
        found = self._patiently(lambda: registry.schema_by_id(schema_id))
        if found is None:
            self._unknown_ids.add(schema_id)
        return found

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        now = time.monotonic()
        if now < self._silent_until:
            raise ClusterError("the source of a writer's schema did not answer a moment ago")
        self._deadline = now + LOOKUP_TIMEOUT_S
        try:
            return ask()
        except (ClusterError, Stopped) as error:
            self._silent_until = time.monotonic() + _SILENCE_S
            raise ClusterError(f"the source of a writer's schema does not answer: {error}") from None
