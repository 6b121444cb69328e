"""Every row of the table by example, with each boundary of its words: the row, and what a reader of decisions sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision, Dispatch
from epochfence.protocol.events import Event
from epochfence.protocol.fold import ROWS, ill_formed
from epochfence.protocol.vocabulary import Action, Cause, CommittedBy, Kind, Orphans, Outcome, Policy, Reason, Status
from tests.builders import HELD, Log, call, compensation, result, timeout

SUCCESS, FAILURE, UNKNOWN = Outcome.SUCCESS, Outcome.FAILURE, Outcome.UNKNOWN
OK, FAILED = Outcome.OK, Outcome.FAILED
SMALL = Parameters(max_body_bytes=32)
BIG = b"x" * 33

REPLAY = call(policy=Policy.REPLAY, idempotency_key="k")
CLEANER = call(orphans=Orphans.COMPENSATE)
TWO = call(max_epochs=2)
TWO_CLEANER = call(max_epochs=2, orphans=Orphans.COMPENSATE)

# Histories, named by how the call stands after them.
CANCELLED = [timeout(1)]
INFLIGHT = [call()]
SUSPECTED = [call(), result(None)]
COMPENSATING = [call(), timeout(1)]
COMMITTED_SUCCESS = [call(), result(1)]
COMMITTED_FAILURE = [call(), result(1, FAILURE)]
COMPENSATED = [call(), timeout(1), compensation(2)]
ESCALATED = [TWO, timeout(1), timeout(2)]
CLEANING_UP = [CLEANER, timeout(1), compensation(2), result(1)]  # committed in 2, clean-up in flight in 3
CLEANED_UP = [*CLEANING_UP, compensation(3)]
UNSETTLED_AT_THE_END = [TWO_CLEANER, timeout(1), compensation(2), result(1)]  # no epoch left for a clean-up


class Case(NamedTuple):
    row: int
    history: list[Event]
    event: Event
    said: str
    """Verdict and reason."""
    stands: str = ""
    """Status and live epoch after it."""
    more: dict[str, Any] = {}  # noqa: RUF012


def flagged(flag: bool = True) -> dict[str, Any]:
    return {"orphaned_effect": flag}


def committed(epoch: int, by: CommittedBy, outcome: Outcome, **more: Any) -> dict[str, Any]:
    return {"committed_epoch": epoch, "committed_by": by, "committed_outcome": outcome, **more}


def dispatches(action: Action, epoch: int, **more: Any) -> dict[str, Any]:
    return {"dispatch": {"action": action, "epoch": epoch, "incarnation": 0, **more}}


CALLS, UNDOES = Action.CALL, Action.COMPENSATE
BY_RESULT, BY_COMPENSATION = CommittedBy.RESULT, CommittedBy.COMPENSATION

CASES = [
    # 1: ToolCall, none
    Case(1, [], call(), "OPEN NONE", "INFLIGHT 1", {
        "call_seq": 1, "incarnation": 0, "epoch": None,
        **dispatches(CALLS, 1, tool="reserve", arguments=b"seat 12", runner="gateway", idempotency_key="7@0",
                     call_idempotency_key=None, evidence=None, timeout_ms=1000, attempt=1)}),
    Case(1, [], call(idempotency_key="k", runner="p", arguments=None), "OPEN NONE", "INFLIGHT 1",
         dispatches(CALLS, 1, idempotency_key="k", runner="p", arguments=None)),
    # 2: ToolCall, CANCELLED
    Case(2, CANCELLED, call(), "REJECT FENCED_BEFORE_OPEN", "CANCELLED 2", {"call_seq": 2, "incarnation": None}),
    Case(2, [*CANCELLED, call()], call(), "REJECT FENCED_BEFORE_OPEN", "CANCELLED 2", {"call_seq": 3}),
    # 3: ToolCall, same tool, arguments and idempotency_key; the rest may differ
    Case(3, INFLIGHT, call(), "REJECT DUPLICATE", "INFLIGHT 1", {"call_seq": 2, "dispatch": None}),
    Case(3, INFLIGHT, call(timeout_ms=2, max_epochs=3, runner="p", orphans=Orphans.COMPENSATE, event_id="other"),
         "REJECT DUPLICATE", "INFLIGHT 1"),
    Case(3, COMPENSATING, call(), "REJECT DUPLICATE", "COMPENSATING 2"),
    Case(3, ESCALATED, TWO, "REJECT DUPLICATE", "ESCALATED 2"),
    Case(3, COMMITTED_SUCCESS, call(), "REJECT DUPLICATE", "COMMITTED 1", committed(1, BY_RESULT, SUCCESS)),
    # 4: ToolCall, any
    Case(4, INFLIGHT, call(tool="cancel"), "REJECT CONFLICT", "INFLIGHT 1"),
    Case(4, INFLIGHT, call(arguments=b"seat 13"), "REJECT CONFLICT", "INFLIGHT 1"),
    Case(4, INFLIGHT, call(idempotency_key="k"), "REJECT CONFLICT", "INFLIGHT 1"),
    Case(4, [call(arguments=None)], call(arguments=b""), "REJECT CONFLICT", "INFLIGHT 1"),
    Case(4, [call(arguments=b"")], call(arguments=None), "REJECT CONFLICT", "INFLIGHT 1"),
    Case(4, [call(tool="ab", idempotency_key="c")], call(tool="a", idempotency_key="bc"), "REJECT CONFLICT"),
    Case(4, COMMITTED_SUCCESS, call(arguments=b"seat 13"), "REJECT CONFLICT", "COMMITTED 1"),
    # 5: Timeout, epoch 1, no incarnation, none
    Case(5, [], timeout(1), "FENCE FENCED_BEFORE_OPEN", "CANCELLED 2",
         {"call_seq": 1, "incarnation": None, "dispatch": None, "cause": Cause.DEADLINE, "epoch": 1}),
    Case(5, [], timeout(1, Cause.OPERATOR), "FENCE FENCED_BEFORE_OPEN", "CANCELLED 2"),
    # 6: ill-formed, none
    Case(6, [], timeout(None), "REJECT MALFORMED", "None 0", {"call_seq": 0, **flagged(False)}),
    Case(6, [], timeout(0), "REJECT MALFORMED", "None 0"),
    Case(6, [], result(None), "REJECT MALFORMED", "None 0", flagged()),
    Case(6, [], result(None, FAILURE), "REJECT MALFORMED", "None 0", flagged(False)),
    Case(6, [], result(1, payload=BIG), "REJECT OVERSIZED", "None 0", flagged()),
    Case(6, [], compensation(0), "REJECT MALFORMED", "None 0", flagged(False)),
    # 7: any, none
    Case(7, [], timeout(2), "REJECT UNKNOWN_CALL", "None 0", {"call_seq": 0, "incarnation": None}),
    Case(7, [], timeout(1, incarnation=0), "REJECT UNKNOWN_CALL", "None 0", flagged(False)),
    Case(7, [], result(1), "REJECT UNKNOWN_CALL", "None 0", {"execution_id": "x", "outcome": SUCCESS, **flagged()}),
    Case(7, [], result(1, UNKNOWN), "REJECT UNKNOWN_CALL", "None 0", flagged()),
    Case(7, [], result(1, FAILURE), "REJECT UNKNOWN_CALL", "None 0", flagged(False)),
    Case(7, [], compensation(1, UNKNOWN), "REJECT UNKNOWN_CALL", "None 0", flagged(False)),
    # 8: another incarnation; any Result or Compensation on CANCELLED
    Case(8, INFLIGHT, timeout(1, incarnation=9), "REJECT WRONG_INCARNATION", "INFLIGHT 1", {"call_seq": 2}),
    Case(8, INFLIGHT, result(1, incarnation=9), "REJECT WRONG_INCARNATION", "INFLIGHT 1", flagged()),
    Case(8, INFLIGHT, result(1, UNKNOWN, incarnation=-1), "REJECT WRONG_INCARNATION", "INFLIGHT 1", flagged()),
    Case(8, INFLIGHT, result(1, FAILURE, incarnation=9), "REJECT WRONG_INCARNATION", "INFLIGHT 1", flagged(False)),
    Case(8, INFLIGHT, result(None, incarnation=9), "REJECT WRONG_INCARNATION", "INFLIGHT 1", flagged()),
    Case(8, COMMITTED_SUCCESS, result(1, incarnation=9), "REJECT WRONG_INCARNATION", "COMMITTED 1", flagged()),
    Case(8, COMPENSATING, compensation(2, incarnation=9), "REJECT WRONG_INCARNATION", "COMPENSATING 2"),
    Case(8, CANCELLED, timeout(2, incarnation=0), "REJECT WRONG_INCARNATION", "CANCELLED 2"),
    Case(8, CANCELLED, result(2), "REJECT WRONG_INCARNATION", "CANCELLED 2", {"incarnation": None, **flagged()}),
    Case(8, CANCELLED, compensation(2), "REJECT WRONG_INCARNATION", "CANCELLED 2", flagged(False)),
    # 9: ill-formed, any
    Case(9, INFLIGHT, timeout(None), "REJECT MALFORMED", "INFLIGHT 1"),
    Case(9, INFLIGHT, timeout(0), "REJECT MALFORMED", "INFLIGHT 1"),
    Case(9, INFLIGHT, result(-1), "REJECT MALFORMED", "INFLIGHT 1", flagged(False)),
    Case(9, INFLIGHT, result(1, execution_id=""), "REJECT MALFORMED", "INFLIGHT 1"),
    Case(9, INFLIGHT, result(1, payload=None), "REJECT MALFORMED", "INFLIGHT 1"),
    Case(9, INFLIGHT, result(1, payload=BIG), "REJECT OVERSIZED", "INFLIGHT 1"),
    Case(9, INFLIGHT, result(None, payload=BIG), "REJECT MALFORMED", "INFLIGHT 1"),
    Case(9, INFLIGHT, result(1, execution_id="", payload=BIG), "REJECT MALFORMED", "INFLIGHT 1"),
    Case(9, INFLIGHT, result(1, FAILURE, payload=BIG), "REJECT OVERSIZED", "INFLIGHT 1"),
    Case(9, COMPENSATING, compensation(2, execution_id=""), "REJECT MALFORMED", "COMPENSATING 2"),
    Case(9, COMPENSATING, compensation(2, payload=BIG), "REJECT OVERSIZED", "COMPENSATING 2"),
    Case(9, COMPENSATING, result(None), "REJECT MALFORMED", "COMPENSATING 2", flagged()),
    Case(9, CANCELLED, timeout(None), "REJECT MALFORMED", "CANCELLED 2"),
    # 10: epoch > live
    Case(10, INFLIGHT, timeout(2), "REJECT FUTURE_EPOCH", "INFLIGHT 1"),
    Case(10, INFLIGHT, timeout(2**63 - 1), "REJECT FUTURE_EPOCH", "INFLIGHT 1"),
    Case(10, INFLIGHT, result(2), "REJECT FUTURE_EPOCH", "INFLIGHT 1", flagged(False)),
    Case(10, COMPENSATING, result(3), "REJECT FUTURE_EPOCH", "COMPENSATING 2", flagged()),
    Case(10, COMPENSATING, compensation(3), "REJECT FUTURE_EPOCH", "COMPENSATING 2"),
    Case(10, CANCELLED, timeout(3), "REJECT FUTURE_EPOCH", "CANCELLED 2"),
    # 11: epoch < live
    Case(11, COMPENSATING, timeout(1), "REJECT STALE_EPOCH", "COMPENSATING 2"),
    Case(11, COMPENSATING, timeout(1, Cause.OPERATOR), "REJECT STALE_EPOCH", "COMPENSATING 2"),
    Case(11, COMPENSATING, result(1), "REJECT STALE_EPOCH", "COMPENSATING 2", flagged()),
    Case(11, COMPENSATING, result(1, FAILURE), "REJECT STALE_EPOCH", "COMPENSATING 2", flagged(False)),
    Case(11, COMPENSATING, compensation(1), "REJECT STALE_EPOCH", "COMPENSATING 2"),
    Case(11, COMPENSATED, result(1), "REJECT STALE_EPOCH", "COMMITTED 2", flagged()),
    Case(11, CANCELLED, timeout(1), "REJECT STALE_EPOCH", "CANCELLED 2"),
    Case(11, ESCALATED, timeout(1, Cause.OPERATOR), "REJECT STALE_EPOCH", "ESCALATED 2"),
    # 12: Timeout, CANCELLED
    Case(12, CANCELLED, timeout(2), "REJECT CLOSED", "CANCELLED 2"),
    Case(12, CANCELLED, timeout(2, Cause.OPERATOR), "REJECT CLOSED", "CANCELLED 2"),
    # 13: Timeout, cause OPERATOR, ESCALATED or unsettled
    Case(13, ESCALATED, timeout(2, Cause.OPERATOR), "FENCE NONE", "COMPENSATING 3",
         dispatches(UNDOES, 3, idempotency_key="7@0:compensate", attempt=2)),
    Case(13, UNSETTLED_AT_THE_END, timeout(2, Cause.OPERATOR), "FENCE NONE", "COMMITTED 3",
         {"unsettled": True, **dispatches(UNDOES, 3, idempotency_key="7@0:compensate:2")}),
    Case(13, CLEANING_UP, timeout(3, Cause.OPERATOR), "FENCE NONE", "COMMITTED 4",
         {"unsettled": True, **dispatches(UNDOES, 4, idempotency_key="7@0:compensate:2", attempt=3)}),
    # 14: Timeout, COMMITTED, no clean-up in flight
    Case(14, COMMITTED_SUCCESS, timeout(1), "REJECT ALREADY_COMMITTED", "COMMITTED 1"),
    Case(14, COMMITTED_SUCCESS, timeout(1, Cause.OPERATOR), "REJECT ALREADY_COMMITTED", "COMMITTED 1"),
    Case(14, COMPENSATED, timeout(2, Cause.WATCHDOG), "REJECT ALREADY_COMMITTED", "COMMITTED 2"),
    Case(14, CLEANED_UP, timeout(3), "REJECT ALREADY_COMMITTED", "COMMITTED 3", committed(2, BY_COMPENSATION, OK)),
    Case(14, UNSETTLED_AT_THE_END, timeout(2), "REJECT ALREADY_COMMITTED", "COMMITTED 2", {"unsettled": True}),
    # 15: Timeout, live = max_epochs or more
    Case(15, [TWO, timeout(1)], timeout(2), "ESCALATE EPOCHS_EXHAUSTED", "ESCALATED 2", {"dispatch": None}),
    Case(15, [TWO, timeout(1)], timeout(2, Cause.OPERATOR), "ESCALATE EPOCHS_EXHAUSTED", "ESCALATED 2"),
    Case(15, ESCALATED, timeout(2, Cause.WATCHDOG), "ESCALATE EPOCHS_EXHAUSTED", "ESCALATED 2"),
    Case(15, [*ESCALATED, timeout(2, Cause.OPERATOR)], timeout(3), "ESCALATE EPOCHS_EXHAUSTED", "ESCALATED 3"),
    Case(15, [*UNSETTLED_AT_THE_END, timeout(2, Cause.OPERATOR)], timeout(3), "ESCALATE EPOCHS_EXHAUSTED",
         "COMMITTED 3", {"unsettled": True, **committed(2, BY_COMPENSATION, OK)}),
    # 16: Timeout, DEADLINE or WATCHDOG; INFLIGHT, REPLAY, live + 2 <= max_epochs
    Case(16, [REPLAY], timeout(1), "FENCE NONE", "INFLIGHT 2",
         dispatches(CALLS, 2, idempotency_key="k", runner="gateway", attempt=2, evidence=None)),
    Case(16, [REPLAY], timeout(1, Cause.WATCHDOG, incarnation=0), "FENCE NONE", "INFLIGHT 2", dispatches(CALLS, 2)),
    Case(16, [call(policy=Policy.REPLAY, idempotency_key="k", max_epochs=3)], timeout(1), "FENCE NONE", "INFLIGHT 2"),
    # 17: Timeout, any
    Case(17, INFLIGHT, timeout(1), "FENCE NONE", "COMPENSATING 2",
         dispatches(UNDOES, 2, tool="reserve", arguments=b"seat 12", runner=None, idempotency_key="7@0:compensate",
                    call_idempotency_key="7@0", evidence=None, timeout_ms=1000, attempt=1)),
    Case(17, [call(idempotency_key="k")], timeout(1), "FENCE NONE", "COMPENSATING 2",
         dispatches(UNDOES, 2, idempotency_key="7@0:compensate", call_idempotency_key="k")),
    Case(17, [REPLAY], timeout(1, Cause.CANCELLED), "FENCE NONE", "COMPENSATING 2", dispatches(UNDOES, 2)),
    Case(17, [REPLAY], timeout(1, Cause.OPERATOR), "FENCE NONE", "COMPENSATING 2", dispatches(UNDOES, 2)),
    Case(17, [call(policy=Policy.REPLAY, idempotency_key="k", max_epochs=3), timeout(1)], timeout(2), "FENCE NONE",
         "COMPENSATING 3", dispatches(UNDOES, 3, attempt=1)),
    Case(17, [call(policy=Policy.REPLAY, idempotency_key="k", max_epochs=2)], timeout(1), "FENCE NONE",
         "COMPENSATING 2"),
    Case(17, COMPENSATING, timeout(2), "FENCE NONE", "COMPENSATING 3",
         dispatches(UNDOES, 3, idempotency_key="7@0:compensate", attempt=2)),
    Case(17, CLEANING_UP, timeout(3), "FENCE NONE", "COMMITTED 4",
         {"unsettled": True, **dispatches(UNDOES, 4, idempotency_key="7@0:compensate:2")}),
    # 18: Result, live epoch is a COMPENSATION
    Case(18, COMPENSATING, result(2), "REJECT WRONG_SPEAKER", "COMPENSATING 2", flagged()),
    Case(18, COMPENSATING, result(2, FAILURE), "REJECT WRONG_SPEAKER", "COMPENSATING 2", flagged(False)),
    Case(18, COMPENSATED, result(2), "REJECT WRONG_SPEAKER", "COMMITTED 2", flagged()),
    Case(18, ESCALATED, result(2, UNKNOWN), "REJECT WRONG_SPEAKER", "ESCALATED 2", flagged()),
    # 19: Compensation, live epoch is a CALL
    Case(19, INFLIGHT, compensation(1), "REJECT WRONG_SPEAKER", "INFLIGHT 1"),
    Case(19, COMMITTED_SUCCESS, compensation(1), "REJECT WRONG_SPEAKER", "COMMITTED 1"),
    Case(19, COMMITTED_SUCCESS, compensation(1, FAILED), "REJECT WRONG_SPEAKER", "COMMITTED 1"),
    # 20: Result, COMMITTED, same outcome and payload
    Case(20, COMMITTED_SUCCESS, result(1), "REJECT DUPLICATE", "COMMITTED 1", {"payload": None, **flagged(False)}),
    Case(20, COMMITTED_SUCCESS, result(1, execution_id="y"), "REJECT DUPLICATE", "COMMITTED 1", flagged(False)),
    Case(20, COMMITTED_FAILURE, result(1, FAILURE), "REJECT DUPLICATE", "COMMITTED 1"),
    # 21: Result, COMMITTED
    Case(21, COMMITTED_SUCCESS, result(1, payload=b""), "REJECT CONFLICT", "COMMITTED 1", flagged(False)),
    Case(21, COMMITTED_SUCCESS, result(1, UNKNOWN), "REJECT CONFLICT", "COMMITTED 1", flagged(False)),
    Case(21, COMMITTED_SUCCESS, result(1, FAILURE), "REJECT CONFLICT", "COMMITTED 1", flagged(False)),
    Case(21, COMMITTED_FAILURE, result(1, FAILURE, payload=b""), "REJECT CONFLICT", "COMMITTED 1", flagged(False)),
    Case(21, COMMITTED_FAILURE, result(1), "REJECT CONFLICT", "COMMITTED 1", {"dispatch": None, **flagged()}),
    Case(21, [CLEANER, result(1, FAILURE)], result(1), "REJECT CONFLICT", "COMMITTED 2",
         {"unsettled": True, **flagged(), **committed(1, BY_RESULT, FAILURE),
          **dispatches(UNDOES, 2, idempotency_key="7@0:compensate", evidence=HELD, attempt=1)}),
    # 22: Result UNKNOWN; or FAILURE with epoch > 1 or on a suspected record; INFLIGHT
    Case(22, INFLIGHT, result(1, UNKNOWN), "FENCE OUTCOME_UNKNOWN", "COMPENSATING 2",
         {"committed_epoch": None, **flagged(False), **dispatches(UNDOES, 2, evidence=None)}),
    Case(22, INFLIGHT, result(1, UNKNOWN, payload=b"?"), "FENCE OUTCOME_UNKNOWN", "COMPENSATING 2",
         dispatches(UNDOES, 2, evidence=b"?")),
    Case(22, SUSPECTED, result(1, FAILURE, payload=b"!"), "FENCE OUTCOME_UNKNOWN", "COMPENSATING 2",
         dispatches(UNDOES, 2, evidence=HELD)),
    Case(22, [REPLAY], result(1, UNKNOWN), "FENCE OUTCOME_UNKNOWN", "INFLIGHT 2", dispatches(CALLS, 2, attempt=2)),
    Case(22, [REPLAY, timeout(1)], result(2, FAILURE), "FENCE OUTCOME_UNKNOWN", "INFLIGHT 3", dispatches(CALLS, 3)),
    Case(22, [call(policy=Policy.REPLAY, idempotency_key="k", max_epochs=3), timeout(1)], result(2, FAILURE),
         "FENCE OUTCOME_UNKNOWN", "COMPENSATING 3", dispatches(UNDOES, 3)),
    # 23: Result SUCCESS or FAILURE, INFLIGHT
    Case(23, INFLIGHT, result(1), "COMMIT NONE", "COMMITTED 1",
         {"payload": HELD, "commit_seq": 2, **committed(1, BY_RESULT, SUCCESS), "dispatch": None}),
    Case(23, INFLIGHT, result(1, payload=b""), "COMMIT NONE", "COMMITTED 1", {"payload": b""}),
    Case(23, INFLIGHT, result(1, payload=b"x" * 32), "COMMIT NONE", "COMMITTED 1"),
    Case(23, INFLIGHT, result(1, FAILURE), "COMMIT NONE", "COMMITTED 1",
         {"payload": None, **committed(1, BY_RESULT, FAILURE)}),
    Case(23, INFLIGHT, result(1, FAILURE, payload=b"sold out"), "COMMIT NONE", "COMMITTED 1", {"payload": b"sold out"}),
    Case(23, SUSPECTED, result(1), "COMMIT NONE", "COMMITTED 1"),
    Case(23, [REPLAY, timeout(1)], result(2), "COMMIT NONE", "COMMITTED 2", committed(2, BY_RESULT, SUCCESS)),
    # 24: Compensation, the live epoch is done
    Case(24, COMPENSATED, compensation(2), "REJECT DUPLICATE", "COMMITTED 2", committed(2, BY_COMPENSATION, OK)),
    Case(24, COMPENSATED, compensation(2, FAILED), "REJECT DUPLICATE", "COMMITTED 2"),
    Case(24, CLEANED_UP, compensation(3), "REJECT DUPLICATE", "COMMITTED 3"),
    Case(24, UNSETTLED_AT_THE_END, compensation(2), "REJECT DUPLICATE", "COMMITTED 2", {"unsettled": True}),
    # 25: Compensation OK, COMPENSATING or ESCALATED
    Case(25, COMPENSATING, compensation(2), "COMMIT NONE", "COMMITTED 2",
         {"payload": None, "commit_seq": 3, **committed(2, BY_COMPENSATION, OK)}),
    Case(25, COMPENSATING, compensation(2, payload=b"done"), "COMMIT NONE", "COMMITTED 2", {"payload": None}),
    Case(25, ESCALATED, compensation(2), "COMMIT NONE", "COMMITTED 2", committed(2, BY_COMPENSATION, OK)),
    # 26: Compensation OK, a clean-up in flight
    Case(26, CLEANING_UP, compensation(3), "SETTLE NONE", "COMMITTED 3",
         {"unsettled": False, **committed(2, BY_COMPENSATION, OK, commit_seq=3)}),
    # 27: Compensation, any
    Case(27, COMPENSATING, compensation(2, FAILED), "FENCE COMPENSATION_FAILED", "COMPENSATING 3",
         dispatches(UNDOES, 3, idempotency_key="7@0:compensate", attempt=2)),
    Case(27, COMPENSATING, compensation(2, UNKNOWN), "FENCE COMPENSATION_FAILED", "COMPENSATING 3"),
    Case(27, CLEANING_UP, compensation(3, FAILED), "FENCE COMPENSATION_FAILED", "COMMITTED 4",
         {"unsettled": True, **dispatches(UNDOES, 4, idempotency_key="7@0:compensate:2")}),
    Case(27, [TWO, timeout(1)], compensation(2, FAILED), "ESCALATE EPOCHS_EXHAUSTED", "ESCALATED 2"),
    Case(27, ESCALATED, compensation(2, UNKNOWN), "ESCALATE EPOCHS_EXHAUSTED", "ESCALATED 2", {"dispatch": None}),
    Case(27, [*UNSETTLED_AT_THE_END, timeout(2, Cause.OPERATOR)], compensation(3, FAILED),
         "ESCALATE EPOCHS_EXHAUSTED", "COMMITTED 3", {"unsettled": True}),
]  # fmt: skip


def _id(case: Case) -> str:
    return f"{case.row}-{type(case.event).__name__}-{case.said}-{case.stands}".replace(" ", "_")


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_row(case: Case) -> None:
    log = Log(*case.history, parameters=SMALL)
    decision = log.say(case.event)
    assert log.row == case.row
    assert f"{decision.verdict} {decision.reason}" == case.said
    if case.stands:
        assert f"{decision.status} {decision.live_epoch}" == case.stands
    for name, wanted in case.more.items():
        if name == "dispatch" and wanted is not None:
            _assert_dispatch(decision.dispatch, wanted)
        else:
            assert getattr(decision, name) == wanted, name
    if "dispatch" not in case.more and decision.verdict not in ("OPEN", "FENCE"):
        assert decision.dispatch is None


def _assert_dispatch(dispatch: Dispatch | None, wanted: dict[str, Any]) -> None:
    assert dispatch is not None
    assert {name: getattr(dispatch, name) for name in wanted} == wanted


def test_every_row_has_an_example() -> None:
    assert {case.row for case in CASES} == {row.number for row in ROWS} == set(range(1, 28))


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_a_decision_tells_what_was_said_and_where(case: Case) -> None:
    log = Log(*case.history, parameters=SMALL)
    decision = log.say(case.event, timestamp_ms=5)
    event = case.event
    assert decision.seq == len(case.history) + 1
    assert decision.call_id == "7"
    assert decision.epoch == getattr(event, "epoch", None)
    assert decision.outcome == getattr(event, "outcome", None)
    assert decision.cause == getattr(event, "cause", None)
    assert decision.execution_id == getattr(event, "execution_id", None)
    assert decision.event.replace("_", "").lower() == type(event).__name__.lower()
    assert (decision.input.offset, decision.input.timestamp_ms) == (len(case.history), 5)
    assert decision.rules_version == 1


# ---- orphans, evidence, keys, double compensation: the prose under the table -------------------------------------


def test_an_orphan_is_flagged_once_for_each_execution_and_outcome() -> None:
    log = Log(*COMPENSATED)
    flags = [
        log.say(event).orphaned_effect
        for event in (
            result(1),
            result(1),
            result(1, UNKNOWN),
            result(1, UNKNOWN),
            result(1, execution_id="y"),
            result(2),  # the same execution under another row
        )
    ]
    assert flags == [True, False, True, False, True, False]


def test_32_orphans_are_remembered_and_the_first_seen_is_forgotten_first() -> None:
    log = Log(*COMPENSATED)
    for number in range(32):
        assert log.say(result(1, execution_id=str(number))).orphaned_effect
    assert not log.say(result(1, execution_id="0")).orphaned_effect
    assert log.say(result(1, execution_id="32")).orphaned_effect
    assert not log.say(result(1, execution_id="1")).orphaned_effect
    assert log.say(result(1, execution_id="0")).orphaned_effect


def test_what_made_an_inflight_call_suspected_is_flagged_when_it_comes_again_after_the_fence() -> None:
    log = Log(call(), result(None), timeout(1))
    assert log.decisions[1].orphaned_effect is False
    assert log.say(result(1)).orphaned_effect is True


@pytest.mark.parametrize("said", [result(None), result(2), result(1, execution_id=""), result(1, payload=BIG)])
def test_every_orphan_row_on_an_inflight_call_makes_it_suspected(said: Event) -> None:
    log = Log(call(), said, parameters=SMALL)
    assert log.record.suspected
    assert log.say(result(1, FAILURE)).reason is Reason.OUTCOME_UNKNOWN


@pytest.mark.parametrize("said", [result(None, FAILURE), result(1, incarnation=3), compensation(None), timeout(None)])
def test_what_tells_of_no_effect_of_this_call_makes_it_not_suspected(said: Event) -> None:
    log = Log(call(), said)
    assert not log.record.suspected
    assert log.say(result(1, FAILURE)).verdict == "COMMIT"


def test_an_orphan_while_compensating_raises_at_once_under_the_next_key_and_settles_there() -> None:
    log = Log(CLEANER, timeout(1))
    orphan = log.say(result(1))
    assert (orphan.reason, orphan.unsettled, orphan.status) == (Reason.STALE_EPOCH, True, Status.COMPENSATING)
    _assert_dispatch(orphan.dispatch, {"epoch": 3, "idempotency_key": "7@0:compensate:2", "evidence": HELD})
    assert log.say(compensation(2)).reason is Reason.STALE_EPOCH
    done = log.say(compensation(3))
    assert (done.verdict, done.unsettled, done.committed_epoch) == ("COMMIT", False, 3)


def test_an_orphan_with_no_epoch_left_escalates_a_call_that_is_not_committed() -> None:
    log = Log(TWO_CLEANER, timeout(1))
    orphan = log.say(result(1))
    assert (orphan.verdict, orphan.status, orphan.unsettled, orphan.dispatch) == ("REJECT", "ESCALATED", True, None)
    done = log.say(compensation(2))  # an OK of an epoch raised before the orphan: commits, does not settle
    assert (done.verdict, done.status, done.unsettled) == ("COMMIT", "COMMITTED", True)
    assert log.record.closed_at_ms is None
    again = log.say(timeout(2, Cause.OPERATOR))
    _assert_dispatch(again.dispatch, {"epoch": 3, "idempotency_key": "7@0:compensate:2"})
    settled = log.say(compensation(3))
    assert (settled.verdict, settled.unsettled) == ("SETTLE", False)


def test_an_orphan_during_a_clean_up_raises_again_and_only_its_own_epoch_settles() -> None:
    log = Log(*CLEANING_UP)
    newer = log.say(result(1, execution_id="y"))
    _assert_dispatch(newer.dispatch, {"epoch": 4, "idempotency_key": "7@0:compensate:3"})
    assert log.say(compensation(3)).unsettled
    assert not log.say(compensation(4)).unsettled


def test_retries_repeat_the_key_that_an_orphan_made_necessary() -> None:
    log = Log(*CLEANING_UP)
    for epoch in (3, 4):
        retry = log.say(compensation(epoch, FAILED))
        _assert_dispatch(retry.dispatch, {"idempotency_key": "7@0:compensate:2"})


def test_a_reported_orphan_changes_no_key() -> None:
    log = Log(*COMPENSATING, result(1))
    _assert_dispatch(log.say(timeout(2)).dispatch, {"idempotency_key": "7@0:compensate", "evidence": HELD})


def test_evidence_is_the_newest_payload_that_told_of_an_effect_and_fits() -> None:
    log = Log(
        call(),
        result(None, payload=b"first"),
        result(2, UNKNOWN, payload=b"second"),
        result(2, UNKNOWN),  # no payload: nothing newer
        result(2, payload=BIG),  # over the limit: passed by
        result(2, FAILURE, payload=b"no effect"),
        parameters=SMALL,
    )
    _assert_dispatch(log.say(timeout(1)).dispatch, {"evidence": b"second"})
    log.say(result(1, payload=b"third"))
    log.say(result(1, payload=b"third again"))  # flagged before, newer all the same
    _assert_dispatch(log.say(timeout(2)).dispatch, {"evidence": b"third again"})


def test_evidence_of_exactly_the_limit_is_kept() -> None:
    log = Log(call(), result(2, payload=b"x" * 32), parameters=SMALL)
    _assert_dispatch(log.say(timeout(1)).dispatch, {"evidence": b"x" * 32})


def double(decision: Decision) -> bool:
    return decision.reason is Reason.DOUBLE_COMPENSATION


def test_double_compensation_keeps_the_verdict_whichever_it_is() -> None:
    log = Log(*COMPENSATING, compensation(2, execution_id="a"))
    second = log.say(compensation(2, execution_id="b"))
    assert (second.verdict, second.reason) == ("REJECT", Reason.DOUBLE_COMPENSATION)
    log = Log(*COMPENSATING, timeout(2), compensation(2, execution_id="a"))
    assert log.decisions[-1].reason is Reason.STALE_EPOCH
    live = log.say(compensation(3, execution_id="b"))
    assert (live.verdict, live.reason, live.committed_epoch) == ("COMMIT", Reason.DOUBLE_COMPENSATION, 3)
    log = Log(*CLEANING_UP, timeout(3), compensation(3, execution_id="a"))
    settles = log.say(compensation(4, execution_id="b"))
    assert (settles.verdict, settles.reason) == ("SETTLE", Reason.DOUBLE_COMPENSATION)


@pytest.mark.parametrize(
    ("said", "is_double"),
    [
        (compensation(2, execution_id="b"), True),
        (compensation(3, execution_id="b"), True),
        (compensation(2, execution_id="a"), False),  # a skip repeats the execution it was done under
        (compensation(2, FAILED, execution_id="b"), False),
        (compensation(2, UNKNOWN, execution_id="b"), False),
        (compensation(1, execution_id="b"), False),  # epoch 1 carried no compensation key
        (compensation(4, execution_id="b"), False),  # nor has a future one
        (compensation(2, execution_id="b", incarnation=5), False),
        (compensation(2, execution_id=""), False),
        (compensation(None, execution_id="b"), False),
        (compensation(2, execution_id="b", payload=BIG), False),
    ],
)
def test_only_a_well_formed_ok_under_the_current_key_is_a_double(said: Event, is_double: bool) -> None:
    log = Log(*COMPENSATING, timeout(2), compensation(2, execution_id="a"), parameters=SMALL)
    assert double(log.say(said)) is is_double


def test_what_is_no_well_formed_ok_under_the_key_is_not_the_first() -> None:
    log = Log(*COMPENSATING, parameters=SMALL)
    for said in (compensation(2, payload=BIG, execution_id="a"), compensation(3, execution_id="a")):
        log.say(said)
    log.say(compensation(2, FAILED, execution_id="a"))
    assert not double(log.say(compensation(3, execution_id="b")))


def test_the_next_key_starts_anew_and_the_old_one_is_not_looked_at_any_more() -> None:
    log = Log(*CLEANING_UP)  # epoch 2 under the first key answered as x, epoch 3 carries the second
    assert not double(log.say(compensation(2, execution_id="z")))
    assert not double(log.say(compensation(3, execution_id="b")))
    assert double(log.say(compensation(3, execution_id="c")))


def test_a_call_epoch_never_follows_a_compensation_epoch() -> None:
    log = Log(REPLAY, timeout(1, Cause.CANCELLED))
    assert log.record.kind is Kind.COMPENSATION
    for epoch in range(2, 8):
        assert log.say(timeout(epoch)).dispatch is None or log.decisions[-1].dispatch.action is UNDOES  # type: ignore[union-attr]
    assert log.decisions[-1].status is Status.COMPENSATING
    assert log.say(timeout(8)).status is Status.ESCALATED


def test_arguments_are_dropped_when_the_call_closes_unless_an_orphan_may_need_them() -> None:
    assert Log(*COMMITTED_SUCCESS).record.arguments is None
    assert Log(*COMPENSATED).record.arguments is None
    assert Log(*COMPENSATING).record.arguments == b"seat 12"
    assert Log(CLEANER, result(1)).record.arguments == b"seat 12"
    _assert_dispatch(Log(*CLEANING_UP).decisions[-1].dispatch, {"arguments": b"seat 12"})


def test_a_replay_is_sent_with_the_same_arguments_key_and_runner() -> None:
    log = Log(call(policy=Policy.REPLAY, idempotency_key="k", runner="p"), timeout(1))
    wanted = {"arguments": b"seat 12", "idempotency_key": "k", "runner": "p", "epoch": 2, "attempt": 2}
    _assert_dispatch(log.decisions[-1].dispatch, wanted)


def test_the_live_epoch_begins_with_the_event_that_raised_it() -> None:
    log = Log()
    for event, timestamp_ms in ((call(), 1), (call(), 2), (timeout(1), 3), (timeout(1), 4)):
        log.say(event, timestamp_ms)
    assert (log.record.opened_at_ms, log.record.live_since_ms) == (1, 3)


def test_a_tool_call_is_never_ill_formed() -> None:
    assert ill_formed(call(arguments=BIG), 0) is None
