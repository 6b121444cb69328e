"""The epoch table beside what the fold makes of the decisions.

It is read before the decisions are: what it stands at is then surely among them, also where a processor goes on
writing. It is compared when the walk comes to the decision whose checkpoint it carries.

Memory: the newest value of each key, as bytes, as a start of the processor has them too.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields

from epochfence.audit.history import Archive
from epochfence.protocol.decisions import Checkpoint
from epochfence.protocol.records import CallRecord
from epochfence.wire.codec import CHECKPOINT_KEY, OutputDecoder
from epochfence.wire.errors import DecodeError

_FIELDS = tuple(field.name for field in fields(CallRecord))

Report = Callable[[str | None, str, str | None, object, object], None]
"""(call_id, detail, field, what the table has, what the fold has)."""


class Table:
    """Partition `number` of the table. `at_seq` is where it stands, None where it has no checkpoint."""

    def __init__(self, archive: Archive, number: int, report: Report) -> None:
        self._report = report
        self._decoder = OutputDecoder(archive.lookup)
        history, topic = archive.partition(number), archive.facts.table_topic
        self._newest: dict[bytes, bytes] = {}
        for record in history.read(topic, *history.bounds(topic)):
            if record.value is None:
                self._newest.pop(record.key or b"", None)
            else:
                self._newest[record.key or b""] = record.value
        self._checkpoint: Checkpoint | None = None
        self.readable = True
        value = self._newest.pop(CHECKPOINT_KEY, None)
        if value is not None:
            try:
                self._checkpoint = self._decoder.checkpoint(value)
            except DecodeError as error:
                self.readable = False
                report(None, f"its checkpoint cannot be read: {error}", None, None, None)

    @property
    def at_seq(self) -> int | None:
        """The seq of the last decision that is in it."""
        return None if self._checkpoint is None else self._checkpoint.seq

    def compare(
        self, stated: Checkpoint | None, calls: Mapping[str, CallRecord], untrusted: Callable[[str], bool]
    ) -> int:
        """Compare with the fold's calls, but for those that are `untrusted`. Returns how many records were compared.

        `stated` is the checkpoint of the decision with the same seq; None where that one is known to be wrong.
        """
        if stated is not None and self._checkpoint != stated:
            self._report(None, "its checkpoint is not the one that the decision with its seq carries", None, None, None)
        compared, there = 0, set()
        for key, value in self._newest.items():
            call_id = key.decode("utf-8", "replace")
            there.add(call_id)
            if untrusted(call_id):
                continue
            compared += 1
            self._compare(call_id, value, calls.get(call_id))
        for call_id in calls:
            if call_id not in there and not untrusted(call_id):
                self._report(call_id, "the table lacks this call", "call_id", None, call_id)
        self._newest = {}
        return compared

    def _compare(self, call_id: str, value: bytes, folded: CallRecord | None) -> None:
        try:
            record = self._decoder.record(value)
        except DecodeError as error:
            self._report(call_id, f"its record cannot be read: {error}", None, None, None)
            return
        if folded is None:
            self._report(call_id, "the table has a call that the fold does not have", "call_id", call_id, None)
        elif record != folded:
            name = next(name for name in _FIELDS if getattr(record, name) != getattr(folded, name))
            self._report(call_id, "the table differs from the fold", name, getattr(record, name), getattr(folded, name))
