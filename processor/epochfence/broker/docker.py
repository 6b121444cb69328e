"""The broker as a container of the official image, for machines that have Docker and no Java."""

import os
import shutil
import subprocess
import time
from contextlib import suppress

from epochfence.broker.configuration import container_environment
from epochfence.broker.local import START_TIMEOUT_S, free_port
from epochfence.broker.readiness import wait_until_ready
from epochfence.errors import ClusterError, UsageError

IMAGE_VARIABLE = "EPOCHFENCE_KAFKA_IMAGE"
OFFICIAL_IMAGE = "apache/kafka:4.4.0"
GET_DOCKER = "install Docker and start its engine (https://docs.docker.com/get-docker/)"
_ASK_TIMEOUT_S = 20
_PULL_TIMEOUT_S = 600
_LOOK_EVERY_S = 1.0


def pinned_image() -> str:
    """The image of the broker: `$EPOCHFENCE_KAFKA_IMAGE`, else the official one at the version of the POM."""
    return os.environ.get(IMAGE_VARIABLE) or OFFICIAL_IMAGE


class DockerBroker:
    """A container of `image` that serves 127.0.0.1 only. It is removed, with its data, when it is stopped."""

    def __init__(self, image: str | None = None) -> None:
        self.image = image or pinned_image()
        self._container: str | None = None
        self._looked_at = 0.0

    def missing(self) -> str | None:
        """Why no container can be run on this machine, and how to mend that; None when it can."""
        if shutil.which("docker") is None:
            return f"there is no docker command: {GET_DOCKER}"
        try:
            answered = _docker("version", "--format", "{{.Server.Version}}")
        except subprocess.TimeoutExpired:
            return f"the Docker engine does not answer within {_ASK_TIMEOUT_S} s: start it"
        if answered.returncode != 0:
            return f"the Docker engine does not answer ({_last_line(answered.stderr)}): {GET_DOCKER}"
        return None

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Run the container and give the bootstrap servers when it is ready; a pull is not counted in `timeout_s`.

        Raises UsageError when the image cannot be had, ClusterError when the broker does not come up.
        """
        port = free_port()
        variables = [f"--env={name}={value}" for name, value in container_environment(port).items()]
        publish = f"--publish=127.0.0.1:{port}:{port}"
        try:
            ran = _docker(
                "run",
                "--detach",
                "--label=epochfence.broker",
                publish,
                *variables,
                self.image,
                timeout_s=_PULL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(f"Docker did not run {self.image} within {_PULL_TIMEOUT_S} s: pull it first") from None
        if ran.returncode != 0:
            raise UsageError(
                f"Docker cannot run {self.image} ({_last_line(ran.stderr)}): pull it, or name one in {IMAGE_VARIABLE}"
            )
        self._container = ran.stdout.strip()
        bootstrap_servers = f"127.0.0.1:{port}"
        try:
            wait_until_ready(bootstrap_servers, timeout_s, self._raise_if_gone)
        except BaseException:
            self.stop()
            raise
        return bootstrap_servers

    def stop(self) -> None:
        """Remove the container that `start` ran. Without one, nothing."""
        if self._container is None:
            return
        with suppress(subprocess.TimeoutExpired):
            _docker("rm", "--force", "--volumes", self._container)
        self._container = None

    def _raise_if_gone(self) -> None:
        now = time.monotonic()
        if self._container is None or now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        with suppress(subprocess.TimeoutExpired):
            state = _docker("inspect", "--format", "{{.State.Running}}", self._container)
            if state.stdout.strip() == "true":
                return
            said = _docker("logs", "--tail", "1", self._container)
            raise ClusterError(
                f"the broker's container stopped while it was starting ({_last_line(said.stdout + said.stderr)})"
            )


def _docker(*arguments: str, timeout_s: float = _ASK_TIMEOUT_S) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["docker", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it did not say why"
