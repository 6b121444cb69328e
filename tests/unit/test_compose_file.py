"""docker-compose.yml says again what the code says: the two must not drift apart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from epochfence.broker.configuration import SINGLE_NODE
from epochfence.broker.docker import OFFICIAL_IMAGE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return loaded


def test_the_broker_is_the_pinned_official_image(services: dict[str, Any]) -> None:
    assert services["kafka"]["image"] == f"${{EPOCHFENCE_KAFKA_IMAGE:-{OFFICIAL_IMAGE}}}"


def test_no_port_is_open_to_another_machine(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize(
    "option",
    [
        "auto.create.topics.enable",
        "default.replication.factor",
        "group.initial.rebalance.delay.ms",
        "offsets.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    ],
)
def test_the_broker_has_the_options_of_the_local_one(services: dict[str, Any], option: str) -> None:
    variable = f"KAFKA_{option.upper().replace('.', '_')}"
    assert str(services["kafka"]["environment"][variable]) == SINGLE_NODE[option]


def test_the_processor_waits_for_the_topics_and_the_topics_for_the_broker(services: dict[str, Any]) -> None:
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert services["processor"]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}
