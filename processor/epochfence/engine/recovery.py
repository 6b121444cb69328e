"""A start: what the log says of a partition, or why it cannot be believed (protocol, *Checkpoint*).

`decisions` is the truth. `epoch-table` is a cache of the fold that carries the checkpoint it stands at:

- at the last checkpoint of `decisions`: it is loaded, and that is all;
- behind it, or gone: the missing decisions are folded again from their inputs and compared with the log;
- ahead of it, or of other topics, or its inputs are gone: refused, and nothing is written.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from epochfence.engine.chain import START, RunningChain
from epochfence.engine.history import Bounds, History
from epochfence.engine.refold import Refold
from epochfence.engine.task import TaskState, TopicFacts
from epochfence.errors import LogError
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Checkpoint, Decision
from epochfence.protocol.partition import Partition
from epochfence.protocol.records import CallRecord
from epochfence.wire.codec import CHECKPOINT_KEY, EventDecoder, OutputDecoder
from epochfence.wire.errors import DecodeError
from epochfence.wire.schemas import INPUT_TOPICS

Progress = Callable[[str, int, int], None]
"""(topic, records so far, offsets in all): called now and then while a long topic is read."""

_WAY_OUT = "restore the topic from a copy, or begin anew under another topic_prefix"
_FIRST_STEP_BACK = 64
_STEP_GROWTH = 8
_PROGRESS_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class TableRewrite:
    """What `epoch-table` lacks: records to write, None for keys to take away, and the checkpoint it then stands at."""

    records: dict[str, CallRecord | None]
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Recovered:
    """A partition as the log has it. `rewrite` is None where the table was complete."""

    state: TaskState
    rewrite: TableRewrite | None


@dataclass(slots=True)
class _Table:
    checkpoint: Checkpoint | None
    records: dict[str, CallRecord]


class Recovery:
    """Recovers one partition. `group_offsets` are those committed by the group, in the order of INPUT_TOPICS."""

    def __init__(
        self,
        number: int,
        history: History,
        facts: TopicFacts,
        configured: Parameters,
        decoders: tuple[EventDecoder, ...],
        outputs: OutputDecoder,
        group_offsets: tuple[int, ...],
        progress: Progress = lambda topic, done, total: None,
    ) -> None:
        self._number = number
        self._history = history
        self._facts = facts
        self._configured = configured
        self._decoders = decoders
        self._outputs = outputs
        self._group_offsets = group_offsets
        self._progress = progress

    def run(self) -> Recovered:
        """The partition's state. Raises LogError where the log contradicts itself, ClusterError where it is silent."""
        bounds = self._history.bounds(self._facts.decisions_topic)
        last = self._last_decision(bounds)
        table = self._load_table()
        if last is None:
            return self._first_start(table)
        checkpoint = last.checkpoint
        if checkpoint is None:
            raise self._refusal(
                self._facts.decisions_topic,
                f"the last committed decision, seq {last.seq}, carries no checkpoint: its transaction is torn",
                "`epochfence audit verify` names the place",
            )
        self._refuse_lost_beginning(bounds)
        self._refuse_other_topics(checkpoint)
        self._refuse_missing_inputs([position.next_offset for position in checkpoint.inputs])
        return self._with_table(table, checkpoint, bounds)

    # ---- decisions ------------------------------------------------------------------------------------------------

    def _last_decision(self, bounds: Bounds) -> Decision | None:
        """The last committed one. Aborted transactions may lie behind it, so look back further and further."""
        step = _FIRST_STEP_BACK
        start = bounds.high_watermark
        while start > bounds.earliest:
            start = max(bounds.earliest, bounds.high_watermark - step)
            last: Decision | None = None
            for record in self._history.read(self._facts.decisions_topic, start, bounds.high_watermark):
                decision = self._decision(record.offset, record.value)
                if last is not None and decision.seq != last.seq + 1:
                    raise self._gap(f"seq {last.seq + 1} is missing: seq {decision.seq} follows {last.seq}")
                last = decision
            if last is not None:
                return last
            step *= _STEP_GROWTH
        return None

    def _refuse_lost_beginning(self, bounds: Bounds) -> None:
        """A table that is complete folds nothing again, so that a gap far back would not be met. One is looked for."""
        if bounds.earliest > 0:
            return  # the beginning was deleted, and the broker says so
        record = next(iter(self._history.read(self._facts.decisions_topic, 0, bounds.high_watermark)), None)
        if record is not None:
            first = self._decision(record.offset, record.value)
            if first.seq != 1:
                raise self._gap(f"seq {first.seq} is its first decision, at offset {record.offset}")

    def _gap(self, why: str) -> LogError:
        return self._refusal(self._facts.decisions_topic, why, "`epochfence audit verify` names every place")

    def _decision(self, offset: int, value: bytes | None) -> Decision:
        try:
            return self._outputs.decision(value)
        except DecodeError as error:
            raise self._refusal(
                self._facts.decisions_topic,
                f"offset {offset} is no decision: {error}",
                "only the processor may write there; see who else did",
            ) from None

    def _decisions_after(self, seq: int, bounds: Bounds) -> Iterator[Decision]:
        """The decisions with a greater seq, in order."""
        topic, end = self._facts.decisions_topic, bounds.high_watermark
        step = _FIRST_STEP_BACK
        while True:
            start = max(bounds.earliest, end - step)
            first = next(iter(self._history.read(topic, start, end)), None)
            if first is not None and self._decision(first.offset, first.value).seq <= seq + 1:
                break
            if start == bounds.earliest:
                raise self._refusal(
                    topic,
                    f"the decisions after seq {seq}, where epoch-table stands, are gone: offsets begin at {start}",
                    _WAY_OUT,
                )
            step *= _STEP_GROWTH
        for count, record in enumerate(self._history.read(topic, start, end)):
            if count % _PROGRESS_EVERY == 0:
                self._progress(topic, record.offset - start, end - start)
            decision = self._decision(record.offset, record.value)
            if decision.seq > seq:
                yield decision

    # ---- the table ------------------------------------------------------------------------------------------------

    def _load_table(self) -> _Table:
        topic = self._facts.table_topic
        bounds = self._history.bounds(topic)
        # Newest value of each key first, decoded once at the end: a long-lived key was written many times.
        newest: dict[bytes, bytes] = {}
        for count, record in enumerate(self._history.read(topic, bounds.earliest, bounds.high_watermark)):
            if count % _PROGRESS_EVERY == 0:
                self._progress(topic, record.offset - bounds.earliest, bounds.high_watermark - bounds.earliest)
            key = record.key or b""
            if record.value is None:
                newest.pop(key, None)
            else:
                newest[key] = record.value
        try:
            checkpoint_value = newest.pop(CHECKPOINT_KEY, None)
            checkpoint = None if checkpoint_value is None else self._outputs.checkpoint(checkpoint_value)
            records = {key.decode(): self._outputs.record(value) for key, value in newest.items()}
        except (DecodeError, UnicodeDecodeError) as error:
            raise self._refusal(
                topic,
                f"between offsets {bounds.earliest} and {bounds.high_watermark} is a value that is no call record: "
                f"{error}",
                "delete the topic, `epochfence topics apply`, and start again: the table is rebuilt from decisions",
            ) from None
        return _Table(checkpoint, records)

    def _first_start(self, table: _Table) -> Recovered:
        decided = max(self._group_offsets, default=0)
        if table.checkpoint is not None or table.records or decided > 0:
            where = table.checkpoint.seq if table.checkpoint is not None else "an unknown seq"
            raise self._refusal(
                self._facts.decisions_topic,
                f"it holds no decision, but epoch-table stands at {where} and the group has decided up to offset "
                f"{decided}: decisions were lost, or the topic was made anew",
                _WAY_OUT,
            )
        offsets = [0] * len(INPUT_TOPICS)
        self._refuse_missing_inputs(offsets)
        return Recovered(TaskState(Partition(self._configured), RunningChain(), offsets), None)

    def _with_table(self, table: _Table, last: Checkpoint, bounds: Bounds) -> Recovered:
        base = table.checkpoint
        if base is None:
            return self._roll_forward(None, table, last, bounds)
        if base.seq > last.seq:
            raise self._refusal(
                self._facts.decisions_topic,
                f"epoch-table stands at seq {base.seq}, ahead of the last decision, seq {last.seq} before offset "
                f"{bounds.high_watermark}: decisions were lost",
                _WAY_OUT,
            )
        if base.seq < last.seq:
            return self._roll_forward(base, table, last, bounds)
        if base != last:
            raise self._refusal(
                self._facts.table_topic,
                f"its checkpoint at seq {base.seq} is not the one that the decision with that seq carries",
                "delete the topic, `epochfence topics apply`, and start again: the table is rebuilt from decisions",
            )
        return Recovered(self._state(last, table.records), None)

    def _state(self, checkpoint: Checkpoint, records: dict[str, CallRecord]) -> TaskState:
        parameters = Parameters(checkpoint.retention_ms, checkpoint.max_body_bytes)
        partition = Partition(parameters, checkpoint.seq, checkpoint.stream_time_ms)
        partition.load(records.values())
        offsets = [position.next_offset for position in checkpoint.inputs]
        return TaskState(partition, RunningChain(checkpoint.chain), offsets)

    def _roll_forward(self, base: Checkpoint | None, table: _Table, last: Checkpoint, bounds: Bounds) -> Recovered:
        """Fold again what the table lacks. Without a checkpoint its records cannot be dated, so none is believed."""
        if base is None:
            state = TaskState(Partition(self._configured), RunningChain(START), [0] * len(INPUT_TOPICS))
            stale = table.records
        else:
            state = self._state(base, table.records)
            stale = {}
        self._refuse_missing_inputs(state.next_offsets)
        refold = Refold(self._number, self._history, self._facts, self._decoders, state, last)
        changed = refold.run(self._decisions_after(state.partition.seq, bounds))
        rewrite: dict[str, CallRecord | None] = dict.fromkeys(stale)
        rewrite.update({call_id: state.partition.calls.get(call_id) for call_id in changed})
        return Recovered(state, TableRewrite(rewrite, last))

    # ---- refusals -------------------------------------------------------------------------------------------------

    def _refuse_other_topics(self, checkpoint: Checkpoint) -> None:
        facts = self._facts
        if checkpoint.partition_count != facts.partition_count:
            raise self._refusal(
                facts.decisions_topic,
                f"the topics have {facts.partition_count} partitions, and had {checkpoint.partition_count} when they "
                "were decided: calls now lie elsewhere",
                "partition counts never change; copy the calls into topics made anew",
            )
        were = {position.topic: position.topic_id for position in checkpoint.inputs}
        were[facts.decisions_topic] = checkpoint.decisions_topic_id
        are = dict(zip(facts.input_topics, facts.input_topic_ids, strict=True))
        are[facts.decisions_topic] = facts.decisions_topic_id
        for topic, topic_id in are.items():
            if were.get(topic) != topic_id:
                raise self._refusal(
                    topic,
                    f"it is not the topic that was decided at seq {checkpoint.seq}: it has the id {topic_id}, and had "
                    f"{were.get(topic)}; it was deleted and made anew",
                    _WAY_OUT,
                )

    def _refuse_missing_inputs(self, next_offsets: list[int]) -> None:
        for topic, next_offset in zip(self._facts.input_topics, next_offsets, strict=True):
            earliest, high_watermark = self._history.bounds(topic)
            if earliest > next_offset:
                raise self._refusal(
                    topic,
                    f"the records from offset {next_offset} to {earliest - 1} are gone and were never decided",
                    _WAY_OUT,
                )
            if high_watermark < next_offset:
                raise self._refusal(
                    topic,
                    f"it ends at offset {high_watermark}, but was decided up to offset {next_offset}: it was truncated",
                    _WAY_OUT,
                )

    def _refusal(self, topic: str, why: str, way_out: str) -> LogError:
        return LogError(f"{topic}[{self._number}]: {why}. Nothing was written; {way_out}")
