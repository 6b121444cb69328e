"""The simulator's parts: the naive writer, the control, and the properties, each of which can go red."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from epochfence.errors import UsageError
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Event
from epochfence.protocol.vocabulary import Action, CommittedBy, Orphans, Outcome, Reason, Status, Verdict
from epochfence.simulation.controls import Control
from epochfence.simulation.naive import is_broken, last_writer
from epochfence.simulation.properties import RULES, check
from epochfence.simulation.simulate import MAX_FAILURES_TOLD, Run, as_json, report, simulate
from epochfence.simulation.traces import ALL, EIGHT, FURTHER, THREE_QUESTIONS, from_file, named
from tests.builders import HELD, Log, call, compensation, result, timeout

ORPHANS = call(orphans=Orphans.COMPENSATE)

# ---- traces ------------------------------------------------------------------------------------------------------


def test_the_eight_are_these_in_this_order() -> None:
    assert [trace.name for trace in EIGHT] == [
        "happy_success",
        "timeout_then_compensate",
        "late_success_after_compensate",
        "duplicate_success_same_epoch",
        "compensate_then_late_success",
        "timeout_without_compensate_result",
        "ghost_then_duplicate_compensate",
        "success_before_timeout_ignored",
    ]
    assert len(THREE_QUESTIONS) == 3


def test_names_differ_and_every_trace_says_what_it_teaches() -> None:
    assert len({trace.name for trace in ALL}) == len(ALL) == len(EIGHT) + len(THREE_QUESTIONS) + len(FURTHER)
    assert len({trace.sentence for trace in ALL}) == len(ALL)
    assert all(trace.lines and trace.sentence.endswith(".") for trace in ALL)


def test_an_unknown_name_is_answered_with_the_names() -> None:
    with pytest.raises(UsageError, match="happy_success, timeout_then_compensate"):
        named("happy")


@pytest.mark.parametrize("trace", ALL, ids=lambda trace: trace.name)
def test_every_trace_keeps_the_properties(trace: Any) -> None:
    run = simulate(trace)
    assert run.failures == ()
    assert len(run.decisions) == len(run.naive) == len(trace.lines)


# ---- the naive writer --------------------------------------------------------------------------------------------


def naive(*events: Event | None) -> list[str]:
    return [f"{write.state}{' ghost' * write.ghost}" for write in last_writer(events)]


def test_the_last_write_stands() -> None:
    assert naive(call(), result(1)) == ["OPEN", "HELD"]
    assert naive(call(), result(1, Outcome.FAILURE)) == ["OPEN", "FAILED"]
    assert naive(call(), result(1, Outcome.UNKNOWN)) == ["OPEN", "UNKNOWN"]
    assert naive(call(), result(1), timeout(1)) == ["OPEN", "HELD", "RELEASED"]
    assert naive(call(), compensation(2, Outcome.FAILED)) == ["OPEN", "OPEN"]
    assert naive(call(), result(1), compensation(2)) == ["OPEN", "HELD", "RELEASED"]
    assert naive(compensation(2, Outcome.UNKNOWN), None) == ["None", "None"]


def test_a_ghost_is_a_success_after_a_release_whatever_its_epoch() -> None:
    assert naive(call(), timeout(1), result(1)) == ["OPEN", "RELEASED", "HELD ghost"]
    assert naive(call(), timeout(1), result(99)) == ["OPEN", "RELEASED", "HELD ghost"]
    assert naive(call(), compensation(2), result(1)) == ["OPEN", "RELEASED", "HELD ghost"]
    assert naive(timeout(1), result(1)) == ["RELEASED", "HELD ghost"]
    assert naive(call(), timeout(1), result(1, Outcome.UNKNOWN), result(1))[2:] == ["UNKNOWN", "HELD ghost"]


def test_what_is_no_ghost() -> None:
    for events in (
        [call(), result(1), result(1)],
        [call(), timeout(1), result(1, Outcome.FAILURE)],
        [call(), compensation(2, Outcome.FAILED), result(1)],
        [call(), timeout(1), call(), result(1)],
        [call(), timeout(1, call_id="8"), result(1)],
    ):
        assert not is_broken(last_writer(events))


def test_once_broken_it_stays_broken() -> None:
    assert is_broken(last_writer([call(), timeout(1), result(1), compensation(2)]))


def test_it_is_broken_on_these_of_the_eight() -> None:
    assert [trace.name for trace in EIGHT if simulate(trace).naive_broken] == [
        "late_success_after_compensate",
        "compensate_then_late_success",
        "ghost_then_duplicate_compensate",
    ]


# ---- the control -------------------------------------------------------------------------------------------------


def without_the_fence(name: str) -> Run:
    return simulate(named(name), Control.NO_FENCE)


def test_without_the_fence_the_late_success_commits_after_the_compensation_was_sent() -> None:
    run = without_the_fence("late_success_after_compensate")
    assert [decision.verdict for decision in run.decisions] == ["OPEN", "FENCE", "COMMIT", "REJECT"]
    assert [decision.live_epoch for decision in run.decisions] == [1, 1, 1, 1]
    assert [failure.number for failure in run.failures] == [1, 2]
    assert "with no fence before it" in run.failures[0].why
    assert "ghost write: SUCCESS of epoch 1" in run.failures[1].why


@pytest.mark.parametrize("trace", ALL, ids=lambda trace: trace.name)
def test_without_the_fence_a_trace_is_red_exactly_if_a_timeout_would_have_raised_an_epoch(trace: Any) -> None:
    raised = any(d.event == "TIMEOUT" and d.dispatch is not None for d in simulate(trace).decisions)
    assert bool(simulate(trace, Control.NO_FENCE).failures) == raised


def test_the_control_leaves_a_call_that_was_cancelled_before_it_opened_alone() -> None:
    assert without_the_fence("timeout_crosses_its_call").decisions == simulate(ALL[11]).decisions
    assert ALL[11].name == "timeout_crosses_its_call"


# ---- the properties ----------------------------------------------------------------------------------------------


def doctored(number: int, *events: Event, **changes: Any) -> list[str]:
    """What the properties say after the decision about one event was changed."""
    decisions: list[Decision] = Log(*events).decisions
    assert check(events, decisions) == []
    decisions[number] = replace(decisions[number], **changes)
    return [failure.why for failure in check(events, decisions) if failure.number == number]


def dispatch_of(number: int, *events: Event, **changes: Any) -> Any:
    dispatch = Log(*events).decisions[number].dispatch
    assert dispatch is not None
    return dispatch._replace(**changes)


FENCED = (call(), timeout(1))
LATE = (call(), timeout(1), result(1), compensation(2))
CLEANED_UP = (ORPHANS, timeout(1), compensation(2), result(1), compensation(3))
COMMIT_1 = {
    "verdict": Verdict.COMMIT,
    "reason": Reason.NONE,
    "status": Status.COMMITTED,
    "committed_epoch": 1,
    "committed_by": CommittedBy.RESULT,
    "committed_outcome": Outcome.SUCCESS,
    "commit_seq": 3,
    "payload": HELD,
    "orphaned_effect": False,
}
NO_COMMIT = {"committed_epoch": None, "committed_by": None, "committed_outcome": None, "commit_seq": None}

RED: list[tuple[str, int, tuple[Event, ...], dict[str, Any]]] = [
    ("one is lost or decided twice", 1, FENCED, {"seq": 3}),
    ("one is lost or decided twice", 1, FENCED, {"input": Log(*FENCED).decisions[0].input}),
    ("began anew", 1, FENCED, {"call_seq": 1}),
    ("did not open in epoch 1", 0, FENCED, {"live_epoch": 2}),
    ("did not open in epoch 1", 0, FENCED, {"incarnation": 4}),
    ("did not open in epoch 1", 0, FENCED, {"dispatch": None}),
    ("did not open in epoch 1", 0, FENCED, {"verdict": Verdict.FENCE}),
    ("neither its ToolCall nor a timeout", 0, (timeout(1),), {"dispatch": dispatch_of(0, call())}),
    ("neither its ToolCall nor a timeout", 0, (timeout(1),), {"status": Status.COMPENSATING}),
    ("nobody opened", 0, (call(),), {"call_seq": 2}),
    ("did more than reject", 0, (result(1),), {"verdict": Verdict.SETTLE}),
    ("did more than reject", 0, (result(1),), {"dispatch": dispatch_of(0, call())}),
    ("tells of an effect must be flagged", 0, (result(1),), {"orphaned_effect": False}),
    ("tells of an effect must be flagged", 0, (compensation(1),), {"orphaned_effect": True}),
    ("still open was forgotten", 1, (call(), timeout(2)), {"call_seq": 0, "reason": Reason.UNKNOWN_CALL}),
    ("call_seq went from 1 to 3", 1, FENCED, {"call_seq": 3}),
    ("the incarnation changed", 1, FENCED, {"incarnation": 1}),
    ("fell from 2 to 1", 2, LATE, {"live_epoch": 1}),
    ("leapt from 1 to 3", 1, FENCED, {"live_epoch": 3}),
    ("nobody was asked to act", 1, FENCED, {"dispatch": None}),
    ("with no fence before it", 1, FENCED, {"live_epoch": 1}),
    ("carries the token (0, 1)", 1, FENCED, {"dispatch": dispatch_of(1, *FENCED, epoch=1)}),
    ("carries the token (5, 2)", 1, FENCED, {"dispatch": dispatch_of(1, *FENCED, incarnation=5)}),
    ("a CALL was dispatched after", 2, (*FENCED, timeout(2)), {
        "dispatch": dispatch_of(0, call(), epoch=3, action=Action.CALL)}),
    ("a second ToolCall was not rejected", 1, (call(), call()), {"verdict": Verdict.OPEN}),
    ("SETTLE for epoch 1 while 2 was live", 2, LATE, {"verdict": Verdict.SETTLE}),
    ("ESCALATE for incarnation 8", 1, (call(), timeout(1, incarnation=8)), {"verdict": Verdict.ESCALATE}),
    ("without a COMMIT", 2, LATE, {**COMMIT_1, "verdict": Verdict.REJECT}),
    ("without a COMMIT", 1, (call(), result(1)), {"verdict": Verdict.FENCE}),
    ("the commit changed", 4, CLEANED_UP, {"committed_epoch": 3}),
    ("the commit changed", 4, CLEANED_UP, NO_COMMIT),
    ("had committed already", 4, CLEANED_UP, {"verdict": Verdict.COMMIT, "committed_epoch": 3}),
    ("something else than an answer", 1, FENCED, {**COMMIT_1, "commit_seq": 2}),
    ("not what was said", 1, (call(), result(1)), {"committed_outcome": Outcome.FAILURE}),
    ("not what was said", 1, (call(), result(1)), {"commit_seq": 1}),
    ("not what was said", 1, (call(), result(1)), {"status": Status.INFLIGHT}),
    ("another payload", 1, (call(), result(1)), {"payload": b"seat 13 held"}),
    ("the outcome UNKNOWN committed", 1, (call(), result(1, Outcome.UNKNOWN)), {
        **COMMIT_1, "commit_seq": 2, "committed_outcome": Outcome.UNKNOWN, "payload": None}),
    ("in which no CALL was dispatched", 2, (*FENCED, result(2)), {**COMMIT_1, "committed_epoch": 2}),
    ("ghost write: SUCCESS of epoch 1", 2, LATE, COMMIT_1),
    ("takes back the effect that epoch 1 has committed", 2, (call(), result(1), timeout(1)), {
        "live_epoch": 2, "verdict": Verdict.FENCE, "reason": Reason.NONE, "dispatch": dispatch_of(1, *FENCED)}),
    ("something else than a clean-up", 3, LATE, {"verdict": Verdict.SETTLE}),
    ("something else than a clean-up", 4, (*LATE, compensation(2)), {"verdict": Verdict.SETTLE}),
    ("no commit owns was rejected and not flagged", 2, LATE, {"orphaned_effect": False}),
    ("was flagged before", 3, (*LATE[:3], result(1)), {"orphaned_effect": True}),
    ("is owned, open", 1, (call(), result(None)), {"orphaned_effect": True}),
    ("is owned, open", 2, (call(), result(1), result(1)), {"orphaned_effect": True}),
    ("not flagged", 1, (call(), result(1, incarnation=5)), {"orphaned_effect": False}),
    ("nothing asks for it", 2, LATE, {"unsettled": True}),
    ("is not known to be undone", 3, CLEANED_UP, {"unsettled": False}),
    ("nothing asks for it", 4, CLEANED_UP, {"unsettled": True}),
    ("is not known to be undone", 4, (*CLEANED_UP[:4], compensation(2)), {"unsettled": False}),
    ("no operator asked for it", 2, (call(max_epochs=2), timeout(1), timeout(2)), {
        "live_epoch": 3, "status": Status.COMPENSATING, "verdict": Verdict.FENCE,
        "dispatch": dispatch_of(2, *FENCED, timeout(2))}),
    ("escalated that has epochs left", 1, FENCED, {"verdict": Verdict.ESCALATE}),
    ("nobody is asked", 2, (call(max_epochs=2, orphans=Orphans.COMPENSATE), timeout(1), result(1)), {
        "status": Status.COMPENSATING}),
    ("the compensation key went from", 2, (*FENCED, timeout(2)), {
        "dispatch": dispatch_of(2, *FENCED, timeout(2), idempotency_key="7@0:compensate:2")}),
    ("the compensation key went from", 3, CLEANED_UP, {
        "dispatch": dispatch_of(3, *CLEANED_UP, idempotency_key="7@0:compensate")}),
    ("was not named", 4, (*LATE, compensation(2, execution_id="y")), {"reason": Reason.DUPLICATE}),
    ("nothing was compensated twice", 3, (*FENCED, compensation(2), compensation(2, execution_id="y", incarnation=9)), {
        "reason": Reason.DOUBLE_COMPENSATION}),
    ("nothing was compensated twice", 3, LATE, {"reason": Reason.DOUBLE_COMPENSATION}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("why", "number", "events", "changes"), RED, ids=[f"{n}-{red[0].replace(' ', '_')}" for n, red in enumerate(RED)]
)
def test_a_property_goes_red(why: str, number: int, events: tuple[Event, ...], changes: dict[str, Any]) -> None:
    assert any(why in said for said in doctored(number, *events, **changes)), doctored(number, *events, **changes)


def test_a_missing_decision_is_red() -> None:
    log = Log(*LATE)
    (failure,) = check(LATE, log.decisions[:-1])
    assert "4 events have 3 decisions" in failure.why


def test_a_cancelled_call_may_be_forgotten_and_opened() -> None:
    log = Log(parameters=Parameters(retention_ms=10))
    events = [timeout(1), call(call_id="8", occurred_at_ms=11), call(occurred_at_ms=11)]
    for event, timestamp_ms in zip(events, (0, 11, 11), strict=True):
        log.say(event, timestamp_ms)
    assert log.decisions[2].verdict is Verdict.OPEN
    assert check(events, log.decisions) == []


def test_a_body_that_is_too_large_for_the_partition_compensates_nothing() -> None:
    small, ok = call(arguments=None), compensation(2)
    events = (small, timeout(1), compensation(2, payload=b"12345", execution_id="y"), ok)
    decisions = Log(*events, parameters=Parameters(max_body_bytes=4)).decisions
    assert check(events, decisions, 4) == []
    (failure,) = check(events, decisions, 5)
    assert failure.why == "a second execution under one compensation key was not named"


def test_poison_must_be_named() -> None:
    decision = replace(Log(result(1)).decisions[0], orphaned_effect=False)
    assert [failure.why for failure in check([None], [decision])] == ["poison was not named UNDECODABLE"]


def test_every_property_has_an_example_that_is_red() -> None:
    """Leave a property out, and one of the examples above is no longer seen in the same way."""
    told = {rule: set() for rule in RULES}  # type: ignore[var-annotated]
    for rule in RULES:
        for _, number, events, changes in RED:
            decisions = Log(*events).decisions
            decisions[number] = replace(decisions[number], **changes)
            others = tuple(other for other in RULES if other is not rule)
            with pytest.MonkeyPatch.context() as patch:
                everything = check(events, decisions)
                patch.setattr("epochfence.simulation.properties.RULES", others)
                told[rule] |= set(everything) - set(check(events, decisions))
    assert [rule.__name__ for rule, failures in told.items() if not failures] == []


# ---- what is printed ---------------------------------------------------------------------------------------------


def test_a_report_has_four_lines() -> None:
    assert report(simulate(named("late_success_after_compensate"))) == [
        "TRACE late_success_after_compensate",
        "fenced=OPEN 7@0 live=1 INFLIGHT -> CALL | FENCE 7@0 live=2 COMPENSATING -> COMPENSATE"
        " | REJECT STALE_EPOCH 7@0 live=2 COMPENSATING orphaned_effect | COMMIT 7@0 live=2 COMMITTED committed=2",
        "naive_broken=True naive=7 OPEN | 7 RELEASED | 7 HELD ghost_write | 7 RELEASED",
        "PROPERTY OK",
    ]


def test_many_failures_are_told_in_one_line() -> None:
    trace = from_file("many", [named("happy_success").lines[0], *[b'{"type":"timeout","call_id":"7","epoch":1}'] * 7])
    run = simulate(trace, Control.NO_FENCE)
    assert len(run.failures) > MAX_FAILURES_TOLD
    (told,) = [line for line in report(run) if line.startswith("PROPERTY")]
    assert told.endswith(f"; and {len(run.failures) - MAX_FAILURES_TOLD} more")


def test_lines_that_are_no_events_are_told_with_their_reason() -> None:
    run = simulate(named("poison_between_events"))
    assert [number for number, _ in run.not_events] == [1, 2]
    assert "epoch is not a 64-bit integer" in run.not_events[1][1]
    assert report(run)[2] == "naive_broken=False naive=7 OPEN | - | - | 7 HELD"
    assert as_json(run)["not_events"][1] == {"line": 2, "why": run.not_events[1][1]}
