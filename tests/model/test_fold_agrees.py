"""`epochfence fold` and the reference decide thousands of adversarial lines alike, field by field."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.independent.generate import RETENTION_MS, Generator
from tests.independent.reference import ReferencePartition

ROOT = Path(__file__).parents[2]
SEEDS = [1, 2, 3, 4]
LINES = 4_000
ROW_FLOOR = 20
RARE_FLOOR = 5
ADMISSION = ["UNDECODABLE", "MALFORMED call_id", "MALFORMED range", "MALFORMED replay", "OVERSIZED", "EXPIRED"]
ABSENT = object()


def product(lines: list[bytes], retention_ms: int, timeout_s: float = 120) -> list[dict[str, Any]]:
    """What `epochfence fold` says of the lines, in a process of its own."""
    path = os.pathsep.join([str(ROOT / "processor"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "epochfence", "fold", "--retention-ms", str(retention_ms)]
    run = subprocess.run(
        command,
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=timeout_s,
    )
    assert run.returncode == 0, run.stderr.decode("utf-8", "replace")[-2_000:]
    return [json.loads(line) for line in run.stdout.split(b"\n") if line]


def differences(mine: Any, theirs: Any, path: str = "") -> list[str]:
    """Every field in which two decisions differ, with both values. 1 and True differ, so do null and absent."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        names = [*mine, *(name for name in theirs if name not in mine)]
        return [d for n in names for d in differences(mine.get(n, ABSENT), theirs.get(n, ABSENT), f"{path}.{n}")]
    if type(mine) is type(theirs) and mine == theirs:
        return []
    shown = ["(absent)" if value is ABSENT else repr(value)[:200] for value in (mine, theirs)]
    return [f"{path[1:]}: reference {shown[0]}, fold {shown[1]}"]


def assert_agree(lines: list[bytes], retention_ms: int) -> None:
    reference = ReferencePartition(retention_ms=retention_ms)
    wanted = [reference.decide_line(line) for line in lines]
    got = product(lines, retention_ms)
    reports = []
    for number, (mine, theirs) in enumerate(zip(wanted, got, strict=False)):
        found = differences(mine, theirs)
        if found:
            reports.append(f"line {number}: {lines[number][:400]!r}\n    " + "\n    ".join(found))
    shown = "\n".join(reports[:20])
    assert not reports, f"{len(reports)} of {len(lines)} lines differ; a first difference may bring others.\n{shown}"
    assert len(got) == len(lines)


@pytest.mark.parametrize("seed", SEEDS)
def test_fold_agrees_with_the_reference(seed: int) -> None:
    assert_agree(Generator(seed).lines(LINES), RETENTION_MS)


def test_fold_agrees_when_nothing_is_forgotten() -> None:
    assert_agree(Generator(99, retention_ms=2**62).lines(2_000), 2**62)


def test_fold_agrees_when_all_is_forgotten_at_once() -> None:
    assert_agree(Generator(98, retention_ms=1).lines(2_000), 1)


def test_the_generator_is_seeded() -> None:
    assert Generator(5).lines(500) == Generator(5).lines(500)
    assert Generator(5).lines(500) != Generator(6).lines(500)


def test_the_rarer_sentences_are_hit() -> None:
    hit: Counter[str] = Counter()
    for seed in SEEDS:
        reference = ReferencePartition(retention_ms=RETENTION_MS)
        opened: set[str] = set()
        for line in Generator(seed).lines(LINES):
            d = reference.decide_line(line)
            dispatch = d["dispatch"] or {}
            hit[f"{d['reason']} {d['verdict']}"] += 1
            hit["third compensation key"] += dispatch.get("idempotency_key", "").endswith(":compensate:3")
            hit["evidence in a dispatch"] += dispatch.get("evidence") is not None
            hit["an orphan raises the epoch"] += d["verdict"] == "REJECT" and d["dispatch"] is not None
            hit["committed and unsettled"] += d["verdict"] == "COMMIT" and d["unsettled"]
            hit["opened anew"] += d["verdict"] == "OPEN" and d["call_id"] in opened
            hit["an orphan escalates"] += (
                d["verdict"] == "REJECT" and d["status"] == "ESCALATED" and d["orphaned_effect"]
            )
            opened |= {d["call_id"]} if d["verdict"] == "OPEN" else set()
    wanted = [f"DOUBLE_COMPENSATION {verdict}" for verdict in ("COMMIT", "SETTLE", "REJECT")]
    wanted += ["third compensation key", "evidence in a dispatch", "an orphan raises the epoch", "opened anew"]
    wanted += ["committed and unsettled", "an orphan escalates", "COMPENSATION_FAILED FENCE", "OUTCOME_UNKNOWN FENCE"]
    assert not {name: hit[name] for name in wanted if hit[name] < RARE_FLOOR}


def test_every_row_and_admission_rule_is_hit(capsys: pytest.CaptureFixture[str]) -> None:
    rows: Counter[int | str] = Counter()
    for seed in SEEDS:
        generator = Generator(seed)
        generator.lines(LINES)
        rows += generator.rows
    with capsys.disabled():
        print("\nrows hit:", " ".join(f"{row}:{rows[row]}" for row in [*ADMISSION, *range(1, 28)]))
    too_few = {row: rows[row] for row in [*ADMISSION, *range(1, 28)] if rows[row] < ROW_FLOOR}
    assert not too_few
