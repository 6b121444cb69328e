"""The one place where the options of a single-node broker are set, for the local process and for the container."""

from collections.abc import Mapping
from pathlib import Path

# Why each is here: a default made for a cluster of three does not start, or starts slowly, on one node.
SINGLE_NODE: Mapping[str, str] = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node cannot hold three replicas: with the defaults no group and no transaction would ever start.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # 50 partitions each is for thousands of groups; 4 are created, and loaded at a restart, in a fraction of the time.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # A group's first rebalance need not wait 3 s for members that are not coming.
    "group.initial.rebalance.delay.ms": "0",
    # A misspelt topic must be an error, not a new topic.
    "auto.create.topics.enable": "false",
    # Two cores and a small heap: the defaults size these for a server (the cleaner's buffer alone is 128 MiB).
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "16777216",
}

HEAP_OPTIONS = ("-Xms128m", "-Xmx512m")

CONTAINER_CONTROLLER_PORT = 29093
"""Controller's port inside the container, where nothing else listens."""


def server_properties(port: int, controller_port: int, data_directory: Path) -> str:
    """The server.properties of the local broker, bound to the loopback address only."""
    properties = {
        **SINGLE_NODE,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        # A backslash is an escape in a properties file.
        "log.dirs": str(data_directory).replace("\\", "\\\\"),
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def container_environment(port: int) -> dict[str, str]:
    """The variables that give a container of the image `apache/kafka` the same options.

    The broker listens on `port` inside the container and tells its clients 127.0.0.1:`port`, so the port must be
    published under the same number.
    """
    properties = {
        **SINGLE_NODE,
        "listeners": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://127.0.0.1:{CONTAINER_CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{CONTAINER_CONTROLLER_PORT}",
    }
    environment = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in properties.items()}
    return {**environment, "KAFKA_HEAP_OPTS": " ".join(HEAP_OPTIONS)}
