"""What the topics alone prove: every decision of a prefix, checked against its input, its neighbours and the fold.

One pass. The decisions are walked in the order of their offsets, a transaction at a time, beside the four inputs that
they answer. For each decision: (1) is it the next one; (2) does it answer the next record of its input; (3) do the
rules of its call hold; (4) does the fold decide the same. At a transaction's end: (5) does the chain lead to the
checkpoint's. What is wrong is noted and the walk goes on from what the log says, so that one damage is told once.

Memory: a transaction, and what the processor itself remembers of the calls.
"""

from dataclasses import fields, replace

from epochfence.audit.calls import CallRules
from epochfence.audit.findings import ChainHead, Finding, FindingKind, Proof
from epochfence.audit.history import Archive, LoggedDecision, read_decisions
from epochfence.engine.chain import RunningChain
from epochfence.engine.history import LogRecord
from epochfence.engine.task import event_decoders
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Checkpoint, Decision
from epochfence.protocol.events import Event
from epochfence.protocol.partition import Partition
from epochfence.protocol.vocabulary import Reason, Verdict
from epochfence.wire.codec import FRAME_BYTES, DecisionEncoder, EventDecoder, frame
from epochfence.wire.routing import lies_in
from epochfence.wire.schemas import EVENT_SCHEMAS, INPUT_TOPICS

_FIELDS = tuple(field.name for field in fields(Decision))
_OWN_FRAMES = tuple(frame(EVENT_SCHEMAS[topic]) for topic in INPUT_TOPICS)
_TOLD_UNDECIDED = 3
"""Of a row of undecided records so many are named one by one, the rest together."""


def prove(archive: Archive) -> Proof:
    """Check everything under the archive's prefix. The log should be at rest: what is not decided yet is a finding.

    Raises ClusterError where the cluster does not answer, LogError where records go while they are read.
    """
    proof = Proof(archive.prefix)
    decoders = event_decoders(archive.lookup)
    for number in range(archive.facts.partition_count):
        _PartitionProof(archive, number, decoders, proof).run()
    return proof


class _Inputs:
    """The four inputs of a partition, each read once, in the order of its offsets."""

    def __init__(self, archive: Archive, number: int) -> None:
        history = archive.partition(number)
        topics = archive.facts.input_topics
        self._iterators = [iter(history.read(topic, *history.bounds(topic))) for topic in topics]
        self.next_offsets = [0] * len(topics)
        """Of each input the offset after the last record that was taken."""
        self._heads: list[LogRecord | None] = [next(iterator, None) for iterator in self._iterators]

    def head(self, input: int) -> LogRecord | None:
        """The next record of an input; None at its end."""
        return self._heads[input]

    def take(self, input: int) -> None:
        """Go on to the record after the head."""
        head = self._heads[input]
        assert head is not None
        self.next_offsets[input] = head.offset + 1
        self._heads[input] = next(self._iterators[input], None)


