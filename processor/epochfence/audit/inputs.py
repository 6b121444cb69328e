"""The four inputs of a partition as a proof reads them: each once, in the order of its offsets."""

from epochfence.audit.history import Archive
from epochfence.engine.history import LogRecord


class Inputs:
    """One cursor for each input. Memory: the record that each stands at."""

    def __init__(self, archive: Archive, number: int) -> None:
        history = archive.partition(number)
        topics = archive.facts.input_topics
        bounds = [history.bounds(topic) for topic in topics]
        self.earliest = [bound.earliest for bound in bounds]
        """Of each input the first offset that is still there: what lay before it was deleted."""
        self._iterators = [iter(history.read(topic, *bound)) for topic, bound in zip(topics, bounds, strict=True)]
        self.next_offsets = [0] * len(topics)
        """Of each input the offset after the last record that was taken."""
        self._heads: list[LogRecord | None] = [next(iterator, None) for iterator in self._iterators]

    def head(self, number: int) -> LogRecord | None:
        """The next record of an input; None at its end."""
        return self._heads[number]

    def take(self, number: int) -> None:
        """Go on to the record after the head."""
        head = self._heads[number]
        assert head is not None
        self.next_offsets[number] = head.offset + 1
        self._heads[number] = next(self._iterators[number], None)

    def pass_by(self, number: int, offset: int) -> None:
        """The record at this offset was deleted."""
        self.next_offsets[number] = offset + 1
