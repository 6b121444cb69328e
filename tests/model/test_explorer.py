"""Every interleaving to a bound. How many states there are is pinned: fewer would be an exploration that looks away."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from epochfence.protocol.admission import Parameters
from epochfence.protocol.vocabulary import Orphans, Policy
from epochfence.simulation.explored import (
    ALWAYS,
    NEED_HOSTILE,
    diagram,
    expected_rows,
    is_good,
    missing_rows,
    trace_lines,
)
from epochfence.simulation.explorer import Explored, Explorer
from epochfence.simulation.independence import explore_two
from epochfence.simulation.lines import LineFold
from epochfence.simulation.world import Promise, Settings
from tests.verbs import run_verb

COMPENSATE, REPLAY = Policy.COMPENSATE, Policy.REPLAY
REPORT, CLEAN_UP = Orphans.REPORT, Orphans.COMPENSATE


@cache
def explored_whole(settings: Settings) -> Explored:
    """An exploration to its end, once for all tests. They may not change it."""
    return Explorer(settings).run()


# (settings, states, depth). One call, every interleaving, nothing cut off.
PINNED = [
    (Settings(COMPENSATE, REPORT, deliveries=1), 32_306, 15),
    (Settings(COMPENSATE, CLEAN_UP, deliveries=1), 47_947, 15),
    (Settings(REPLAY, REPORT, deliveries=1, duplicates=0), 37_950, 17),
    (Settings(REPLAY, CLEAN_UP, deliveries=1, duplicates=0), 35_436, 16),
    (Settings(COMPENSATE, REPORT, epochs=2, idempotent=True, duplicates=0), 132_509, 18),
    (Settings(COMPENSATE, REPORT, epochs=2, hostile=1, deliveries=1, duplicates=0), 9_659, 13),
    (Settings(COMPENSATE, CLEAN_UP, epochs=2, hostile=1, deliveries=1, duplicates=0), 10_877, 12),
]
"""Without a million of them: `make explore` does that."""


def named(settings: Settings) -> str:
    words = [settings.policy, settings.orphans, f"{settings.epochs}-epochs"]
    return "-".join(words + ["idempotent"] * settings.idempotent + ["hostile"] * (settings.hostile > 0))


@pytest.mark.parametrize(("settings", "states", "depth"), PINNED, ids=[named(pinned[0]) for pinned in PINNED])
def test_every_property_holds_in_every_state(settings: Settings, states: int, depth: int) -> None:
    explored = explored_whole(settings)
    assert explored.counterexample is None
    assert explored.complete
    assert (explored.states, explored.depth) == (states, depth)
    assert missing_rows(explored) == []
    assert explored.rows - {0} == expected_rows(settings)
    assert is_good(explored)


def test_all_rows_are_reached_by_one_exploration_or_another() -> None:
    reached = {row for settings, _, _ in PINNED for row in expected_rows(settings)}
    assert reached == set(range(1, 28))


def test_an_exploration_that_reaches_too_little_is_not_good() -> None:
    whole = explored_whole(PINNED[0][0])
    explored = replace(whole, rows=whole.rows - {23})
    assert missing_rows(explored) == [23]
    assert not is_good(explored)


NEEDED = [
    Settings(policy, orphans, deliveries=2 if promise is Promise.STARTED_ONCE else 1, duplicates=0, broken=promise)
    for policy, orphans in product((COMPENSATE, REPLAY), (REPORT, CLEAN_UP))
    for promise in Settings(policy, orphans).relied_on()
]


@pytest.mark.parametrize("settings", NEEDED, ids=lambda s: f"{s.policy}-{s.orphans}-{s.broken}")
def test_each_promise_is_needed(settings: Settings) -> None:
    found = explored_whole(settings).counterexample
    assert found is not None
    if settings.broken is Promise.IDEMPOTENT_SKIP:
        assert "double compensation" in found.why
    else:
        assert "and the call is not unsettled" in found.why


def test_every_promise_is_broken_somewhere() -> None:
    assert {settings.broken for settings in NEEDED} == set(Promise)


def test_the_first_counterexample_is_a_shortest_one() -> None:
    """Report what is final, and is not: the classic. Eight steps, and seven find nothing."""
    settings = Settings(broken=Promise.FINAL)
    found = explored_whole(settings).counterexample
    assert found is not None
    assert [step.what for step in found.steps] == [
        "ToolCall",
        "Timeout DEADLINE, epoch 1",
        "starts the call of epoch 1",
        "undoes under key 1 in epoch 2: OK",
        "Compensation OK, epoch 2",
        "execution x1.1 has its effect",
        "execution x1.1 is answered: SUCCESS",
        "Result SUCCESS, epoch 1",
    ]
    assert Explorer(settings).run(max_steps=7).counterexample is None


@pytest.mark.parametrize("settings", NEEDED, ids=lambda s: f"{s.policy}-{s.orphans}-{s.broken}")
def test_a_counterexample_is_a_trace_that_decides_alike(settings: Settings) -> None:
    """The trace file alone, read as `fold` reads it, leads to the decisions of the counterexample."""
    found = explored_whole(settings).counterexample
    assert found is not None
    fold = LineFold(Parameters())
    decided = [fold.decide(line) for line in trace_lines(found)]
    told = [step.step for step in found.steps if step.step is not None]
    assert [(d.verdict, d.dispatch is None) for d in decided] == [
        (step.said.split()[0], step.dispatch is None) for step in told
    ]
    drawn = diagram(found)
    assert drawn.startswith("sequenceDiagram\n")
    assert drawn.count("->>processor:") == len(decided)


def test_bounds_cut_off_and_say_so() -> None:
    settings = PINNED[0][0]
    for explored in (Explorer(settings).run(max_steps=5), Explorer(settings).run(max_states=1_000)):
        assert not explored.complete
        assert explored.counterexample is None
        assert explored.states < PINNED[0][1]
        assert is_good(explored)
    assert Explorer(settings).run(max_steps=5).levels == explored_whole(settings).levels[:6]


def test_hostile_events_reach_the_rows_that_the_honest_do_not() -> None:
    honest = Explorer(Settings(epochs=2, deliveries=1)).run()
    assert explored_whole(PINNED[5][0]).rows - honest.rows == NEED_HOSTILE


def test_two_calls_do_not_touch_each_other() -> None:
    found = explore_two(Settings(epochs=2, deliveries=1, duplicates=0), max_steps=9)
    assert found.broken is None
    assert (found.states, found.expected, found.depth) == (13_548, 13_548, 9)


# ---- the command ------------------------------------------------------------------------------------------------


def test_explore_prints_what_it_did() -> None:
    run = run_verb("explore", "--deliveries", "1", "--epochs", "2")
    lines = run.stdout.decode().splitlines()
    assert (run.returncode, run.stderr) == (0, b"")
    assert lines[0].startswith("EXPLORE policy=COMPENSATE orphans=REPORT ")
    assert lines[2].endswith(": every state within the bounds")
    assert lines[3].startswith("time=")
    assert [line for line in lines if line.startswith("PROPERTY")] == [f"PROPERTY OK: {text}" for text in ALWAYS]


def test_a_counterexample_is_written_as_a_trace_and_a_diagram(tmp_path: Path) -> None:
    trace, drawn = tmp_path / "c.jsonl", tmp_path / "c.mmd"
    run = run_verb("explore", "--break", "final", "--trace", str(trace), "--diagram", str(drawn))
    assert run.returncode == 1
    assert b"PROPERTY FAIL: a COMPENSATION OK is committed, the world holds 1 of its effects" in run.stdout
    again = run_verb("simulate", "--trace-file", str(trace))
    assert again.returncode == 0
    assert b"REJECT STALE_EPOCH 7@0 live=2 COMMITTED committed=2 orphaned_effect" in again.stdout
    assert "tool: execution x1.1 has its effect" in drawn.read_text("utf-8")


def test_explore_json() -> None:
    run = run_verb("explore", "--break", "failure-honest", "--json")
    found = json.loads(run.stdout)
    assert run.returncode == 1
    assert (found["property"], found["settings"]["broken"], found["complete"]) == ("FAIL", "failure-honest", False)
    assert found["counterexample"]["steps"][0] == "planner: ToolCall => OPEN 7@0 live=1 INFLIGHT -> CALL"


def test_explore_two_calls() -> None:
    run = run_verb("explore", "--two-calls", "--epochs", "2", "--deliveries", "1", "--steps", "6")
    assert run.returncode == 0
    assert b"PROPERTY OK: neither call touches the other" in run.stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--policy", "HOPE"], "give COMPENSATE or REPLAY"),
        (["--orphans", "IGNORE"], "give REPORT or COMPENSATE"),
        (["--break", "everything"], "there are final, failure-honest"),
        (["--break", "answered"], "with these options nothing relies on answered; what is relied on: final"),
        (["--break", "final", "--trace", "no/such/folder/c.jsonl"], "cannot write no/such/folder/c.jsonl"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(options: list[str], why: str) -> None:
    run = run_verb("explore", *options)
    assert (run.returncode, run.stdout) == (2, b"")
    assert run.stderr.startswith(b"epochfence: ")
    assert run.stderr.count(b"\n") == 1
    assert why in run.stderr.decode()
