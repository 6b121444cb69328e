"""What each topic of topics/*.yaml must be. Their form is in topics/README.md; anything else in a file is refused."""

import re
from functools import cache
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from epochfence.errors import UsageError
from epochfence.resources import topic_texts
from epochfence.wire.schemas import INPUT_TOPICS

__all__ = [
    "CALL_TOPICS",
    "DECISIONS",
    "EPOCH_TABLE",
    "INPUT_TOPICS",
    "SCHEMAS",
    "BySize",
    "TopicSpec",
    "load_topic_specs",
    "topic_name",
]

DECISIONS = "decisions"
EPOCH_TABLE = "epoch-table"
SCHEMAS = "schemas"
CALL_TOPICS = (*INPUT_TOPICS, DECISIONS, EPOCH_TABLE)
"""The six topics keyed by call. Their partition counts are equal and never change."""

Role = Literal["planner", "gateway", "compensator", "operator", "processor", "audit"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class BySize(_Strict):
    """A number for a cluster of one or two brokers, and one for a cluster of three or more."""

    laptop: int = Field(ge=1)
    cluster: int = Field(ge=1)


class TopicSpec(_Strict):
    """One file of topics/. `name` is without the prefix."""

    name: str
    doc: str
    key: str
    value: str
    partitions: int = Field(ge=1)
    replication: BySize
    min_insync_replicas: BySize
    writers: list[Role]
    readers: list[Role]
    config: dict[str, str | int | float | bool]

    def topic_config(self, replication: int) -> dict[str, str]:
        """Kafka's settings of this topic with so many copies, in Kafka's own spelling."""
        copies = self.min_insync_replicas.laptop if replication == 1 else self.min_insync_replicas.cluster
        return {name: _kafka_text(value) for name, value in {**self.config, "min.insync.replicas": copies}.items()}


@cache
def load_topic_specs() -> dict[str, TopicSpec]:
    """The topics by name, inputs first. Raises ValueError where a file is not of the form (a fault of ours)."""
    specs = {name: TopicSpec.model_validate(yaml.safe_load(text)) for name, text in topic_texts().items()}
    order = (*CALL_TOPICS, SCHEMAS)
    if set(specs) != set(order) or any(spec.name != name for name, spec in specs.items()):
        raise ValueError(f"topics/ must describe exactly {', '.join(order)}, each in the file of its name")
    return {name: specs[name] for name in order}


def topic_name(prefix: str, name: str) -> str:
    """The name on the cluster. Raises UsageError where Kafka would refuse the prefix."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,200}", prefix):
        raise UsageError(f"the topic prefix {prefix!r} must be at most 200 letters, digits, dots, dashes, underscores")
    return prefix + name


def _kafka_text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
