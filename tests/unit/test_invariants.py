"""Each invariant goes red on a step that was doctored to break it, and says which call and record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from epochfence.protocol import partition
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Event
from epochfence.protocol.fold import fold
from epochfence.protocol.invariants import InvariantError, check_step
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Action, Kind, Orphans, Outcome, Policy, Reason, Status, Verdict
from tests.builders import Log, call, compensation, result, timeout

REPLAY = call(policy=Policy.REPLAY, idempotency_key="k")
CLEANER = call(orphans=Orphans.COMPENSATE)


class Step(NamedTuple):
    before: CallRecord | None
    after: CallRecord | None
    decision: Decision


def step(*history: Event) -> Step:
    """The last step of a history, as the fold made it."""
    *earlier, last = history
    log = Log(*earlier)
    before = log.partition.calls.get(last.call_id)
    return Step(before, *fold(before, last, log.at(last, 0), len(earlier) + 1, 1000))


def doctored(good: Step, before: dict[str, Any], after: dict[str, Any], decision: dict[str, Any]) -> Step:
    """The same step with fields changed in each of its three parts."""
    assert good.after is not None
    return Step(
        good.before and replace(good.before, **before),
        replace(good.after, **after),
        replace(good.decision, **decision),
    )


OPENS = step(call())
FENCES = step(call(), timeout(1))
COMMITS = step(call(), result(1))
COMPENSATED = step(call(), timeout(1), compensation(2))
REJECTS = step(call(), timeout(1), result(1))
REPEATS = step(call(), call())
ORPHAN = step(CLEANER, timeout(1), result(1))
ESCALATES = step(call(max_epochs=2), timeout(1), timeout(2))
UNKNOWN = step(result(1))
GOOD = [OPENS, FENCES, COMMITS, COMPENSATED, REJECTS, REPEATS, ORPHAN, ESCALATES, UNKNOWN, step(timeout(1))]


@pytest.mark.parametrize("good", GOOD, ids=lambda s: f"{s.decision.verdict}-{s.decision.reason}")
def test_what_the_fold_does_holds(good: Step) -> None:
    check_step(*good)


RED = [
    ("a step took a record away", Step(FENCES.before, None, UNKNOWN.decision)),
    ("did more than reject", Step(None, None, replace(UNKNOWN.decision, verdict=Verdict.FENCE))),
    ("did more than reject", Step(None, None, replace(UNKNOWN.decision, call_seq=1))),
    ("did more than reject", Step(None, None, replace(UNKNOWN.decision, dispatch=OPENS.decision.dispatch))),
    ("a record began with something else", doctored(OPENS, {}, {}, {"call_seq": 2})),
    ("a record began with something else", doctored(OPENS, {}, {}, {"verdict": Verdict.REJECT})),
    ("the live epoch fell", doctored(FENCES, {"live_epoch": 3}, {}, {})),
    ("raised by more than one", doctored(FENCES, {}, {"live_epoch": 3}, {})),
    ("a CALL epoch followed", doctored(FENCES, {"kind": Kind.COMPENSATION}, {"kind": Kind.CALL}, {})),
    ("a second epoch committed", doctored(COMMITS, {"committed_epoch": 3}, {}, {})),
    ("a second epoch committed", doctored(COMMITS, {"committed_epoch": 1}, {"committed_epoch": None}, {})),
    ("the incarnation changed", doctored(FENCES, {}, {"incarnation": 9}, {})),
    ("call_seq has a gap", doctored(FENCES, {}, {"call_seq": 3}, {})),
    ("a COMMIT and the record's commit", doctored(COMMITS, {}, {}, {"verdict": Verdict.REJECT})),
    ("a COMMIT and the record's commit", doctored(REJECTS, {}, {}, {"verdict": Verdict.COMMIT})),
    ("a COMMIT and the record's commit", doctored(COMMITS, {"committed_epoch": 1}, {}, {})),
    ("an epoch committed that was not live", doctored(COMMITS, {}, {"committed_epoch": 2}, {})),
    ("an epoch was raised without a dispatch", doctored(FENCES, {}, {}, {"dispatch": None})),
    ("an epoch was raised without a dispatch", doctored(REPEATS, {}, {}, {"dispatch": OPENS.decision.dispatch})),
    ("tells another state", doctored(FENCES, {}, {}, {"live_epoch": 1})),
    ("tells another state", doctored(FENCES, {}, {}, {"status": Status.INFLIGHT})),
    (
        "COMMITTED and a committed epoch",
        doctored(COMMITS, {}, {"status": Status.INFLIGHT}, {"status": Status.INFLIGHT}),
    ),
    (
        "COMMITTED and a committed epoch",
        doctored(REJECTS, {}, {"status": Status.COMMITTED}, {"status": Status.COMMITTED}),
    ),
    ("no epoch left for its compensation", doctored(REPEATS, {}, {"max_epochs": 1}, {})),
    ("no epoch left for its compensation", doctored(REPEATS, {}, {"kind": Kind.COMPENSATION}, {})),
    ("compensated in a CALL epoch", doctored(FENCES, {}, {"kind": Kind.CALL}, {})),
    ("compensated in a CALL epoch", doctored(ESCALATES, {"kind": Kind.CALL}, {"kind": Kind.CALL}, {})),
    ("another fence token", doctored(FENCES, {}, {}, {"dispatch": FENCES.decision.dispatch._replace(epoch=1)})),  # type: ignore[union-attr]
    ("another fence token", doctored(OPENS, {}, {}, {"dispatch": OPENS.decision.dispatch._replace(incarnation=1)})),  # type: ignore[union-attr]
    (
        "what its epoch does not allow",
        doctored(FENCES, {}, {}, {"dispatch": FENCES.decision.dispatch._replace(action=Action.CALL)}),  # type: ignore[union-attr]
    ),
    ("a rejection dispatched something", doctored(ORPHAN, {}, {}, {"orphaned_effect": False})),
    ("a duplicate dispatched something", doctored(ORPHAN, {}, {}, {"reason": Reason.DUPLICATE})),
]


@pytest.mark.parametrize(("why", "bad"), RED, ids=[f"{n}-{why.replace(' ', '_')}" for n, (why, _) in enumerate(RED)])
def test_a_broken_step_is_named(why: str, bad: Step) -> None:
    with pytest.raises(InvariantError, match=why):
        check_step(*bad)


def test_the_message_names_the_call_and_the_record() -> None:
    bad = doctored(FENCES, {"live_epoch": 3}, {}, {})
    with pytest.raises(InvariantError, match=r"\(call '7', seq 2, epochfence\.timeouts\[0\]@1\)"):
        check_step(*bad)


def test_a_step_that_gives_the_same_record_back_is_checked_for_its_state_only() -> None:
    check_step(FENCES.after, FENCES.after, FENCES.decision)


def test_a_partition_checks_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that would commit twice is stopped before anything is kept."""

    def two_commits(record: Any, event: Any, *rest: Any) -> Any:
        after, decision = fold(record, event, *rest)
        if record is not None:
            after.committed_epoch, after.status = 7, Status.COMMITTED  # type: ignore[union-attr]
        return after, decision

    log = Log(call())
    monkeypatch.setattr(partition, "fold", two_commits)
    with pytest.raises(InvariantError):
        log.say(result(1, Outcome.FAILURE, incarnation=5))
    assert log.partition.seq == 1
    assert log.record.status is Status.INFLIGHT
