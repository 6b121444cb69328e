"""Java, Maven, and the jars: found, or said exactly what is missing and how to get it."""

import hashlib
import os
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

from epochfence.errors import UsageError

OLDEST_JAVA = 17
"""Apache Kafka 4's broker needs Java 17."""
GET_JAVA = (
    "install it (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME"
)
GET_MAVEN = "install it (Debian: apt-get install maven; macOS: brew install maven)"
MAVEN_TIMEOUT_S = 600
"""The first start downloads about 45 MB."""
_VERSION_TIMEOUT_S = 30


def pom() -> bytes:
    """The pinned POM, as it rides in the wheel."""
    return (files("epochfence.broker") / "pom.xml").read_bytes()


def find_java() -> str:
    """Path of a Java that is new enough. Raises UsageError that says what is missing."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise UsageError(f"the local broker needs Java {OLDEST_JAVA} or newer and there is none: {GET_JAVA}")
    version = _java_version(java)
    if version < OLDEST_JAVA:
        raise UsageError(f"the local broker needs Java {OLDEST_JAVA} or newer, {java} is Java {version}: {GET_JAVA}")
    return java


def _java_version(java: str) -> int:
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"{java} does not run ({error}): {GET_JAVA}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None:
        raise UsageError(f"{java} does not tell its version: {GET_JAVA}")
    return int(match.group(1))


def jars_are_resolved(jars: Path) -> bool:
    """Whether `jars` holds what the POM of this version names, so that no Maven is needed."""
    marker = _marker(jars)
    return marker.is_file() and marker.read_text() == _fingerprint()


def find_maven() -> str:
    """Path of mvn. Raises UsageError that says what is missing."""
    maven = shutil.which("mvn")
    if maven is None:
        raise UsageError(f"the local broker's jars are resolved by Maven (mvn) and there is none: {GET_MAVEN}")
    return maven


def resolve_jars(jars: Path) -> None:
    """Let Maven put the jars of the pinned POM into `jars`. Whatever was there before goes."""
    maven = find_maven()
    shutil.rmtree(jars, ignore_errors=True)
    jars.mkdir(parents=True)
    project = jars / "pom.xml"
    project.write_bytes(pom())
    command = [maven, "--batch-mode", "--quiet", "--file", str(project), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"Maven did not resolve the broker's jars within {MAVEN_TIMEOUT_S} s: check the network, then start again"
        ) from None
    if done.returncode != 0:
        raise UsageError(
            f"Maven cannot resolve the broker's jars ({_first_error(done.stdout + done.stderr)}): "
            "check that Maven Central or a mirror in ~/.m2/settings.xml answers, then start again"
        )
    # Last, so that an interrupted download is not taken for a whole one.
    _marker(jars).write_text(_fingerprint())


def _first_error(output: str) -> str:
    lines = [line.removeprefix("[ERROR]").strip() for line in output.splitlines() if "[ERROR]" in line]
    return lines[0] if lines else "it did not say why"


def _marker(jars: Path) -> Path:
    return jars / "resolved"


def _fingerprint() -> str:
    return hashlib.sha256(pom()).hexdigest()
