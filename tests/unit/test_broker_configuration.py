"""The broker's options: the same for the process and for the container, and nobody else can reach it."""

import re
from pathlib import Path

import pytest

from epochfence.broker import default_directory, pinned_image
from epochfence.broker.configuration import container_environment, server_properties
from epochfence.broker.java import pom


def test_the_process_and_the_container_have_the_same_options() -> None:
    lines = server_properties(9092, 29093, Path("/data")).splitlines()
    process = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, _, value in (x.partition("=") for x in lines)}
    container = container_environment(9092)
    assert process.pop("KAFKA_LOG_DIRS") == "/data"
    assert container.pop("KAFKA_HEAP_OPTS") == "-Xms128m -Xmx512m"
    # Inside a container "every interface" is only the container's own; publishing binds it to the loopback.
    assert container.pop("KAFKA_LISTENERS") == process.pop("KAFKA_LISTENERS").replace("127.0.0.1:9092", "0.0.0.0:9092")
    assert container == process


def test_the_process_listens_on_the_loopback_only() -> None:
    listeners = re.search(r"^listeners=(.*)$", server_properties(1, 2, Path("/data")), re.MULTILINE)
    assert listeners is not None
    assert re.findall(r"//([^:,]*):", listeners.group(1)) == ["127.0.0.1", "127.0.0.1"]


def test_the_image_and_the_jars_are_of_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPOCHFENCE_KAFKA_IMAGE", raising=False)
    version = re.search(rb"<kafka.version>(.*)</kafka.version>", pom())
    assert version is not None
    assert pinned_image() == f"apache/kafka:{version.group(1).decode()}"


@pytest.mark.parametrize(
    ("variables", "directory"),
    [
        ({"EPOCHFENCE_BROKER_DIR": "/a", "XDG_DATA_HOME": "/b"}, "/a"),
        ({"XDG_DATA_HOME": "/b"}, "/b/epochfence/broker"),
        ({"HOME": "/c"}, "/c/.local/share/epochfence/broker"),
    ],
)
def test_where_the_broker_lives(variables: dict[str, str], directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EPOCHFENCE_BROKER_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_directory() == Path(directory)
