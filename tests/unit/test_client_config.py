"""The Kafka options that correctness depends on, and that nobody can take away. No cluster."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from epochfence.engine.kafka.client_config import (
    PROTECTED,
    admin_config,
    open_client,
    processor_consumer_config,
    processor_producer_config,
    reader_config,
    sender_config,
)
from epochfence.errors import UsageError
from epochfence.settings import Settings, load_settings

NOWHERE = "127.0.0.1:9"
CONFIGS: dict[str, tuple[Callable[[Settings], dict[str, Any]], Any]] = {
    "admin": (lambda settings: admin_config(settings, NOWHERE), AdminClient),
    "reader": (lambda settings: reader_config(settings, NOWHERE), Consumer),
    "processor_consumer": (lambda settings: processor_consumer_config(settings, NOWHERE, "main-0"), Consumer),
    "processor_producer": (lambda settings: processor_producer_config(settings, NOWHERE, "main-0"), Producer),
    "sender": (lambda settings: sender_config(settings, NOWHERE), Producer),
}
every_config = pytest.mark.parametrize("name", CONFIGS)


def config(name: str, **settings: Any) -> dict[str, Any]:
    return CONFIGS[name][0](load_settings(**settings))


def close(client: Any) -> None:
    if isinstance(client, Consumer):
        client.close()


@every_config
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"session_timeout_ms": 6_000, "transaction_timeout_ms": 2_000},
        {"session_timeout_ms": 1_800_000, "transaction_timeout_ms": 900_000},
    ],
    ids=["default", "shortest", "longest"],
)
def test_librdkafka_takes_every_config_over_the_whole_range_of_the_settings(name: str, settings: Any) -> None:
    close(open_client(CONFIGS[name][1], config(name, **settings)))


@pytest.mark.parametrize("name", ["reader", "processor_consumer"])
def test_a_reader_sees_only_what_is_committed_and_never_jumps_over_lost_records(name: str) -> None:
    made = config(name)
    assert made["isolation.level"] == "read_committed"
    assert made["auto.offset.reset"] == "error"
    assert made["enable.auto.commit"] is False
    assert made["enable.auto.offset.store"] is False
    assert made["enable.partition.eof"] is True


def test_a_slot_is_one_member_and_one_transactional_id() -> None:
    consumer = config("processor_consumer", topic_prefix="p.")
    assert (consumer["group.id"], consumer["group.instance.id"]) == ("p.processor", "main-0")
    assert consumer["partition.assignment.strategy"] == "range"
    assert consumer["group.protocol"] == "classic"
    assert config("processor_producer", topic_prefix="p.")["transactional.id"] == "p.main-0"


def test_a_reader_does_not_join_the_processors_group() -> None:
    assert config("reader")["group.id"] != config("processor_consumer")["group.id"]
    assert "group.instance.id" not in config("reader")


@pytest.mark.parametrize("name", ["processor_producer", "sender"])
def test_a_producer_waits_for_all_and_routes_as_the_java_client_does(name: str) -> None:
    made = config(name)
    assert made["acks"] == "all"
    assert made["enable.idempotence"] is True
    assert made["partitioner"] == "murmur2_random"


def test_the_timeouts_of_the_settings_are_in_force() -> None:
    settings = {"session_timeout_ms": 20_000, "transaction_timeout_ms": 30_000}
    assert config("processor_consumer", **settings)["session.timeout.ms"] == 20_000
    assert config("processor_producer", **settings)["transaction.timeout.ms"] == 30_000


@pytest.mark.parametrize("transaction_timeout_ms", [10_000, 900_000])
def test_a_processor_may_be_held_up_by_a_stopped_transaction_without_losing_its_place(
    transaction_timeout_ms: int,
) -> None:
    """A coordinator looks for timed-out transactions every 10 s, so one lasts up to its timeout and 10 s."""
    poll_ms = config("processor_consumer", transaction_timeout_ms=transaction_timeout_ms)["max.poll.interval.ms"]
    assert poll_ms > transaction_timeout_ms + 10_000


def test_what_a_consumer_reads_ahead_is_bounded() -> None:
    for name in ("reader", "processor_consumer"):
        assert config(name)["queued.max.messages.kbytes"] == 65_536
        assert config(name)["fetch.max.bytes"] <= 65_536 * 1024


@every_config
def test_security_and_tuning_pass_through(name: str) -> None:
    passed = {"security.protocol": "SASL_SSL", "sasl.username": "me", "linger.ms": 77, "fetch.wait.max.ms": 7}
    made = config(name, kafka=passed)
    assert {key: made[key] for key in passed} == passed


@every_config
@pytest.mark.parametrize("property_name", sorted(PROTECTED))
def test_what_correctness_depends_on_cannot_be_overridden(name: str, property_name: str) -> None:
    with pytest.raises(UsageError, match=rf"must not set {property_name}: ."):
        config(name, kafka={property_name: "anything"})


@every_config
def test_every_option_that_is_fixed_is_protected(name: str) -> None:
    """A property that we set over the operator's must be refused, or it would be ignored without a word."""
    plain = config(name)
    for key in plain.keys() - {"logger"}:
        try:
            passed = config(name, kafka={key: "other"})
        except UsageError:
            continue
        assert passed[key] == "other", f"{key} is neither refused nor obeyed"


def test_the_address_may_stand_under_kafka_where_it_is_the_same() -> None:
    assert config("admin", kafka={"bootstrap.servers": NOWHERE})["bootstrap.servers"] == NOWHERE


@pytest.mark.parametrize(
    "kafka",
    [
        {"no.such.property": "x"},
        {"security.protocol": "carrier pigeon"},
        {"socket.timeout.ms": -1},
        {"socket.timeout.ms": "soon"},
        {"ssl.endpoint.identification.algorithm": ["a", "list"]},
        {"enable.ssl.certificate.verification": {"a": "table"}},
    ],
)
def test_a_property_that_librdkafka_refuses_is_the_callers_mistake_in_one_line(kafka: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"\[kafka\] do not fit") as raised:
        close(open_client(Consumer, config("reader", kafka=kafka)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("value", [True, "true", "True"])
def test_a_boolean_of_toml_or_json_is_one(value: object) -> None:
    close(open_client(Consumer, config("reader", kafka={"socket.keepalive.enable": value})))


def test_a_secret_is_not_repeated_in_an_error() -> None:
    with pytest.raises(UsageError) as raised:
        close(open_client(Consumer, config("reader", kafka={"sasl.password": "hunter2", "no.such": "hunter2"})))
    assert "hunter2" not in str(raised.value)


@every_config
def test_librdkafka_is_silent_on_the_terminal_until_logging_is_set_up(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    client = open_client(CONFIGS[name][1], config(name))
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    close(client)
    assert capfd.readouterr() == ("", "")


def test_librdkafkas_log_goes_where_the_programs_goes(caplog: pytest.LogCaptureFixture) -> None:
    producer = open_client(Producer, config("sender"))
    with caplog.at_level(logging.INFO), pytest.raises(KafkaException):
        producer.list_topics(timeout=0.5)
    producer.poll(0.5)
    assert any(record.name == "epochfence.librdkafka" for record in caplog.records)
