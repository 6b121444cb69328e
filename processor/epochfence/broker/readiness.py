"""When a broker is ready: not when its port is open, but when groups and transactions have their coordinators."""

import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from epochfence.errors import ClusterError

POLL_S = 0.05
_ASK_S = 2.0
_PROBE = "epochfence-broker-ready"
"""Group and transactional id of the probe. Fixed: a new one at each start would fill the coordinator's log."""

# librdkafka writes "connection refused" to standard error for every attempt while the broker comes up.
_LIBRDKAFKA = logging.getLogger("epochfence.broker.librdkafka")
_LIBRDKAFKA.addHandler(logging.NullHandler())
_LIBRDKAFKA.propagate = False


def wait_until_ready(
    bootstrap_servers: str, timeout_s: float, still_alive: Callable[[], None], options: dict[str, Any] | None = None
) -> None:
    """Return when the broker serves metadata, groups and transactions.

    `still_alive` is asked again and again and raises when waiting has no use. Raises ClusterError after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    host, port = bootstrap_servers.rsplit(":", 1)
    # A bare connect first: it tells at once, where a client waits for its back-off.
    _until(lambda: _connects(host, int(port)), deadline, still_alive, bootstrap_servers)
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "reconnect.backoff.max.ms": 200,
        **(options or {}),
    }
    admin = AdminClient(config, logger=_LIBRDKAFKA)
    producer = Producer({**config, "transactional.id": _PROBE}, logger=_LIBRDKAFKA)
    _until(lambda: bool(admin.list_topics(timeout=_ASK_S).brokers), deadline, still_alive, bootstrap_servers)
    # Each of these makes the broker create its internal topic and load the coordinator.
    _until(lambda: _transactions_work(producer), deadline, still_alive, bootstrap_servers)
    _until(lambda: _groups_work(admin), deadline, still_alive, bootstrap_servers)


def _until(
    answers: Callable[[], bool], deadline: float, still_alive: Callable[[], None], bootstrap_servers: str
) -> None:
    while True:
        still_alive()
        try:
            if answers():
                return
            reason = "not ready"
        except (KafkaException, OSError) as error:
            reason = str(error)
        if time.monotonic() >= deadline:
            raise ClusterError(f"the broker at {bootstrap_servers} did not become ready in time: {reason}")
        time.sleep(POLL_S)


def _connects(host: str, port: int) -> bool:
    with socket.create_connection((host, port), timeout=_ASK_S):
        return True


def _transactions_work(producer: Producer) -> bool:
    producer.init_transactions(_ASK_S)
    return True


def _groups_work(admin: AdminClient) -> bool:
    asked: Future[Any] = admin.describe_consumer_groups([_PROBE], request_timeout=_ASK_S)[_PROBE]
    try:
        asked.result(timeout=2 * _ASK_S)
    except KafkaException as error:
        # That there is no such group is the coordinator's own answer, so there is a coordinator.
        return bool(error.args[0].name() == "GROUP_ID_NOT_FOUND")
    return True
