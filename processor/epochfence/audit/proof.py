"""What the topics alone prove: every decision of a prefix, checked against its input, its neighbours and the fold.

One pass. The decisions are walked in the order of their offsets, a transaction at a time, beside the four inputs that
they answer. For each decision: (1) is it the next one; (2) does it answer the next record of its input; (3) do the
rules of its call hold; (4) does the fold decide the same. At a transaction's end: (5) does the chain lead to the
checkpoint's; and where the epoch table stands there: (6) is it what was folded. What is wrong is noted and the walk
goes on from what the log says, so that one damage is told once.

Inputs that were deleted cannot be folded again, nor can their calls: (1), (3) and (5) over the decisions still hold.

Memory: a transaction, the bytes of the epoch table, and what the processor itself remembers of the calls.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import zip_longest

from epochfence.audit.calls import CallRules
from epochfence.audit.differences import difference, first_difference
from epochfence.audit.findings import NEED_INPUTS, ChainHead, Finding, FindingKind, Proof
from epochfence.audit.history import Archive, LoggedDecision, read_decisions
from epochfence.audit.inputs import Inputs
from epochfence.audit.table import Table
from epochfence.audit.unverifiable import Unverifiable
from epochfence.engine.chain import RunningChain
from epochfence.engine.history import LogRecord
from epochfence.engine.task import event_decoders
from epochfence.errors import UsageError
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Checkpoint, Decision
from epochfence.protocol.events import Event
from epochfence.protocol.partition import Partition
from epochfence.protocol.vocabulary import RULES_VERSION, Reason, Verdict
from epochfence.wire.codec import FRAME_BYTES, DecisionEncoder, EventDecoder, frame
from epochfence.wire.routing import lies_in
from epochfence.wire.schemas import EVENT_SCHEMAS, INPUT_TOPICS

_FIELDS = tuple(field.name for field in fields(Decision))
_DECISION_FRAME = frame("decision")
_OWN_FRAMES = tuple(frame(EVENT_SCHEMAS[topic]) for topic in INPUT_TOPICS)
_COUNTED = {Verdict.OPEN: "calls", Verdict.COMMIT: "commits", Verdict.REJECT: "rejections"}
_TOLD_UNDECIDED = 3
"""Of a row of undecided records so many are named one by one, the rest together."""


Progress = Callable[[int, int, int], None]
"""(partition, offsets walked, offsets in all), over `decisions`: called now and then."""
_PROGRESS_EVERY = 2_000


def prove(
    archive: Archive,
    partitions: Iterable[int] | None = None,
    *,
    at_rest: bool = True,
    progress: Progress = lambda partition, done, total: None,
) -> Proof:
    """Check everything under the archive's prefix, or some of its partitions.

    `at_rest`: nothing is being written, so an input above the last checkpoint that is not decided is a finding. Else
    it is lag, and counted.

    Raises ClusterError where the cluster does not answer, LogError where records go while they are read, UsageError
    for decisions of newer rules than these.
    """
    proof = Proof(archive.prefix)
    decoders = event_decoders(archive.lookup)
    for number in range(archive.facts.partition_count) if partitions is None else partitions:
        _PartitionProof(archive, number, decoders, proof, at_rest).run(progress)
    return proof


class _PartitionProof:
    def __init__(
        self, archive: Archive, number: int, decoders: tuple[EventDecoder, ...], proof: Proof, at_rest: bool
    ) -> None:
        self._at_rest = at_rest
        self._archive = archive
        self._facts = archive.facts
        self._number = number
        self._topic_bytes = tuple(topic.encode() for topic in archive.facts.input_topics)
        self._decoders = decoders
        self._proof = proof
        self._partition = Partition(Parameters())
        self._chain = RunningChain()
        self._encoder = DecisionEncoder()
        self._rules = CallRules()
        self._diverged: set[str] = set()
        """Calls whose first divergence was told, while they are remembered."""
        self._unverifiable = Unverifiable()
        self._gone = 0
        """Decisions whose input was deleted."""
        self._gone_before = 0
        """The same as of the last transaction's end."""
        self._newest_ms = 0
        """The largest broker timestamp among the inputs decided."""
        self._decided_to = [0] * len(self._facts.input_topics)
        """Of each input what the last checkpoint says."""

    def run(self, progress: Progress) -> None:
        topic = self._facts.decisions_topic
        # The table first, the decisions' end next, the inputs last: each is then surely within what follows.
        self._table = Table(self._archive, self._number, self._report_table)
        bounds = self._archive.partition(self._number).bounds(topic)
        self._inputs = Inputs(self._archive, self._number)
        transaction: list[LoggedDecision] = []
        for count, logged in enumerate(read_decisions(self._archive, self._number, bounds)):
            if count % _PROGRESS_EVERY == 0:
                progress(self._number, logged.offset - bounds.earliest, bounds.high_watermark - bounds.earliest)
            if logged.decision is None:
                self._report(FindingKind.NOT_A_DECISION, logged.offset, None, logged.wrong or "")
                continue
            transaction.append(logged)
            if logged.decision.checkpoint is not None:
                self._transaction(transaction, logged.decision.checkpoint)
                transaction = []
        if transaction:
            self._torn(transaction)
        for number, decided_to in enumerate(self._decided_to):
            self._skip(number, None if self._at_rest else decided_to)
            self._lag(number)
        self._end(torn=bool(transaction))
        progress(self._number, bounds.high_watermark - bounds.earliest, bounds.high_watermark - bounds.earliest)

    def _end(self, torn: bool) -> None:
        seq, at_seq, table = self._partition.seq, self._table.at_seq, self._facts.table_topic
        if seq:
            head = self._chain.head
            self._proof.heads.append(ChainHead(self._number, seq, head.decisions.hex(), head.inputs.hex()))
        if at_seq is not None and at_seq > seq and not torn:
            self._report_table(None, "it stands ahead of the last decision: decisions were lost", "seq", at_seq, seq)
        elif at_seq is None and seq and self._table.readable:
            self._proof.unverified.append(f"{table}[{self._number}] has no checkpoint: it was not compared")
            self._proof.partly.add(FindingKind.TABLE)
        if self._gone:
            self._proof.partly |= NEED_INPUTS
            self._proof.unverified.append(
                f"{self._number}: the inputs of {self._gone} decisions were deleted, so {self._unverifiable.seen} "
                "calls were not folded again; seq, call_seq and the chain over the decisions were checked"
            )

    # ---- a transaction ----------------------------------------------------------------------------------------------

    def _transaction(self, transaction: list[LoggedDecision], checkpoint: Checkpoint) -> None:
        in_force = Parameters(checkpoint.retention_ms, checkpoint.max_body_bytes)
        if self._partition.seq == 0:
            self._partition.parameters = in_force  # nothing was stated before: the first transaction states its own
        for logged in transaction:
            self._one(logged)
        lacking = self._gone > self._gone_before
        # What was not folded again has a part in stream time, too.
        newest_ms = max(logged.decision.input.timestamp_ms for logged in transaction if logged.decision is not None)
        moved_ms = min(newest_ms, checkpoint.stream_time_ms)
        self._partition.stream_time_ms = max(self._partition.stream_time_ms, moved_ms)
        ended = self._partition.end_transaction(checkpoint.stream_time_ms, in_force)
        self._partition.commit()
        new, forgotten = self._unverifiable.end_transaction(
            self._partition.stream_time_ms, self._partition.parameters.retention_ms
        )
        for call_id in new:
            self._partition.calls.pop(call_id, None)
        self._rules.forget((*ended.forgotten, *forgotten))
        self._diverged.difference_update(ended.forgotten)
        first = transaction[0].decision
        assert first is not None
        sound = self._checkpoint(transaction[-1], first.seq, checkpoint, lacking)
        self._gone_before = self._gone
        stated = {position.topic: position.next_offset for position in checkpoint.inputs}
        self._decided_to = [stated.get(topic, 0) for topic in self._facts.input_topics]
        self._proof.counts["transactions"] += 1
        if self._partition.seq == self._table.at_seq:
            same = checkpoint if sound else None
            self._proof.table_calls += self._table.compare(same, self._partition.calls, self._untrusted)

    def _untrusted(self, call_id: str) -> bool:
        return call_id in self._diverged or call_id in self._unverifiable

    def _torn(self, transaction: list[LoggedDecision]) -> None:
        for logged in transaction:
            self._one(logged)
        last = transaction[-1]
        self._report(FindingKind.TORN_TRANSACTION, last.offset, last.decision, "the last decision has no checkpoint")

    def _checkpoint(self, last: LoggedDecision, first_seq: int, stated: Checkpoint, lacking: bool) -> bool:
        """Whether the checkpoint, its chain aside, is right. `lacking`: inputs of the transaction were deleted."""
        computed = self._chain.next_head()
        where = f"it breaks in the transaction of seq {first_seq} to {self._partition.seq}"

        def differs(kind: FindingKind, detail: str, name: str, logged: object, ours: object) -> None:
            self._report(kind, last.offset, last.decision, detail, *difference(name, logged, ours))

        if computed.decisions != stated.chain.decisions:
            differs(FindingKind.DECISIONS_CHAIN, where, "chain.decisions", stated.chain.decisions, computed.decisions)
        if not lacking and computed.inputs != stated.chain.inputs:
            differs(FindingKind.INPUTS_CHAIN, where, "chain.inputs", stated.chain.inputs, computed.inputs)
        self._chain.commit(stated.chain)  # go on from what the log says: the next break is another one
        before = self._proof.findings_by_kind[FindingKind.CHECKPOINT]
        if self._partition.stream_time_ms != stated.stream_time_ms:
            differs(
                FindingKind.CHECKPOINT,
                "it states another stream time than its inputs give",
                "stream_time_ms",
                stated.stream_time_ms,
                self._partition.stream_time_ms,
            )
            self._partition.stream_time_ms = stated.stream_time_ms
        facts = self._facts
        positions = list(zip(facts.input_topics, facts.input_topic_ids, self._inputs.next_offsets, strict=True))
        are = (self._partition.seq, facts.partition_count, facts.decisions_topic_id, *positions)
        states = (stated.seq, stated.partition_count, stated.decisions_topic_id, *map(tuple, stated.inputs))
        names = ("seq", "partition_count", "decisions_topic_id", *(f"inputs {topic}" for topic in facts.input_topics))
        for name, logged, ours in zip_longest(names, states, are):
            if logged != ours:
                what = "it states another seq, other offsets, or other topics"
                differs(FindingKind.CHECKPOINT, what, name or "inputs", logged, ours)
        return self._proof.findings_by_kind[FindingKind.CHECKPOINT] == before

    # ---- a decision ------------------------------------------------------------------------------------------------

    def _one(self, logged: LoggedDecision) -> None:
        decision = logged.decision
        assert decision is not None
        if decision.rules_version > RULES_VERSION:
            raise UsageError(
                f"{self._facts.decisions_topic}[{self._number}]@{logged.offset} was decided under rules_version "
                f"{decision.rules_version}, and this version knows {RULES_VERSION}: it takes a newer epochfence to "
                "verify it"
            )
        self._count(decision)
        expected = self._partition.seq + 1
        if decision.seq != expected:
            what = f"seq {decision.seq} where {expected} should be"
            self._report(FindingKind.SEQ_GAP, logged.offset, decision, what, *difference("seq", decision.seq, expected))
            self._partition.seq = decision.seq - 1
        self._chain.add_decision(self._bare(logged, decision))
        found = self._input(logged, decision)
        event = None
        if found is not None:
            number, record = found
            self._chain.add_input(self._topic_bytes[number], record.offset, record.key, record.value)
            event = self._decoders[number](record.key, record.value)
            if decision.reason is Reason.UNDECODABLE and (record.value or b"")[:FRAME_BYTES] != _OWN_FRAMES[number]:
                # Undecodable then; since, its writer's schema may have become known. The log's word stands.
                event = None
            self._refold(logged, decision, event, record)
        if decision.call_seq and decision.call_id in self._unverifiable:
            self._unverifiable.follow(decision)
        noted = self._rules.check(
            decision,
            event,
            logged.offset,
            logged.timestamp_ms,
            lambda kind, detail: self._report(kind, logged.offset, decision, detail),
        )
        if noted is not None:
            self._proof.counts[noted] += 1
        self._partition.seq = decision.seq

    def _bare(self, logged: LoggedDecision, decision: Decision) -> bytes:
        """The bytes that the chain runs over. The decision is left without what is advisory, as the fold makes it."""
        tail = self._encoder.tail(decision.decided_at_ms, decision.checkpoint)
        decision.decided_at_ms, decision.checkpoint = 0, None
        if logged.value.startswith(_DECISION_FRAME) and logged.value.endswith(tail):
            return logged.value[FRAME_BYTES : -len(tail)] + b"\0\0"
        return self._encoder.body(decision)  # of another writer's schema

    def _count(self, decision: Decision) -> None:
        counts = self._proof.counts
        counts["decisions"] += 1
        counted = _COUNTED.get(decision.verdict)
        if counted is not None:
            counts[counted] += 1
        if decision.orphaned_effect:
            counts["orphaned_effects"] += 1
        if decision.dispatch is not None:
            counts["dispatches"] += 1
        timestamp_ms = decision.input.timestamp_ms
        if timestamp_ms < self._newest_ms:
            self._proof.departures += 1
            self._proof.largest_departure_ms = max(self._proof.largest_departure_ms, self._newest_ms - timestamp_ms)
        else:
            self._newest_ms = timestamp_ms

    def _input(self, logged: LoggedDecision, decision: Decision) -> tuple[int, LogRecord] | None:
        """The record that the decision answers, and its input's number; what lies before it is undecided."""
        at, offset = decision.input, logged.offset
        if at.topic not in self._facts.input_topics or at.partition != self._number:
            where = f"{at.topic}[{at.partition}]"
            self._report(FindingKind.MISSING_INPUT, offset, decision, f"it answers a record of {where}, no input here")
            self._lose(decision)
            return None
        number = self._facts.input_topics.index(at.topic)
        if at.offset < self._inputs.next_offsets[number]:
            self._report(
                FindingKind.DOUBLE_DECISION,
                offset,
                decision,
                f"{at.topic}@{at.offset} was decided before, or passed by",
            )
            return None
        self._skip(number, at.offset)
        if at.offset < self._inputs.earliest[number]:
            self._inputs.pass_by(number, at.offset)
            self._gone += 1
            self._lose(decision)
            return None
        record = self._inputs.head(number)
        if record is None or record.offset != at.offset or record.timestamp_ms != at.timestamp_ms:
            found = "nothing" if record is None else f"offset {record.offset} at {record.timestamp_ms} ms"
            self._report(
                FindingKind.MISSING_INPUT,
                offset,
                decision,
                f"it answers {at.topic}@{at.offset} at {at.timestamp_ms} ms, where there is {found}",
            )
            self._lose(decision)
            return None
        self._inputs.take(number)
        self._proof.counts["inputs"] += 1
        return number, record

    def _lose(self, decision: Decision) -> None:
        """Its input is not there, so the state of its call is not known from here on."""
        if decision.call_seq:
            self._unverifiable.add(decision.call_id, self._partition.calls.get(decision.call_id))

    def _skip(self, number: int, before: int | None) -> None:
        """Take the records of an input up to an offset (None: to its end): no decision answers them."""
        topic, skipped, newest = self._facts.input_topics[number], 0, 0
        while (record := self._inputs.head(number)) is not None and (before is None or record.offset < before):
            self._inputs.take(number)
            self._proof.counts["inputs"] += 1
            skipped, newest = skipped + 1, record.offset
            if skipped <= _TOLD_UNDECIDED:
                self._undecided(topic, record.offset, "no decision answers it")
        if skipped > _TOLD_UNDECIDED:
            self._undecided(topic, newest, f"nor any of the {skipped - _TOLD_UNDECIDED} records that end here")

    def _lag(self, number: int) -> None:
        """Count what is left of an input."""
        while self._inputs.head(number) is not None:
            self._inputs.take(number)
            self._proof.counts["inputs"] += 1
            self._proof.undecided += 1

    def _undecided(self, topic: str, offset: int, detail: str) -> None:
        self._proof.add(Finding(FindingKind.UNDECIDED_INPUT, topic, self._number, offset, None, detail))

    def _refold(self, logged: LoggedDecision, said: Decision, event: Event | None, record: LogRecord) -> None:
        """`said` is the decision without what is advisory."""
        call_id = said.call_id
        if call_id in self._unverifiable:
            return
        in_its_partition = lies_in(self._number, record.key, self._facts.partition_count)
        folded = self._partition.decide(event, record.key, call_id, in_its_partition, said.input)
        self._proof.refolded += 1
        if folded == said or call_id in self._diverged:
            return
        self._diverged.add(call_id)
        differing = first_difference(_FIELDS, said, folded)
        self._report(
            FindingKind.REFOLD,
            logged.offset,
            said,
            f"{differing.field}: the log says {differing.logged}, the fold {differing.computed}",
            *differing,
        )

    def _report(
        self,
        kind: FindingKind,
        offset: int | None,
        decision: Decision | None,
        detail: str,
        field: str | None = None,
        logged: str | None = None,
        computed: str | None = None,
    ) -> None:
        topic = self._facts.decisions_topic
        call_id, seq = (None, None) if decision is None else (decision.call_id, decision.seq)
        self._proof.add(Finding(kind, topic, self._number, offset, call_id, detail, seq, field, logged, computed))

    def _report_table(
        self, call_id: str | None, detail: str, field: str | None, logged: object, computed: object
    ) -> None:
        said = (None, None, None) if field is None else difference(field, logged, computed)
        self._proof.add(
            Finding(FindingKind.TABLE, self._facts.table_topic, self._number, None, call_id, detail, None, *said)
        )
