"""What a person is told on a machine that lacks something: what, and how to get it. One line, exit code 2."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from epochfence.broker import DockerBroker, LocalBroker, provide_cluster
from epochfence.errors import UsageError
from epochfence.settings import load_settings


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose PATH holds only what the test puts there."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("EPOCHFENCE_BROKER_DIR", str(tmp_path / "broker"))
    for name in ("JAVA_HOME", "EPOCHFENCE_BOOTSTRAP_SERVERS", "EPOCHFENCE_KAFKA_IMAGE"):
        monkeypatch.delenv(name, raising=False)


def put(tmp_path: Path, name: str, script: str) -> None:
    """A program on the machine's PATH."""
    program = tmp_path / "bin" / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""
JAVA_8 = """echo 'java version "1.8.0_392"' >&2"""


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs Java 17 or newer and there is none: install it \(Debian: apt-get"):
        LocalBroker().start()


def test_java_that_is_too_old(tmp_path: Path) -> None:
    put(tmp_path, "java", JAVA_8)
    with pytest.raises(UsageError, match=r"bin/java is Java 8: install it"):
        LocalBroker().start()


def test_java_that_does_not_run(tmp_path: Path) -> None:
    put(tmp_path, "java", "exit 1")
    with pytest.raises(UsageError, match="does not run"):
        LocalBroker().start()


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "java", JAVA_8)
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    put(home, "java", JAVA_17)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(UsageError, match=r"resolved by Maven \(mvn\) and there is none"):
        LocalBroker().start()


def test_no_maven(tmp_path: Path) -> None:
    put(tmp_path, "java", JAVA_17)
    with pytest.raises(
        UsageError, match=r"Maven \(mvn\) and there is none: install it \(Debian: apt-get install maven"
    ):
        LocalBroker().start()


def test_maven_that_cannot_reach_its_repository(tmp_path: Path) -> None:
    put(tmp_path, "java", JAVA_17)
    put(tmp_path, "mvn", "echo '[ERROR] Unknown host repo.example.org'; exit 1")
    with pytest.raises(UsageError, match=r"cannot resolve the broker's jars \(Unknown host repo.example.org\): check"):
        LocalBroker().start()
    # A half-done download is not taken for a whole one.
    with pytest.raises(UsageError, match="cannot resolve"):
        LocalBroker().start()


def test_the_demo_names_every_way_and_what_each_lacks() -> None:
    with pytest.raises(UsageError) as told, provide_cluster(load_settings(), lambda line: None):
        pass
    message = str(told.value)
    assert "EPOCHFENCE_BOOTSTRAP_SERVERS" in message
    assert "needs Java 17" in message
    assert "no docker command" in message
    assert "\n" not in message


def test_a_docker_engine_that_does_not_answer(tmp_path: Path) -> None:
    put(tmp_path, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert "the Docker engine does not answer (Cannot connect to the Docker daemon)" in (DockerBroker().missing() or "")


def test_an_image_that_is_not_to_be_had(tmp_path: Path) -> None:
    put(tmp_path, "docker", """[ "$1" = version ] && echo 28 || { echo 'manifest unknown' >&2; exit 125; }""")
    with (
        pytest.raises(UsageError, match=r"cannot run apache/kafka:\S+ \(manifest unknown\): pull it, or name one in"),
        provide_cluster(load_settings(), lambda line: None),
    ):
        pass


def test_the_command_line_says_it_in_one_line_and_exits_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "epochfence", "broker", "start"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("epochfence: the local broker needs Java 17")
    assert done.stderr.count("\n") == 1


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used"):
        LocalBroker(tmp_path / "file" / "broker").start()


def test_a_state_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text('["not ours"]')
    with pytest.raises(UsageError, match="is not the state of a broker"):
        LocalBroker(tmp_path).status()
