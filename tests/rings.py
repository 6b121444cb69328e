"""Runs the rings of tests in order, from the quickest to the slowest, and says of each what it did.

    python -m tests.rings [RING...]

A ring that ran no test is named on a line of its own. With `EPOCHFENCE_REQUIRE_ALL_RINGS=1`, as in CI, that fails the
run. The last line is `N passed, N failed, N skipped`; the exit code is 0 only when nothing failed.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RINGS = ("unit", "property", "model", "replay", "packaging", "integration")
CLUSTER_FACE = "EPOCHFENCE_TEST_CLUSTER"
REQUIRE = "EPOCHFENCE_REQUIRE_ALL_RINGS"
# Two at a time: most of the integration ring waits for Kafka's timeouts. A file stays together, for its tests share a
# broker; each of the two has a broker of its own. Packaging makes virtual environments, which gain nothing.
AT_ONCE = {
    "unit": ["-n", "2"],
    "property": ["-n", "2"],
    "model": ["-n", "2"],
    "replay": ["-n", "2"],
    "integration": ["-n", "2", "--dist", "loadfile"],
}
_COLLECTED_NOTHING = 5


@dataclass(frozen=True)
class Outcome:
    """What a ring did. `broken`: pytest itself failed, whatever it counted."""

    ring: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    broken: bool = False

    def line(self) -> str:
        """One line for a person."""
        if self.broken and not self.failed:
            return f"RING {self.ring}: BROKEN, pytest did not come to its end"
        if self.passed + self.failed == 0:
            return f"RING {self.ring}: SKIPPED, it ran no test"
        return f"RING {self.ring}: {self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def ran(self) -> bool:
        """Whether any test came to a verdict."""
        return self.passed + self.failed > 0


def run_ring(ring: str, target: Path, **variables: str) -> Outcome:
    """Run pytest over `target` and count."""
    if not target.exists():
        return Outcome(ring)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--durations=3", f"--junitxml={report}", str(target)]
        command += AT_ONCE.get(ring, [])
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode
        if not report.exists():
            return Outcome(ring, broken=code != _COLLECTED_NOTHING)
        suites = list(ET.parse(report).getroot().iter("testsuite"))
    failed = sum(int(suite.get("failures", 0)) + int(suite.get("errors", 0)) for suite in suites)
    skipped = sum(int(suite.get("skipped", 0)) for suite in suites)
    total = sum(int(suite.get("tests", 0)) for suite in suites)
    # An error in a fixture's teardown counts beside the test's own verdict, so the rest can be less than nothing.
    passed = max(0, total - failed - skipped)
    return Outcome(ring, passed, failed, skipped, broken=code not in (0, _COLLECTED_NOTHING))


def run_rings(rings: list[str]) -> list[Outcome]:
    """Run them all, also after one that failed: a person wants the whole list."""
    outcomes = []
    for ring in rings:
        print(f"\n--- ring {ring}", flush=True)
        outcomes.append(run_ring(ring, ROOT / "tests" / ring))
    if "integration" in rings and not os.environ.get(CLUSTER_FACE):
        # The ring has just run on the local broker. Where a container engine answers, show that face too.
        print("\n--- ring container", flush=True)
        faces = ROOT / "tests" / "integration" / "test_cluster_faces.py"
        outcomes.append(run_ring("container", faces, **{CLUSTER_FACE: "container"}))
    return outcomes


def main() -> int:
    """Run the rings that are named, or all."""
    wanted = sys.argv[1:] or list(RINGS)
    unknown = [ring for ring in wanted if ring not in RINGS]
    if unknown:
        print(f"no such ring: {', '.join(unknown)}; there are {', '.join(RINGS)}", file=sys.stderr)
        return 2
    outcomes = run_rings(wanted)
    print()
    for outcome in outcomes:
        print(outcome.line())
    good = verdict(outcomes, require_all=os.environ.get(REQUIRE) == "1")
    passed, failed, skipped = (sum(getattr(o, name) for o in outcomes) for name in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if good else 1


def verdict(outcomes: list[Outcome], require_all: bool) -> bool:
    """Whether the run is good: something passed, nothing failed, and where all rings are required, all ran."""
    if require_all and not all(outcome.ran() for outcome in outcomes):
        print(f"{REQUIRE}=1, and not every ring ran")
        return False
    passed = any(outcome.passed for outcome in outcomes)
    return passed and not any(outcome.failed or outcome.broken for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