class _PartitionProof:
    def __init__(self, archive: Archive, number: int, decoders: tuple[EventDecoder, ...], proof: Proof) -> None:
        self._archive = archive
        self._facts = archive.facts
        self._number = number
        self._decoders = decoders
        self._proof = proof
        self._partition = Partition(Parameters())
        self._chain = RunningChain()
        self._encoder = DecisionEncoder()
        self._rules = CallRules()
        self._diverged: set[str] = set()
        """Calls whose first divergence was told, while they are remembered."""

    def run(self) -> None:
        topic = self._facts.decisions_topic
        # The decisions' end first: an input that they answer is then surely within what is read of the inputs.
        bounds = self._archive.partition(self._number).bounds(topic)
        self._inputs = _Inputs(self._archive, self._number)
        transaction: list[LoggedDecision] = []
        for logged in read_decisions(self._archive, self._number, bounds):
            if logged.decision is None:
                self._report(FindingKind.NOT_A_DECISION, logged.offset, None, logged.wrong or "")
                continue
            transaction.append(logged)
            if logged.decision.checkpoint is not None:
                self._transaction(transaction, logged.decision.checkpoint)
                transaction = []
        if transaction:
            self._torn(transaction)
        for number in range(len(self._facts.input_topics)):
            self._skip(number, None)
        if self._partition.seq:
            head = self._chain.head
            self._proof.heads.append(
                ChainHead(self._number, self._partition.seq, head.decisions.hex(), head.inputs.hex())
            )

    # ---- a transaction ----------------------------------------------------------------------------------------------

    def _transaction(self, transaction: list[LoggedDecision], checkpoint: Checkpoint) -> None:
        in_force = Parameters(checkpoint.retention_ms, checkpoint.max_body_bytes)
        if self._partition.seq == 0:
            self._partition.parameters = in_force  # nothing was stated before: the first transaction states its own
        for logged in transaction:
            self._one(logged)
        ended = self._partition.end_transaction(checkpoint.stream_time_ms, in_force)
        self._partition.commit()
        self._rules.forget(ended.forgotten)
        self._diverged.difference_update(ended.forgotten)
        self._checkpoint(transaction[-1], checkpoint)
        self._proof.counts["transactions"] += 1

    def _torn(self, transaction: list[LoggedDecision]) -> None:
        for logged in transaction:
            self._one(logged)
        last = transaction[-1]
        self._report(FindingKind.TORN_TRANSACTION, last.offset, None, "the last decision carries no checkpoint")

    def _checkpoint(self, last: LoggedDecision, stated: Checkpoint) -> None:
        computed = self._chain.next_head()
        if computed.decisions != stated.chain.decisions:
            self._report(FindingKind.DECISIONS_CHAIN, last.offset, None, "it breaks in the transaction that ends here")
        if computed.inputs != stated.chain.inputs:
            self._report(FindingKind.INPUTS_CHAIN, last.offset, None, "it breaks in the transaction that ends here")
        self._chain.commit(stated.chain)  # go on from what the log says: the next break is another one
        if self._partition.stream_time_ms != stated.stream_time_ms:
            self._report(
                FindingKind.CHECKPOINT,
                last.offset,
                None,
                f"stream time is {stated.stream_time_ms} ms, the inputs give {self._partition.stream_time_ms} ms",
            )
            self._partition.stream_time_ms = stated.stream_time_ms
        facts = self._facts
        positions = list(zip(facts.input_topics, facts.input_topic_ids, self._inputs.next_offsets, strict=True))
        of_these = (stated.seq, stated.partition_count, stated.decisions_topic_id, [tuple(p) for p in stated.inputs])
        if of_these != (self._partition.seq, facts.partition_count, facts.decisions_topic_id, positions):
            self._report(
                FindingKind.CHECKPOINT, last.offset, None, "it states another seq, other offsets, or other topics"
            )

    # ---- a decision ------------------------------------------------------------------------------------------------

    def _one(self, logged: LoggedDecision) -> None:
        decision = logged.decision
        assert decision is not None
        self._count(decision)
        expected = self._partition.seq + 1
        if decision.seq != expected:
            self._report(FindingKind.SEQ_GAP, logged.offset, decision, f"seq {decision.seq} where {expected} should be")
            self._partition.seq = decision.seq - 1
        body = replace(decision, decided_at_ms=0, checkpoint=None)
        self._chain.add_decision(self._encoder.body(body))
        found = self._input(logged, decision)
        event = None
        if found is not None:
            number, record = found
            self._chain.add_input(decision.input.topic.encode(), record.offset, record.key, record.value)
            event = self._decoders[number](record.value)
            if decision.reason is Reason.UNDECODABLE and (record.value or b"")[:FRAME_BYTES] != _OWN_FRAMES[number]:
                # Undecodable then; since, its writer's schema may have become known. The log's word stands.
                event = None
            self._refold(logged, body, event, record)
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

    def _count(self, decision: Decision) -> None:
        counts = self._proof.counts
        counts["decisions"] += 1
        counts["calls"] += decision.verdict is Verdict.OPEN
        counts["commits"] += decision.verdict is Verdict.COMMIT
        counts["rejections"] += decision.verdict is Verdict.REJECT
        counts["orphaned_effects"] += decision.orphaned_effect
        counts["dispatches"] += decision.dispatch is not None

    def _input(self, logged: LoggedDecision, decision: Decision) -> tuple[int, LogRecord] | None:
        """The record that the decision answers, and its input's number; what lies before it is undecided."""
        at, offset = decision.input, logged.offset
        if at.topic not in self._facts.input_topics or at.partition != self._number:
            where = f"{at.topic}[{at.partition}]"
            self._report(FindingKind.MISSING_INPUT, offset, decision, f"it answers a record of {where}, no input here")
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
        record = self._inputs.head(number)
        if record is None or record.offset != at.offset or record.timestamp_ms != at.timestamp_ms:
            found = "nothing" if record is None else f"offset {record.offset} at {record.timestamp_ms} ms"
            self._report(
                FindingKind.MISSING_INPUT,
                offset,
                decision,
                f"it answers {at.topic}@{at.offset} at {at.timestamp_ms} ms, where there is {found}",
            )
            return None
        self._inputs.take(number)
        self._proof.counts["inputs"] += 1
        return number, record

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

    def _undecided(self, topic: str, offset: int, detail: str) -> None:
        self._proof.add(Finding(FindingKind.UNDECIDED_INPUT, topic, self._number, offset, None, detail))

    def _refold(self, logged: LoggedDecision, said: Decision, event: Event | None, record: LogRecord) -> None:
        """`said` is the decision without what is advisory."""
        in_its_partition = lies_in(self._number, record.key, self._facts.partition_count)
        folded = self._partition.decide(event, record.key, said.call_id, in_its_partition, said.input)
        if folded == said or said.call_id in self._diverged:
            return
        self._diverged.add(said.call_id)
        differing = ", ".join(name for name in _FIELDS if getattr(folded, name) != getattr(said, name))
        self._report(
            FindingKind.REFOLD,
            logged.offset,
            said,
            f"{differing}: the log says {said.verdict} {said.reason}, the fold {folded.verdict} {folded.reason}",
        )

    def _report(self, kind: FindingKind, offset: int | None, decision: Decision | None, detail: str) -> None:
        call_id = None if decision is None else decision.call_id
        self._proof.add(Finding(kind, self._facts.decisions_topic, self._number, offset, call_id, detail))
