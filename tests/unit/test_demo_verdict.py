"""The demo's verdict: it is a proof only if every part of it could have come out otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epochfence.audit.findings import Finding, FindingKind
from epochfence.audit.proof import prove
from epochfence.demo.verdict import Evidence
from epochfence.demo.world import Record, Sight, World
from epochfence.protocol.vocabulary import CommittedBy, Reason, Verdict
from tests.builders import call, compensation, result, timeout
from tests.memory_archive import MemoryArchive

GHOST = Sight(False, Record.HELD)
HELD = Sight(True, Record.HELD)
RELEASED = Sight(False, Record.RELEASED)


@pytest.fixture
def evidence() -> Evidence:
    """As a good run leaves it."""
    archive = MemoryArchive()
    archive.say(call(call_id="6", occurred_at_ms=archive.now_ms))
    archive.say(result(1, call_id="6"))
    archive.say(call(occurred_at_ms=archive.now_ms))
    archive.say(timeout(1))
    archive.say(compensation(2, incarnation=1))
    archive.say(result(1, incarnation=1))
    return Evidence(GHOST, HELD, RELEASED, archive.decisions(), prove(archive))


def test_a_good_run_is_proven(evidence: Evidence) -> None:
    assert [check for check in (*evidence.story, *evidence.claims) if not check.holds] == []
    assert evidence.proven
    assert evidence.to_json()["proven"] is True


@pytest.mark.parametrize("naive", [HELD, RELEASED])
def test_a_naive_half_that_shows_no_ghost_proves_nothing(evidence: Evidence, naive: Sight) -> None:
    assert not replace(evidence, naive=naive).proven


@pytest.mark.parametrize("change", [{"late": GHOST}, {"late": HELD}, {"in_time": RELEASED}])
def test_a_world_that_disagrees_is_no_proof(evidence: Evidence, change: dict[str, Sight]) -> None:
    assert not replace(evidence, **change).proven


def test_a_finding_is_no_proof(evidence: Evidence) -> None:
    evidence.proof.add(Finding(FindingKind.REFOLD, "decisions", 0, 1, "7", "differs"))
    assert not evidence.proven


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        (1, {"committed_by": CommittedBy.COMPENSATION}),
        (4, {"committed_epoch": 1}),
        (5, {"verdict": Verdict.COMMIT}),
        (5, {"reason": Reason.DUPLICATE}),
        (5, {"orphaned_effect": False}),
        (5, {"seq": 3}),
    ],
)
def test_a_log_that_tells_another_story_is_no_proof(evidence: Evidence, index: int, fields: dict[str, object]) -> None:
    decisions = list(evidence.decisions)
    decisions[index] = replace(decisions[index], **fields)  # type: ignore[arg-type]
    assert not replace(evidence, decisions=decisions).proven


def test_a_log_without_the_calls_is_no_proof(evidence: Evidence) -> None:
    assert not replace(evidence, decisions=[]).proven


def test_a_success_that_was_not_late_is_no_proof(evidence: Evidence) -> None:
    decisions = list(evidence.decisions)
    early = decisions[4].input.timestamp_ms
    decisions[5] = replace(decisions[5], input=decisions[5].input._replace(timestamp_ms=early))
    assert not replace(evidence, decisions=decisions).proven


def test_the_seat_of_a_cancelled_key_is_refused() -> None:
    world = World()
    world.hold_seat("7", "k")
    world.free_seat("7", "k")
    world.hold_seat("7", "k")
    assert world.seen_by("7") == Sight(False, Record.NOTHING)
