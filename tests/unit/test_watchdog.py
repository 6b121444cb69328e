"""The watchdog: which epochs it asks to end, and when. Seconds are its own monotonic clock."""

from epochfence.engine.watchdog import Watchdog
from epochfence.protocol.admission import Parameters
from epochfence.protocol.events import Compensation, Event, Input, Result, Timeout, ToolCall
from epochfence.protocol.partition import Partition
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Cause, Orphans, Outcome, Policy

TIMEOUT_MS = 1_000
GRACE_MS = 30_000
DUE_S = (TIMEOUT_MS + GRACE_MS) / 1000


def fold(*events: Event, timestamp_ms: int = 0) -> CallRecord:
    partition = Partition(Parameters())
    for offset, event in enumerate(events):
        at = Input("t", 0, offset, timestamp_ms, "")
        partition.decide(event, b"7", "7", True, at)
    return partition.calls["7"]


CALL = ToolCall("", "7", "reserve", None, "", TIMEOUT_MS, Policy.COMPENSATE, Orphans.COMPENSATE, 8, "gateway", "", 0)
TIMEOUT = Timeout("", "7", 1, None, Cause.DEADLINE, "", 0)
SUCCESS = Result("", "7", 1, 0, "x", Outcome.SUCCESS, b"", "", 0)
UNDONE = Compensation("", "7", 2, 0, "c", Outcome.OK, None, "", 0)


def watchdog(*records: CallRecord) -> Watchdog:
    return Watchdog(GRACE_MS, records, now_s=0.0)


def test_an_open_epoch_is_due_after_its_timeout_and_the_grace() -> None:
    dog = watchdog(fold(CALL))
    assert dog.due(DUE_S - 0.001, 0) == []
    assert [(r.call_id, r.live_epoch) for r in dog.due(DUE_S, 0)] == [("7", 1)]


def test_every_kind_of_open_epoch_is_watched_and_no_closed_one() -> None:
    assert watchdog(fold(CALL, TIMEOUT)).due(DUE_S, 0)  # COMPENSATING
    assert watchdog(fold(CALL, TIMEOUT, UNDONE, SUCCESS)).due(DUE_S, 0)  # a clean-up in flight
    assert not watchdog(fold(CALL, SUCCESS)).due(DUE_S, 0)
    assert not watchdog(fold(CALL, TIMEOUT, UNDONE)).due(DUE_S, 0)
    assert not watchdog(fold(TIMEOUT)).due(DUE_S, 0)  # CANCELLED


def test_an_escalated_call_is_a_persons() -> None:
    last = ToolCall("", "7", "reserve", None, "", TIMEOUT_MS, Policy.COMPENSATE, Orphans.REPORT, 2, "gateway", "", 0)
    escalated = fold(last, TIMEOUT, Timeout("", "7", 2, None, Cause.DEADLINE, "", 0))
    assert not watchdog(escalated).due(DUE_S, 0)


def test_it_asks_again_until_a_decision_is_seen() -> None:
    dog = watchdog(fold(CALL))
    assert dog.due(DUE_S, 0)
    assert dog.due(DUE_S + 1, 0) == []
    assert dog.due(DUE_S + GRACE_MS / 1000, 0)
    dog.observe([fold(CALL, SUCCESS)], now_s=DUE_S + 31)
    assert dog.due(DUE_S + 1_000, 0) == []


def test_a_raised_epoch_begins_anew() -> None:
    dog = watchdog(fold(CALL))
    dog.observe([fold(CALL, TIMEOUT)], now_s=20.0)
    assert dog.due(DUE_S, 0) == []
    assert [r.live_epoch for r in dog.due(20.0 + DUE_S, 0)] == [2]


def test_a_repeated_event_does_not_give_an_epoch_more_time() -> None:
    dog = watchdog(fold(CALL))
    dog.observe([fold(CALL, CALL)], now_s=30.0)
    assert dog.due(DUE_S, 0)


def test_stream_time_counts_if_it_is_more_but_never_before_the_grace() -> None:
    grace_s = GRACE_MS / 1000
    later_ms = 1_000_000 + TIMEOUT_MS + GRACE_MS
    in_a_backlog = watchdog(fold(CALL, timestamp_ms=1_000_000))
    assert in_a_backlog.due(grace_s - 0.001, later_ms) == []
    assert in_a_backlog.due(grace_s, later_ms)
    assert watchdog(fold(CALL, timestamp_ms=1_000_000)).due(grace_s, later_ms - 1) == []


def test_a_call_that_is_gone_is_not_asked_for() -> None:
    dog = watchdog(fold(CALL))
    dog.forget(["7"])
    assert dog.due(DUE_S, 0) == []


def test_a_clean_up_without_epochs_left_is_asked_for_once() -> None:
    """It ends in ESCALATE and stays in flight: asking again would only say so again, for ever."""
    two = ToolCall("", "7", "reserve", None, "", TIMEOUT_MS, Policy.COMPENSATE, Orphans.COMPENSATE, 3, "gateway", "", 0)
    dog = watchdog(fold(two, TIMEOUT, UNDONE, SUCCESS))
    assert [r.live_epoch for r in dog.due(DUE_S, 0)] == [3]
    assert dog.due(10 * DUE_S, 0) == []
