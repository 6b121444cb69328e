"""`epochfence simulate` as a person runs it: the eight, the three questions, the control, and what mistakes get."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from epochfence.simulation.traces import ALL, EIGHT, THREE_QUESTIONS, named

ROOT = Path(__file__).parents[2]


def simulate(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "processor"), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "epochfence", "simulate", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def blocks(output: str) -> dict[str, list[str]]:
    """What was printed about each trace, by its name."""
    *traces, last = re.split(r"^TRACE ", output, flags=re.MULTILINE)[1:]
    last, summary = last.rsplit("\nfailed=", 1)
    assert re.fullmatch(r"\d+ / \d+\n", summary)
    found = {}
    for block in (*traces, last):
        name, *lines = block.strip().split("\n")
        assert re.fullmatch(r"fenced=.+", lines[0])
        assert re.fullmatch(r"naive_broken=(True|False) naive=.+", lines[1])
        assert re.fullmatch(r"PROPERTY OK|PROPERTY FAIL: .+", lines[2])
        assert len(lines) == 3
        found[name] = lines
    return found


def test_the_eight() -> None:
    run = simulate()
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("failed=0 / 8\n")
    printed = blocks(run.stdout)
    assert list(printed) == [trace.name for trace in EIGHT]
    assert all(lines[2] == "PROPERTY OK" for lines in printed.values())
    assert printed["late_success_after_compensate"][1].startswith("naive_broken=True ")
    assert printed["happy_success"][1].startswith("naive_broken=False ")


STANDS_LAST = {
    "happy_success": "COMMIT 7@0 live=1 COMMITTED committed=1",
    "timeout_then_compensate": "COMMIT 7@0 live=2 COMMITTED committed=2",
    "late_success_after_compensate": "COMMIT 7@0 live=2 COMMITTED committed=2",
    "duplicate_success_same_epoch": "REJECT DUPLICATE 7@0 live=1 COMMITTED committed=1",
    "compensate_then_late_success": "REJECT STALE_EPOCH 7@0 live=2 COMMITTED committed=2 orphaned_effect",
    "timeout_without_compensate_result": "FENCE 7@0 live=2 COMPENSATING -> COMPENSATE",
    "ghost_then_duplicate_compensate": "REJECT DUPLICATE 7@0 live=2 COMMITTED committed=2",
    "success_before_timeout_ignored": "REJECT ALREADY_COMMITTED 7@0 live=1 COMMITTED committed=1",
    "compensate_result_before_the_bump": "COMMIT 7@0 live=2 COMMITTED committed=2",
    "success_without_an_epoch": "COMMIT 7@0 live=1 COMMITTED committed=1",
    "second_timeout_while_epoch_2_in_flight": "COMMIT 7@0 live=3 COMMITTED committed=3",
}
"""How the eight and the three questions end."""

ANSWERS = {
    "compensate_result_before_the_bump": (1, "REJECT FUTURE_EPOCH 7@0 live=1 INFLIGHT"),
    "success_without_an_epoch": (1, "REJECT MALFORMED 7@0 live=1 INFLIGHT"),
    "second_timeout_while_epoch_2_in_flight": (2, "REJECT STALE_EPOCH 7@0 live=2 COMPENSATING"),
}
"""What the protocol answers to each of the three questions, and at which event."""


def test_all() -> None:
    run = simulate("--all")
    assert run.returncode == 0
    assert run.stdout.endswith(f"failed=0 / {len(ALL)}\n")
    printed = blocks(run.stdout)
    assert list(printed) == [trace.name for trace in ALL]
    assert [trace.name for trace in ALL[8:11]] == list(ANSWERS) == [trace.name for trace in THREE_QUESTIONS]
    snapshots = {name: lines[0].removeprefix("fenced=").split(" | ") for name, lines in printed.items()}
    assert {name: snapshots[name][-1] for name in STANDS_LAST} == STANDS_LAST
    assert {name: (number, snapshots[name][number]) for name, (number, _) in ANSWERS.items()} == ANSWERS
    for trace in ALL:
        assert len(snapshots[trace.name]) == len(trace.lines)


def test_one_trace_by_name() -> None:
    run = simulate("--inject", "orphan_is_cleaned_up")
    assert (run.returncode, list(blocks(run.stdout))) == (0, ["orphan_is_cleaned_up"])
    assert run.stdout.endswith("failed=0 / 1\n")


def test_the_control_goes_red_on_the_ghost_write() -> None:
    run = simulate("--inject", "late_success_after_compensate", "--control", "no-fence")
    assert run.returncode == 1
    assert "PROPERTY FAIL: " in run.stdout
    assert "ghost write" in run.stdout
    assert run.stdout.endswith("failed=1 / 1\n")


def test_the_exit_code_is_the_number_of_failed_traces() -> None:
    run = simulate("--control", "no-fence")
    red = [name for name, lines in blocks(run.stdout).items() if lines[2] != "PROPERTY OK"]
    assert red == [trace.name for trace in EIGHT if any(b'"timeout"' in line for line in trace.lines)][:-1]
    assert run.returncode == len(red) == 5
    assert run.stdout.endswith("failed=5 / 8\n")


def test_a_trace_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(b"\n".join(named("late_success_after_compensate").lines) + b"\n")
    green = simulate("--trace-file", str(file))
    assert (green.returncode, green.stderr) == (0, "")
    assert blocks(green.stdout)["mine.jsonl"][1:] == [
        "naive_broken=True naive=7 OPEN | 7 RELEASED | 7 HELD ghost_write | 7 RELEASED",
        "PROPERTY OK",
    ]
    red = simulate("--trace-file", str(file), "--control", "no-fence")
    assert red.returncode == 1
    assert "ghost write" in red.stdout


def test_a_line_that_is_no_event_is_decided_and_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    good, answer = named("happy_success").lines
    file.write_bytes(good + b"\n" + answer.replace(b'"epoch"', b'"epochs"') + b"\n" + answer)
    run = simulate("--trace-file", str(file))
    assert run.returncode == 0
    assert "REJECT UNDECODABLE" in run.stdout
    assert run.stderr == "mine.jsonl: line 1 is no event (result has no field epochs): decided UNDECODABLE\n"


def test_json() -> None:
    run = simulate("--json", "--control", "no-fence")
    data = json.loads(run.stdout)
    assert run.returncode == data["failed"] == 5
    assert data["traces"] == len(data["runs"]) == 8
    ghost = data["runs"][2]
    assert (ghost["trace"], ghost["naive_broken"], ghost["property"]) == (
        "late_success_after_compensate",
        True,
        "FAIL",
    )
    assert [failure["number"] for failure in ghost["failures"]] == [1, 2]
    assert ghost["naive"][2] == {"call_id": "7", "state": "HELD", "ghost": True}
    assert ghost["fenced"][1]["dispatch"]["action"] == "COMPENSATE"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--inject", "nobody"], "there are happy_success, timeout_then_compensate"),
        (["--control", "no-compensation"], "there is no-fence"),
        (["--inject", "happy_success", "--all"], "exclude one another"),
        (["--inject", "happy_success", "--trace-file", "x"], "exclude one another"),
        (["--trace-file", "no/such/file"], "cannot read the trace file no/such/file: No such file or directory"),
        (["--trace-file", "."], "cannot read the trace file .: Is a directory"),
        (["--trace-file", "/dev/null"], "no line of null is an event: it is empty"),
        (["--trace-file", __file__], "is an event: line 0: not a JSON object"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(options: list[str], why: str) -> None:
    run = simulate(*options)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("epochfence: ")
    assert run.stderr.count("\n") == 1
    assert why in run.stderr


def test_help_has_an_example() -> None:
    run = simulate("--help")
    assert run.returncode == 0
    assert "Example: epochfence simulate" in run.stdout
