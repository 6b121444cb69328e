"""A real schema registry with the Confluent API: Apicurio's, from the archive that Maven resolves, on loopback.

It needs Java 21 or newer, looked for in EPOCHFENCE_JAVA21_HOME, JAVA_HOME and /usr/lib/jvm. A machine without it, or
without Maven, skips the tests where everybody sees it, or fails them where EPOCHFENCE_REQUIRE_ALL_RINGS=1.
"""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from epochfence.broker.local import free_port
from tests.cluster import cannot

ARCHIVE = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
UNPACK = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack"
API_PATH = "/apis/ccompat/v7"
JAVA_VERSION = 21
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
DOWNLOAD_TIMEOUT_S = 280.0


class RegistryServer:
    """One registry that can be stopped and started again, at the same address and with the same schemas."""

    def __init__(self, java: Path, program: Path, directory: Path) -> None:
        self._java = java
        self._program = program
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}{API_PATH}"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        command = [
            str(self._java),
            "-Xmx512m",
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self._port}",
            # In a file: what was registered outlives a restart.
            f"-Dapicurio.datasource.url=jdbc:h2:file:{self._directory / 'registry'}",
            "-jar",
            "quarkus-run.jar",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._program, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the registry did not start: {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stops it and waits until it is gone. Does nothing when it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def register(self, subject: str, schema: str, **more: object) -> int:
        """Registers a schema as any other client would, and gives its id."""
        request = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            data=json.dumps({"schema": schema, **more}).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(json.load(response)["id"])

    @property
    def _log(self) -> Path:
        return self._directory / "registry.log"

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def provide(directory: Path) -> Iterator[RegistryServer]:
    """A registry that runs, with its program and its data in `directory`."""
    java = find_java()
    if java is None:
        cannot(f"the registry needs Java {JAVA_VERSION} or newer: set EPOCHFENCE_JAVA21_HOME to one")
    server = RegistryServer(java, unpack(directory / "program"), directory)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def unpack(program: Path) -> Path:
    """Has Maven fetch the archive (159 MB, once: it is kept in Maven's own cache) and unpack it."""
    maven = shutil.which("mvn")
    if maven is None:
        cannot("the registry is fetched by Maven (mvn), and there is none")
    command = [maven, "-B", "-q", "-ntp", UNPACK, f"-Dartifact={ARCHIVE}", f"-DoutputDirectory={program}"]
    program.mkdir()
    done = subprocess.run(command, cwd=program, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        cannot(f"Maven could not fetch the registry: {done.stdout.strip()[-500:]}")
    return program


def find_java() -> Path | None:
    """The java of the first home that is new enough."""
    homes = [Path(home) for name in ("EPOCHFENCE_JAVA21_HOME", "JAVA_HOME") if (home := os.environ.get(name))]
    installed = Path("/usr/lib/jvm")
    homes += sorted(installed.iterdir()) if installed.is_dir() else []
    return next((home / "bin" / "java" for home in homes if _version(home) >= JAVA_VERSION), None)


def _version(home: Path) -> int:
    """The feature version of a Java home, 0 if it is none."""
    java = home / "bin" / "java"
    if not java.is_file():
        return 0
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else 0
