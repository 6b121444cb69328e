"""The merge of a partition's four inputs: whose turn it is, and when nobody's turn can be known."""

from __future__ import annotations

from epochfence.engine.merge import InputRecord, Merge
from epochfence.wire.schemas import INPUT_TOPICS

CALLS, TIMEOUTS, RESULTS, COMPENSATIONS = map(
    INPUT_TOPICS.index, ("tool-calls", "timeouts", "results", "compensations")
)


def merge_of(*records: tuple[int, int], ended: bool = True) -> Merge:
    """Records as (input, timestamp_ms), whose offsets count from 0 over all inputs; each input at its end."""
    merge = Merge([0] * len(INPUT_TOPICS))
    for offset, (number, timestamp_ms) in enumerate(records):
        merge.offer(number, timestamp_ms, offset, b"7", b"value")
    if ended:
        for number in range(len(INPUT_TOPICS)):
            merge.reached_end(number)
    return merge


def offsets(taken: list[InputRecord]) -> list[int]:
    return [record.offset for record in taken]


def test_the_lowest_timestamp_comes_first_whatever_its_topic() -> None:
    merge = merge_of((TIMEOUTS, 30), (RESULTS, 20), (CALLS, 10), (COMPENSATIONS, 40))
    assert offsets(merge.take(9)) == [2, 1, 0, 3]


def test_at_one_millisecond_call_result_compensation_timeout() -> None:
    merge = merge_of((TIMEOUTS, 5), (COMPENSATIONS, 5), (RESULTS, 5), (CALLS, 5))
    assert offsets(merge.take(9)) == [3, 2, 1, 0]


def test_within_an_input_the_offsets_are_the_order_whatever_the_clock_says() -> None:
    assert offsets(merge_of((RESULTS, 9), (RESULTS, 1), (CALLS, 5)).take(9)) == [2, 0, 1]


def test_nothing_is_taken_while_one_head_is_unknown() -> None:
    merge = merge_of((TIMEOUTS, 30), (CALLS, 10), ended=False)
    merge.reached_end(RESULTS)
    assert merge.waiting_for() == [COMPENSATIONS]
    assert merge.take(9) == []
    merge.reached_end(COMPENSATIONS)
    assert offsets(merge.take(1)) == [1]


def test_it_stops_where_an_input_runs_dry_that_may_have_more() -> None:
    """The next result may be older than the timeout that waits."""
    merge = merge_of((RESULTS, 10), (TIMEOUTS, 30), ended=False)
    merge.reached_end(CALLS)
    merge.reached_end(COMPENSATIONS)
    assert offsets(merge.take(9)) == [0]
    merge.offer(RESULTS, 20, 2, b"7", b"in time")
    assert offsets(merge.take(9)) == [2]
    merge.reached_end(RESULTS)
    assert offsets(merge.take(9)) == [1]


def test_what_is_put_back_comes_again_in_the_same_order() -> None:
    merge = merge_of((RESULTS, 10), (RESULTS, 11), (TIMEOUTS, 12), (RESULTS, 13))
    taken = merge.take(9)
    merge.put_back(taken[1:])
    assert merge.buffered(RESULTS) == (2, 12)
    assert merge.take(9) == taken[1:]


def test_after_a_clear_everything_is_fetched_again() -> None:
    merge = merge_of((RESULTS, 10), (TIMEOUTS, 12))
    merge.clear([3, 4, 5, 6])
    assert not merge.has_records()
    assert merge.waiting_for() == [0, 1, 2, 3]
    assert [merge.position(number) for number in range(4)] == [3, 4, 5, 6]
    assert merge.buffered(RESULTS) == (0, 0)
