"""The runner of the rings decides whether CI is green, so it must not be green for the wrong reason."""

from pathlib import Path

import pytest

from tests.rings import Outcome, run_ring, verdict

PASSES = "def test_it(): pass\n"
FAILS = "def test_it(): assert False\n"
SKIPS = "import pytest\ndef test_it(): pytest.skip('no engine')\n"
BROKEN_FIXTURE = "import pytest\n@pytest.fixture\ndef f(): raise OSError\ndef test_it(f): pass\n"
NO_MODULE = "import there_is_no_such_module\n"
DIES = "import os\ndef test_it(): os._exit(3)\n"


def ring(tmp_path: Path, *files: str) -> Outcome:
    for number, text in enumerate(files):
        (tmp_path / f"test_{number}.py").write_text(text)
    return run_ring("probe", tmp_path)


@pytest.mark.parametrize(
    ("files", "line", "ran", "good"),
    [
        ([PASSES, SKIPS], "RING probe: 1 passed, 0 failed, 1 skipped", True, True),
        ([PASSES, FAILS], "RING probe: 1 passed, 1 failed, 0 skipped", True, False),
        ([PASSES, BROKEN_FIXTURE], "RING probe: 1 passed, 1 failed, 0 skipped", True, False),
        ([NO_MODULE], "RING probe: 0 passed, 1 failed, 0 skipped", True, False),
        ([DIES], "RING probe: BROKEN, pytest did not come to its end", False, False),
        ([SKIPS], "RING probe: SKIPPED, it ran no test", False, False),
        ([], "RING probe: SKIPPED, it ran no test", False, False),
    ],
)
def test_what_a_ring_did_is_said_and_judged(files: list[str], line: str, ran: bool, good: bool, tmp_path: Path) -> None:
    outcome = ring(tmp_path, *files)
    assert (outcome.line(), outcome.ran()) == (line, ran)
    assert verdict([outcome], require_all=False) is good


def test_a_ring_that_is_not_there_ran_no_test(tmp_path: Path) -> None:
    assert not run_ring("probe", tmp_path / "nothing").ran()


@pytest.mark.parametrize("idle", [Outcome("idle"), Outcome("idle", skipped=3)])
def test_where_all_rings_are_required_one_that_ran_nothing_fails_the_run(idle: Outcome) -> None:
    busy = Outcome("busy", passed=5)
    assert verdict([busy, idle], require_all=False)
    assert not verdict([busy, idle], require_all=True)
    assert verdict([busy], require_all=True)
