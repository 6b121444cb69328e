"""One partition: stream time, forgetting, parameters, and the way back."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from epochfence.protocol.admission import Parameters
from epochfence.protocol.events import Event, Input, ToolCall
from epochfence.protocol.partition import Partition
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Cause, Orphans, Outcome, Reason, Verdict
from tests.builders import call, compensation, result, timeout

RETENTION_MS = 100


def say(partition: Partition, event: Event | None, timestamp_ms: int = 0, **more: Any) -> Any:
    at = Input("epochfence.x", 0, partition.seq, timestamp_ms, "")
    call_id = "" if event is None else event.call_id
    if type(event) is ToolCall:
        event = replace(event, occurred_at_ms=timestamp_ms)  # sent just now
    return partition.decide(event, call_id.encode(), call_id, True, at, **more)


def transaction(partition: Partition, *events: tuple[Event | None, int], now_ms: int | None = None) -> Any:
    for event, timestamp_ms in events:
        say(partition, event, timestamp_ms)
    ended = partition.end_transaction(now_ms)
    partition.commit()
    return ended


def state(partition: Partition) -> Any:
    """Everything that a transaction may change."""
    return copy.deepcopy(
        (partition.seq, partition.stream_time_ms, partition.parameters, partition.calls, list(partition._closed))
    )


@pytest.fixture
def partition() -> Partition:
    return Partition(Parameters(retention_ms=RETENTION_MS))


# ---- stream time -------------------------------------------------------------------------------------------------


def test_stream_time_starts_at_0_and_is_the_largest_timestamp_decided(partition: Partition) -> None:
    assert partition.stream_time_ms == 0
    transaction(partition, (call(), 5), (timeout(1), 9), (result(1), 7))
    assert partition.stream_time_ms == 9


def test_stream_time_never_falls_and_never_passes_the_processors_clock(partition: Partition) -> None:
    transaction(partition, (call(), 50), now_ms=40)
    assert partition.stream_time_ms == 40
    transaction(partition, (timeout(1), 30), now_ms=1000)
    assert partition.stream_time_ms == 40
    transaction(partition, (timeout(1), 2000), now_ms=20)  # a clock that was set back
    assert partition.stream_time_ms == 40
    transaction(partition, (timeout(1), -5))
    assert partition.stream_time_ms == 40


def test_stream_time_is_not_moved_before_the_end_nor_by_an_empty_transaction(partition: Partition) -> None:
    say(partition, call(), 9)
    assert partition.stream_time_ms == 0
    partition.end_transaction(None)
    partition.commit()
    transaction(partition)
    assert partition.stream_time_ms == 9


def test_rejected_and_undecodable_inputs_count_for_stream_time_unless_they_are_said_not_to(
    partition: Partition,
) -> None:
    transaction(partition, (call(tool=""), 5))
    assert partition.stream_time_ms == 5
    transaction(partition, (None, 8))
    assert partition.stream_time_ms == 8
    say(partition, None, 99, counts_for_stream_time=False)
    partition.end_transaction(None)
    assert partition.stream_time_ms == 8


# ---- stamps and forgetting ---------------------------------------------------------------------------------------


def test_the_stamp_is_the_stream_time_at_the_end_of_the_transaction_in_which_it_closed(partition: Partition) -> None:
    ended = transaction(partition, (call(), 1), (result(1), 2), (call(call_id="8"), 30))
    assert ended.changed["7"].closed_at_ms == partition.calls["7"].closed_at_ms == 30
    assert partition.calls["8"].closed_at_ms is None
    assert ended.forgotten == []


def test_a_later_event_on_a_closed_call_does_not_stamp_it_again(partition: Partition) -> None:
    transaction(partition, (call(), 1), (result(1), 2))
    transaction(partition, (timeout(1), 50))
    assert partition.calls["7"].closed_at_ms == 2
    assert transaction(partition, (call(call_id="8"), 103)).forgotten == ["7"]


def test_it_is_forgotten_when_more_than_the_retention_has_passed(partition: Partition) -> None:
    transaction(partition, (call(), 0), (result(1), 10))
    assert transaction(partition, (call(call_id="8"), 10 + RETENTION_MS)).forgotten == []
    ended = transaction(partition, (call(call_id="9"), 10 + RETENTION_MS + 1))
    assert ended.forgotten == ["7"]
    assert "7" not in ended.changed
    assert set(partition.calls) == {"8", "9"}
    decision = say(partition, result(1))
    assert (decision.reason, decision.call_seq, decision.orphaned_effect) == (Reason.UNKNOWN_CALL, 0, True)


def test_the_call_whose_event_moved_the_time_is_still_known_within_its_transaction(partition: Partition) -> None:
    transaction(partition, (call(), 0), (result(1), 0))
    say(partition, call(call_id="8"), 1000)
    assert say(partition, result(1), 1000).reason is Reason.DUPLICATE
    ended = partition.end_transaction(None)
    assert ended.forgotten == ["7"]
    assert set(ended.changed) == {"8"}


def test_a_cancelled_call_is_closed_and_forgotten(partition: Partition) -> None:
    transaction(partition, (timeout(1), 5))
    assert partition.calls["7"].closed_at_ms == 5
    assert transaction(partition, (None, 106)).forgotten == ["7"]
    assert say(partition, call()).verdict is Verdict.OPEN


@pytest.mark.parametrize(
    "history",
    [
        [call()],
        [call(), timeout(1)],
        [call(max_epochs=2), timeout(1), timeout(2)],
        [call(orphans=Orphans.COMPENSATE), timeout(1), compensation(2), result(1)],
        [call(orphans=Orphans.COMPENSATE, max_epochs=2), timeout(1), compensation(2), result(1)],
    ],
    ids=["inflight", "compensating", "escalated", "clean-up in flight", "unsettled"],
)
def test_what_is_open_is_never_forgotten(partition: Partition, history: list[Event]) -> None:
    for event in history:
        transaction(partition, (event, 0))
    assert partition.calls["7"].closed_at_ms is None
    assert transaction(partition, (None, 10**15)).forgotten == []
    assert "7" in partition.calls


def test_a_call_that_was_reopened_by_an_orphan_is_stamped_when_it_closes_again(partition: Partition) -> None:
    for event in (call(orphans=Orphans.COMPENSATE), timeout(1), compensation(2)):
        transaction(partition, (event, 0))
    assert partition.calls["7"].closed_at_ms == 0
    transaction(partition, (result(1), 20))
    assert partition.calls["7"].closed_at_ms is None
    assert transaction(partition, (call(call_id="8"), 101)).forgotten == []  # the old stamp is worth nothing
    transaction(partition, (compensation(3), 110))
    assert partition.calls["7"].closed_at_ms == 110
    assert transaction(partition, (None, 210)).forgotten == []
    assert transaction(partition, (None, 211)).forgotten == ["7"]


def test_closed_and_opened_and_closed_in_one_transaction_is_one_stamp(partition: Partition) -> None:
    history = (call(orphans=Orphans.COMPENSATE), timeout(1), compensation(2), result(1), compensation(3))
    transaction(partition, *((event, 7) for event in history))
    assert partition.calls["7"].closed_at_ms == 7
    assert list(partition._closed) == [(7, "7")]


def test_two_closings_at_one_stream_time_are_forgotten_once(partition: Partition) -> None:
    history = (call(orphans=Orphans.COMPENSATE), timeout(1), compensation(2), result(1), compensation(3))
    for event in history:
        transaction(partition, (event, 7))
    assert transaction(partition, (None, 108)).forgotten == ["7"]
    assert list(partition._closed) == []


def test_several_are_forgotten_oldest_first_and_one_wrong_clock_forgets_nothing(partition: Partition) -> None:
    for call_id, ms in (("a", 1), ("b", 2), ("c", 50)):
        transaction(partition, (call(call_id=call_id), ms), (result(1, call_id=call_id, incarnation=partition.seq), ms))
    assert transaction(partition, (None, 10**15), now_ms=60).forgotten == []
    assert transaction(partition, (None, 0), now_ms=10**6).forgotten == []
    assert transaction(partition, (None, 105), now_ms=10**6).forgotten == ["a", "b"]


# ---- parameters --------------------------------------------------------------------------------------------------


def test_new_parameters_are_in_force_after_the_transaction_that_brings_them(partition: Partition) -> None:
    transaction(partition, (call(), 0), (result(1), 0))
    longer = Parameters(retention_ms=10_000, max_body_bytes=4)
    assert say(partition, result(1, call_id="8", payload=b"12345"), 101).reason is Reason.UNKNOWN_CALL
    ended = partition.end_transaction(None, longer)
    partition.commit()
    assert ended.forgotten == ["7"], "forgetting at the end of the transaction uses the parameters of before"
    assert partition.parameters == longer
    assert say(partition, result(1, call_id="8", payload=b"12345"), 101).reason is Reason.OVERSIZED


def test_an_undone_transaction_did_not_change_the_parameters(partition: Partition) -> None:
    before = partition.parameters
    say(partition, call(), 5)
    partition.end_transaction(None, Parameters(retention_ms=1))
    partition.undo()
    assert partition.parameters == before


# ---- commit and undo ---------------------------------------------------------------------------------------------


def test_undo_takes_back_everything(partition: Partition) -> None:
    transaction(partition, (call(), 0), (result(1), 0))
    transaction(partition, (call(call_id="8"), 1), (timeout(1, call_id="8"), 1))
    saved = state(partition)
    say(partition, call(call_id="9"), 500)
    say(partition, compensation(2, call_id="8", incarnation=2), 500)
    say(partition, timeout(1, Cause.OPERATOR), 500)
    say(partition, None, 700)
    ended = partition.end_transaction(None, Parameters(retention_ms=1))
    assert ended.forgotten == ["7"]
    assert set(ended.changed) == {"8", "9"}
    partition.undo()
    assert state(partition) == saved


def test_undo_before_the_end_of_the_transaction(partition: Partition) -> None:
    transaction(partition, (call(), 3))
    saved = state(partition)
    say(partition, result(1), 500)
    partition.undo()
    assert state(partition) == saved
    partition.end_transaction(None)
    assert partition.stream_time_ms == 3, "the timestamp of an undone input counts for nothing"


def test_undo_puts_the_closed_back_in_their_order(partition: Partition) -> None:
    for call_id, ms in (("a", 1), ("b", 2), ("c", 50)):
        transaction(partition, (call(call_id=call_id), ms), (result(1, call_id=call_id, incarnation=partition.seq), ms))
    saved = state(partition)
    say(partition, call(call_id="d"), 120)
    say(partition, result(1, call_id="d", incarnation=6), 120)
    assert partition.end_transaction(None).forgotten == ["a", "b"]
    partition.undo()
    assert state(partition) == saved
    assert list(partition._closed) == [(1, "a"), (2, "b"), (50, "c")]
    assert transaction(partition, (None, 151)).forgotten == ["a", "b", "c"]


def test_undo_with_a_stale_stamp_among_the_forgotten(partition: Partition) -> None:
    for event in (call(orphans=Orphans.COMPENSATE), timeout(1), compensation(2), result(1)):
        transaction(partition, (event, 0))
    saved = state(partition)
    say(partition, None, 500)
    assert partition.end_transaction(None).forgotten == []
    partition.undo()
    assert state(partition) == saved


def test_a_commit_is_the_point_to_which_undo_goes_back(partition: Partition) -> None:
    transaction(partition, (call(), 1))
    transaction(partition, (timeout(1), 2))
    saved = state(partition)
    partition.undo()
    assert state(partition) == saved


def test_what_was_undone_can_be_decided_again_to_the_same_answer(partition: Partition) -> None:
    transaction(partition, (call(), 1))
    first = say(partition, result(1, Outcome.UNKNOWN), 2)
    partition.end_transaction(None)
    partition.undo()
    again = say(partition, result(1, Outcome.UNKNOWN), 2)
    assert first == again


def test_a_record_that_was_handed_out_is_not_changed_by_what_follows(partition: Partition) -> None:
    handed = transaction(partition, (call(), 1)).changed["7"]
    kept = copy.deepcopy(handed)
    transaction(partition, (timeout(1), 2), (compensation(2), 3))
    assert handed == kept


# ---- restore -----------------------------------------------------------------------------------------------------


def test_a_restored_partition_goes_on_as_the_one_it_was_restored_from(partition: Partition) -> None:
    for call_id, ms in (("b", 1), ("a", 2), ("c", 50)):
        transaction(partition, (call(call_id=call_id), ms), (result(1, call_id=call_id, incarnation=partition.seq), ms))
    transaction(partition, (call(call_id="open"), 60))
    restored = Partition(partition.parameters, partition.seq, partition.stream_time_ms)
    records: list[CallRecord] = sorted(copy.deepcopy(list(partition.calls.values())), key=lambda r: r.call_id)
    restored.load(records)
    for _ in range(2):
        at = Input("epochfence.x", 0, partition.seq, 103, "")
        assert partition.decide(None, None, "", True, at) == restored.decide(None, None, "", True, at)
        assert partition.end_transaction(None) == restored.end_transaction(None)
        partition.commit()
        restored.commit()
        assert state(partition) == state(restored)
    assert set(restored.calls) == {"c", "open"}
