"""The fold over JSON Lines: one partition, each event a transaction, no clock. What `epochfence fold` prints."""

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Compensation, Event, Input, Result
from epochfence.protocol.partition import Partition
from epochfence.wire.jsonl import EventLine, LineError, read_event
from epochfence.wire.schemas import TOPIC_OF_EVENT

DEFAULT_PREFIX = "epochfence."


class LineFold:
    """Decides line after line. A line's number, from 0, is its event's offset."""

    def __init__(self, parameters: Parameters) -> None:
        self.partition = Partition(parameters)
        self._number = -1

    def decide(self, line: bytes) -> Decision:
        """The decision about the next line, without its line feed. A line that is no event is UNDECODABLE."""
        self._number += 1
        try:
            read = read_event(line, self._number)
        except LineError:
            nowhere = Input("", 0, self._number, 0, "")
            return self._end(self.partition.decide(None, None, "", True, nowhere, counts_for_stream_time=False))
        event = self._with_incarnation(read)
        at = Input(DEFAULT_PREFIX + TOPIC_OF_EVENT[type(event)], 0, self._number, read.timestamp_ms, event.event_id)
        return self._end(self.partition.decide(event, event.call_id.encode(), event.call_id, True, at))

    def _with_incarnation(self, read: EventLine) -> Event:
        event = read.event
        if read.incarnation_left_out:
            assert type(event) is Result or type(event) is Compensation
            record = self.partition.calls.get(event.call_id)
            if record is not None and record.incarnation is not None:
                event.incarnation = record.incarnation
        return event

    def _end(self, decision: Decision) -> Decision:
        self.partition.end_transaction(now_ms=None)
        self.partition.commit()
        return decision
