"""The shared cases: `epochfence fold` on their events, and the fields of each decision that must come out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from epochfence.simulation.simulate import as_json, simulate
from epochfence.simulation.traces import ALL, named

ROOT = Path(__file__).parents[2]
CASES = [json.loads(line) for line in (ROOT / "tests/vectors/fold_cases.jsonl").read_text("utf-8").splitlines()]
each_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def fold(lines: list[str]) -> list[dict[str, Any]]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "processor"), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "epochfence", "fold"]
    text = "".join(line + "\n" for line in lines)
    run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, env=environment)
    assert (run.returncode, run.stderr) == (0, "")
    return [json.loads(line) for line in run.stdout.splitlines()]


def assert_came_out(decisions: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(decisions) == len(wanted)
    for got, fields in zip(decisions, wanted, strict=True):
        for name, value in fields.items():
            if name == "dispatch" and value is not None:
                assert {key: got["dispatch"][key] for key in value} == value
            else:
                assert got[name] == value, name


@each_case
def test_fold(case: dict[str, Any]) -> None:
    assert_came_out(fold([json.dumps(event) for event in case["events"]]), case["decisions"])


@each_case
def test_the_built_in_trace_of_that_name_comes_out_the_same(case: dict[str, Any]) -> None:
    run = as_json(simulate(named(case["name"])))
    assert_came_out(run["fenced"], case["decisions"])
    assert run["property"] == "OK"


def test_every_case_is_a_built_in_trace() -> None:
    assert {case["name"] for case in CASES} <= {trace.name for trace in ALL}
    assert len(CASES) == 22
