"""One broker, three faces: a container of the official image, the local broker, or a cluster that is given.

`EPOCHFENCE_TEST_CLUSTER` says which (`container`, `local`, `given`); without it, the local broker. A face that this
machine cannot show skips its tests where everybody sees it, or fails them where `EPOCHFENCE_REQUIRE_ALL_RINGS=1`.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

from epochfence.broker import LocalBroker, pinned_image
from epochfence.broker.configuration import container_environment
from epochfence.broker.local import free_port
from epochfence.broker.readiness import wait_until_ready

FACE_VARIABLE = "EPOCHFENCE_TEST_CLUSTER"
REQUIRE_VARIABLE = "EPOCHFENCE_REQUIRE_ALL_RINGS"
START_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers, and which face it shows."""

    bootstrap_servers: str
    face: str


@contextmanager
def provide(directory: Path) -> Iterator[Cluster]:
    """The cluster that `EPOCHFENCE_TEST_CLUSTER` asks for; `directory` is where a local broker may live."""
    face = os.environ.get(FACE_VARIABLE) or "local"
    faces: dict[str, Callable[[], Any]] = {"container": container, "local": lambda: local(directory), "given": given}
    if face not in faces:
        pytest.fail(f"{FACE_VARIABLE} must be one of {', '.join(faces)}, it is {face!r}", pytrace=False)
    with faces[face]() as cluster:
        yield cluster


@contextmanager
def local(directory: Path) -> Iterator[Cluster]:
    """A broker of its own, in a directory of its own: never the one that a person runs on this machine."""
    broker = LocalBroker(directory)
    missing = broker.missing()
    if missing:
        cannot(missing)
    try:
        yield Cluster(broker.start(timeout_s=START_TIMEOUT_S).bootstrap_servers, "local")
    finally:
        broker.stop()


@contextmanager
def given() -> Iterator[Cluster]:
    """The cluster at `EPOCHFENCE_BOOTSTRAP_SERVERS`; each test uses topics of its own there."""
    bootstrap_servers = os.environ.get("EPOCHFENCE_BOOTSTRAP_SERVERS")
    if not bootstrap_servers:
        cannot(f"{FACE_VARIABLE}=given needs EPOCHFENCE_BOOTSTRAP_SERVERS")
    wait_until_ready(bootstrap_servers.split(",")[0], START_TIMEOUT_S, lambda: None)
    yield Cluster(bootstrap_servers, "given")


@contextmanager
def container() -> Iterator[Cluster]:
    """A container of the official image, or of the one that `EPOCHFENCE_KAFKA_IMAGE` names.

    testcontainers' own KafkaContainer knows only Confluent's image, so this is its generic one. A broker tells its
    clients where it is, so the port must be known before it starts.
    """
    # Read when testcontainers is imported. Its reaper is one more image to pull; we remove our own container.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    # By name: a type checker takes the folder docker/ of this repository for the package.
    engine_error: type[Exception] = import_module("docker.errors").DockerException

    port = free_port()
    image = pinned_image()
    try:
        broker = DockerContainer(image)
        # with_bind_ports would publish it on every interface; the engine takes an address too.
        broker.ports[f"{port}/tcp"] = ("127.0.0.1", port)  # type: ignore[assignment]
        for name, value in container_environment(port).items():
            broker.with_env(name, value)
        broker.start()
    except (engine_error, OSError) as error:
        cannot(f"no container engine runs {image}: {str(error).splitlines()[0]}")
    try:
        wait_until_ready(f"127.0.0.1:{port}", START_TIMEOUT_S, lambda: _raise_if_exited(broker))
        yield Cluster(f"127.0.0.1:{port}", "container")
    finally:
        broker.stop()


def _raise_if_exited(broker: Any) -> None:
    wrapped = broker.get_wrapped_container()
    wrapped.reload()
    if wrapped.status == "exited":
        said = wrapped.logs(tail=20).decode("utf-8", "replace")
        pytest.fail(f"the broker's container stopped while it was starting:\n{said}", pytrace=False)


def cannot(reason: str) -> NoReturn:
    """This machine cannot show the face that is asked for: skip, or fail where nothing may be skipped."""
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{REQUIRE_VARIABLE}=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def unique_prefix() -> str:
    """Begins the name of every topic, group and transactional id of one test, so that no two tests meet."""
    return f"t{uuid.uuid4().hex[:7]}."
