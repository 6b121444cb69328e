"""The order in which the records of several partitions are shown."""

from hypothesis import given
from hypothesis import strategies as st

from epochfence.clients.time_merge import CommittedRecord, TimeMerge


def record(partition: int, offset: int, timestamp_ms: int, value: bytes | None = b"") -> CommittedRecord:
    return CommittedRecord(partition, offset, timestamp_ms, b"", value)


def shown(merge: TimeMerge) -> list[tuple[int, int]]:
    return [(r.partition, r.offset) for r in merge.take()]


def test_the_earliest_of_all_partitions_comes_first() -> None:
    merge = TimeMerge([0, 1])
    for item in (record(0, 0, 10), record(0, 1, 30), record(1, 0, 20)):
        merge.offer(item)
    assert shown(merge) == [(0, 0), (1, 0)]  # what partition 1 has next may be earlier than 30
    merge.reached_end(1)
    assert shown(merge) == [(0, 1)]
    assert not merge.held
    assert merge.unfinished == {0}


def test_nothing_is_shown_before_every_partition_was_heard() -> None:
    merge = TimeMerge([0, 1])
    merge.offer(record(1, 0, 5))
    assert shown(merge) == []
    assert merge.held
    merge.reached_end(0)
    assert shown(merge) == [(1, 0)]


def test_at_the_same_millisecond_the_lower_partition_comes_first_and_offsets_stay_in_order() -> None:
    merge = TimeMerge([0, 1])
    for item in (record(1, 0, 5), record(1, 1, 5), record(0, 0, 5), record(0, 1, 5)):
        merge.offer(item)
    merge.reached_end(0)
    merge.reached_end(1)
    assert shown(merge) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_partition_that_was_at_its_end_is_not_waited_for_again() -> None:
    merge = TimeMerge([])
    merge.offer(record(3, 7, 50))
    assert shown(merge) == [(3, 7)]
    merge.offer(record(1, 0, 40))
    assert shown(merge) == [(1, 0)]


def test_what_is_held_is_counted() -> None:
    merge = TimeMerge([0, 1])
    merge.offer(record(0, 0, 1, b"12345"))
    merge.offer(record(0, 1, 1, None))
    assert merge.held_of(0) == (2, 5)
    assert merge.held_of(1) == (0, 0)
    merge.reached_end(1)
    assert len(shown(merge)) == 2
    assert merge.held_of(0) == (0, 0)


@given(st.lists(st.lists(st.integers(0, 20), max_size=12), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_whatever_comes_when_the_whole_is_in_order_and_complete(gaps: list[list[int]], random: object) -> None:
    """The broker's timestamps never run backwards in a partition; how partitions come interleaved is chance."""
    partitions: list[list[CommittedRecord]] = []
    for number, steps in enumerate(gaps):
        at, made = 0, []
        for offset, step in enumerate(steps):
            at += step
            made.append(record(number, offset, at))
        partitions.append(made)
    merge = TimeMerge(range(len(partitions)))
    out: list[CommittedRecord] = []
    left = {number: list(made) for number, made in enumerate(partitions)}
    while left:
        number = random.choice(sorted(left))  # type: ignore[attr-defined]
        if left[number]:
            merge.offer(left[number].pop(0))
        else:
            merge.reached_end(number)
            del left[number]
        out += merge.take()
    expected = sorted((r for made in partitions for r in made), key=lambda r: (r.timestamp_ms, r.partition, r.offset))
    assert out == expected
