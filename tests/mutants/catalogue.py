"""The mutants: each is one thing that somebody might well get wrong, and who is to notice."""
# One mutant a line, for a table is easier to read than a page of brackets.
# ruff: noqa: E501
# fmt: off

from tests.mutants.swap import Mutant

_FOLD = "epochfence.protocol.fold"
_RECORDS = "epochfence.protocol.records"
_PARTITION = "epochfence.protocol.partition"
_TASK = "epochfence.engine.task"
_MERGE = "epochfence.engine.merge"
_CHAIN = "epochfence.engine.chain"
_RECOVERY = "epochfence.engine.recovery"
_REFOLD = "epochfence.engine.refold"


def _fold(name: str, old: str, new: str, caught_by: str = "explorer") -> Mutant:
    return Mutant(name, _FOLD, old, new, caught_by)


FOLD = (
    # ---- the fence
    _fold("no fence on a timeout", "after.live_epoch += 1", "after.live_epoch += 0"),
    _fold("an epoch is leapt over", "after.live_epoch += 1", "after.live_epoch += 2"),
    _fold(
        "compensate before the bump",
        "        after.live_epoch,\n        _incarnation(after),\n        None,\n",
        "        after.live_epoch - 1,\n        _incarnation(after),\n        None,\n",
    ),
    _fold(
        "fence after the commit",
        "    if record.status is Status.COMMITTED and record.live_epoch_is_done:\n        return R14\n",
        "",
    ),
    _fold("a raised epoch keeps its kind", "    after.kind = kind\n", ""),
    _fold("the status stays INFLIGHT", "        after.status = Status.COMPENSATING\n", "        pass\n"),
    # ---- comparing epochs
    _fold("a stale epoch is heard", "    if epoch < record.live_epoch:", "    if False:"),
    _fold("a future epoch is heard", "    if epoch > record.live_epoch:", "    if False:"),
    _fold("the next epoch is heard", "    if epoch > record.live_epoch:", "    if epoch > record.live_epoch + 1:", "case"),
    _fold("> where >= was meant", "    if epoch < record.live_epoch:", "    if epoch < record.live_epoch - 1:"),
    _fold("the live epoch is stale", "    if epoch < record.live_epoch:", "    if epoch <= record.live_epoch:"),
    _fold(
        "a missing epoch is the live one",
        "    if ill_formed(event, max_body_bytes) is not None:\n        return R9\n    epoch = event.epoch\n",
        "    epoch = event.epoch if event.epoch is not None else record.live_epoch\n",
        "trace",
    ),
    _fold("epoch 0 is well-formed", "event.epoch is None or event.epoch < 1", "event.epoch is None", "row"),
    _fold("an empty execution_id will do", "    if not event.execution_id:\n", "    if False:\n", "reference"),
    _fold("a success without a payload", "Reason.MALFORMED if event.outcome is Outcome.SUCCESS else None", "None", "row"),
    _fold("a body of any size", "Reason.OVERSIZED if len(event.payload) > max_body_bytes else None", "None", "row"),
    # ---- who may speak
    _fold("another life is heard", "        return R8\n    if ill", "        pass\n    if ill", "case"),
    _fold("a tool speaks in a compensation", "    if record.kind is Kind.COMPENSATION:\n", "    if False:\n", "trace"),
    _fold("a compensator speaks in a call", "    if record.kind is Kind.CALL:\n        return R19\n", "", "trace"),
    _fold("a cancelled call opens", "            return R2\n", "            return R1\n"),
    _fold("a call is opened twice", "        return R3 if same else R4\n", "        return R1 if same else R4\n"),
    _fold("other arguments are the same call", "        return R3 if same else R4\n", "        return R3\n", "case"),
    _fold("a duplicate commits again", "        return R20 if same else R21\n", "        return R23 if same else R21\n"),
    _fold("a conflict is a duplicate", "        return R20 if same else R21\n", "        return R20\n"),
    # ---- what commits
    _fold("UNKNOWN commits", "    if event.outcome is Outcome.UNKNOWN:\n        return R22\n", ""),
    _fold("FAILURE after evidence commits", "(event.epoch != 1 or record.suspected)", "event.epoch != 1", "case"),
    _fold("FAILURE of a replay commits", "(event.epoch != 1 or record.suspected)", "record.suspected"),
    _fold("FAILED commits", "    if event.outcome is Outcome.OK:\n        return R26", "    if True:\n        return R26"),
    _fold("a late OK of an escalated call is lost", "else R25\n", "else R25 if record.status is Status.COMPENSATING else R24\n", "row"),
    _fold("a settled clean-up settles again", "    if record.live_epoch_is_done:\n        return R24\n", ""),
    _fold("suspicion is forgotten", "        after.suspected = True\n", "        pass\n", "case"),
    # ---- budgets
    _fold("replay without a budget", "        and record.live_epoch + 2 <= record.max_epochs\n", ""),
    _fold("no epoch left to compensate", "record.live_epoch + 2 <= record.max_epochs", "record.live_epoch + 1 <= record.max_epochs"),
    _fold("a cancelled call is replayed", "(cause is Cause.DEADLINE or cause is Cause.WATCHDOG)", "True"),
    _fold("replay while compensating", "        and record.status is Status.INFLIGHT\n", "", "row"),
    _fold("the policy is not asked", "        record.policy is Policy.REPLAY\n        and ", "        "),
    _fold("an operator has a budget too", "    if event.cause is Cause.OPERATOR and (", "    if False and ("),
    _fold("anybody is an operator", "    if event.cause is Cause.OPERATOR and (", "    if True and (", "row"),
    _fold("timeouts know no budget", "    if record.live_epoch >= record.max_epochs:\n        return R15\n", ""),
    _fold("failures know no budget", "    if after.live_epoch >= after.max_epochs:\n        return _escalate", "    if False:\n        return _escalate", "row"),
    _fold("escalation that forgets", "        after.status = Status.ESCALATED\n    return Verdict.ESCALATE", "        pass\n    return Verdict.ESCALATE"),
    _fold("an orphan that does not escalate", "        after.status = Status.ESCALATED\n    return True, None", "        pass\n    return True, None", "row"),
    # ---- orphans
    _fold("forget an unsettled call", "    after.unsettled = True\n", ""),
    _fold("an orphan is not cleaned up", "        return True, _raise(after, Kind.COMPENSATION, at)\n", "        return True, None\n", "case"),
    _fold("an orphan of any budget", "    if after.live_epoch < after.max_epochs:\n        return True, _raise", "    if True:\n        return True, _raise", "trace"),
    _fold("any OK settles", "    if after.orphan_epoch is None or after.live_epoch > after.orphan_epoch:\n", "    if True:\n"),
    _fold("nothing settles", "    if after.orphan_epoch is None or after.live_epoch > after.orphan_epoch:\n        after.unsettled = False\n", "    pass\n", "trace"),
    _fold("an old OK settles a new orphan", "after.live_epoch > after.orphan_epoch:", "after.live_epoch >= after.orphan_epoch:"),
    _fold("a clean-up is never done", "    after.settled_epoch = after.live_epoch\n", "", "row"),
    _fold("an orphan is flagged each time", "    if orphan in after.remembered_orphans:\n        return False, None\n", "", "trace"),
    _fold("an orphan is flagged by its outcome", "RememberedOrphan(digest(event.execution_id), event.outcome)", "RememberedOrphan(digest(''), event.outcome)", "row"),
    _fold("the newest orphan is forgotten", "[-REMEMBERED_ORPHANS:]", "[:REMEMBERED_ORPHANS]", "row"),
    _fold("a committed effect is an orphan", "        return False, None  # the effect is the one that was committed\n", "        pass\n"),
    _fold("REPORT cleans up", "    if after.orphans is not Orphans.COMPENSATE:\n        return True, None\n", "", "trace"),
    _fold("COMPENSATE only reports", "    if after.orphans is not Orphans.COMPENSATE:\n", "    if True:\n"),
    _fold("an orphan of no record is not flagged", "seq, reason, _tells_of_effect(event)", "seq, reason, False", "row"),
    _fold("UNKNOWN tells of no effect", "(event.outcome is Outcome.SUCCESS or event.outcome is Outcome.UNKNOWN)", "event.outcome is Outcome.SUCCESS"),
    _fold("evidence is not kept", "    _note_evidence(after, event, max_body_bytes)\n    if after.status", "    if after.status", "row"),
    _fold("evidence of any size", "event.payload is not None and len(event.payload) <= max_body_bytes", "event.payload is not None", "row"),
    # ---- keys
    _fold("one key for an orphan's clean-up", "        after.orphan_epoch is not None and after.orphan_epoch >= after.key_first_epoch\n", "        False\n"),
    _fold("the next key at every retry", "        after.orphan_epoch is not None and after.orphan_epoch >= after.key_first_epoch\n", "        True\n", "row"),
    _fold("> for >= in the key", "after.orphan_epoch >= after.key_first_epoch", "after.orphan_epoch > after.key_first_epoch"),
    _fold("the call's key changes with the epoch", "        after.effective_key,\n        None,\n        None,\n", "        f'{after.effective_key}:{after.live_epoch}',\n        None,\n        None,\n", "row"),
    _fold("the next key has a first OK already", "        after.first_ok_execution = None\n", ""),
    _fold("a double compensation is not named", "    return after.first_ok_execution != execution\n", "    return False\n", "trace"),
    _fold("every repeat is a double", "    return after.first_ok_execution != execution\n", "    return True\n"),
    # ---- the step
    _fold("the given record is changed", "    after = copy_record(record)\n", "    after = record\n", "partition"),
    _fold("arguments are dropped at once", " and after.orphans is not Orphans.COMPENSATE and after.closed:", ":"),
    _fold("arguments are dropped at the commit", "after.arguments is not None and after.orphans is not Orphans.COMPENSATE and", "after.arguments is not None and"),
    _fold("a rejected event has no number", "    after.call_seq += 1\n", "", "trace"),
    Mutant("an unsettled call is closed", _RECORDS, " and not self.unsettled and ", " and ", "row"),
    Mutant("a settled clean-up is in flight", _RECORDS, " or self.live_epoch == self.settled_epoch", "", "row"),
    Mutant("a cancelled call is never closed", _RECORDS, "        if self.status is Status.CANCELLED:\n            return True\n", "", "partition"),
    Mutant("null and empty bodies are one", _RECORDS, 'b"\\0" if body is None else b"\\1" + body', 'body or b""', "row"),
    Mutant("parts of a call slide", _RECORDS, '        hasher.update(len(part).to_bytes(8, "big"))\n', "", "row"),
)


def _engine(name: str, module: str, old: str, new: str, caught_by: str = "engine", *constants: str) -> Mutant:
    return Mutant(name, module, old, new, caught_by, constants)


PARTITION = (
    _engine("undo keeps the new calls", _PARTITION, "                self.calls.pop(call_id, None)\n", "                pass\n", "partition"),
    _engine("undo goes one step back", _PARTITION, "self._before.setdefault(event.call_id, before)", "self._before[event.call_id] = before", "partition"),
    _engine("undo keeps the seq", _PARTITION, "self.seq, self.stream_time_ms, self.parameters = self._saved", "_, self.stream_time_ms, self.parameters = self._saved", "partition"),
    _engine("undo keeps the stream time", _PARTITION, "self.seq, self.stream_time_ms, self.parameters = self._saved", "self.seq, _, self.parameters = self._saved", "partition"),
    _engine("undo turns the order of the closed", _PARTITION, "extendleft(reversed(self._dequeued))", "extendleft(self._dequeued)", "partition"),
    _engine("undo keeps what became closed", _PARTITION, "        for _ in range(self._enqueued):\n            self._closed.pop()\n", "", "partition"),
    _engine("a forgotten call cannot come back", _PARTITION, "                self._before.setdefault(call_id, record)\n", "", "partition"),
    _engine("forgotten a millisecond early", _PARTITION, "self.parameters.retention_ms < self.stream_time_ms", "self.parameters.retention_ms <= self.stream_time_ms", "partition"),
    _engine("a younger stamp is not looked at", _PARTITION, "record is not None and record.closed_at_ms == closed_at_ms", "record is not None", "partition"),
    _engine("stream time falls", _PARTITION, "max(self.stream_time_ms, newest)", "newest", "partition"),
    _engine("stream time passes the clock", _PARTITION, "self._newest_ms if now_ms is None else min(self._newest_ms, now_ms)", "self._newest_ms", "partition"),
    _engine("parameters at once", _PARTITION, "        forgotten = self._forget()\n        if parameters is not None:\n            self.parameters = parameters\n", "        if parameters is not None:\n            self.parameters = parameters\n        forgotten = self._forget()\n", "partition"),
    _engine("what was restored is never forgotten", _PARTITION, "for r in self.calls.values() if r.closed_at_ms is not None", "for r in ()", "partition"),
    _engine("a step is not checked", _PARTITION, "            check_step(before, after, decision)\n", "", "stop"),
)

ENGINE = (
    _engine("topics merged in name order", _MERGE, '("tool-calls", "results", "compensations", "timeouts")', '("compensations", "results", "timeouts", "tool-calls")', "engine", "_TIE_ORDER", "_RANK"),
    _engine("topic by topic", _MERGE, "min(heads, key=_head) if len(heads) > 1 else heads[0]", "heads[0]"),
    _engine("the merge waits for nobody", _MERGE, "        if self.waiting_for():\n            return taken\n", "", "merge"),
    _engine("the merge goes on past an unknown head", _MERGE, "                if not self._at_end[record.input]:\n                    break\n", "", "merge"),
    _engine("put back the wrong way round", _MERGE, "for record in reversed(records):", "for record in records:", "merge"),
    _engine("clear keeps what was fetched", _MERGE, "            queue.clear()\n", "            pass\n"),
    _engine("undo keeps the chain", _TASK, "        self._chain.undo()\n", ""),
    _engine("undo keeps the offsets", _TASK, "        self._next_offsets = list(self._committed_offsets)\n        self._held", "        self._held"),
    _engine("undo keeps the held decision", _TASK, "        self._held = None\n        self._sealed = None\n        self.merge", "        self._sealed = None\n        self.merge"),
    _engine("undo keeps the partition", _TASK, "        self._partition.undo()\n", ""),
    _engine("the table's records are not written", _TASK, "        for call_id, record in ended.changed.items():\n            sink.table(self.number, call_id.encode(), encode_record(record))\n", ""),
    _engine("the forgotten stay in the table", _TASK, "        for call_id in ended.forgotten:\n            sink.table(self.number, call_id.encode(), None)\n", ""),
    _engine("the table has no checkpoint", _TASK, "        sink.table(self.number, CHECKPOINT_KEY, encode_checkpoint(checkpoint))\n", ""),
    _engine("a checkpoint of the last offsets", _TASK, "facts.input_topic_ids, self._next_offsets)", "facts.input_topic_ids, self._committed_offsets)"),
    _engine("a checkpoint without offsets", _TASK, "facts.input_topic_ids, self._next_offsets)", "facts.input_topic_ids, [0] * 4)"),
    _engine("no checkpoint on the last decision", _TASK, "self._encoder.tail(now_ms, checkpoint)", "self._encoder.tail(now_ms, None)"),
    _engine("the next offset is the last one", _TASK, "record.offset + 1\n        return decision", "record.offset\n        return decision"),
    _engine("a commit does not keep the partition", _TASK, "        self._partition.commit()\n", ""),
    _engine("a commit does not move the offsets", _TASK, "        self._committed_offsets = list(self._next_offsets)\n        self._sealed", "        self._sealed"),
    _engine("any partition is the right one", _TASK, "lies_in(self.number, record.key, self._facts.partition_count)", "True", "recovery"),
    _engine("decisions are held and never written", _TASK, "                self._write(held, tail, sink)\n", "                pass\n"),
    _engine("the chain stands still", _CHAIN, "        self.head = head\n        self.undo()\n", "        self.undo()\n"),
    _engine("the chain never forgets", _CHAIN, "        self._decisions.clear()\n", ""),
    _engine("the chain leaves the key out", _CHAIN, 'key or b"", value or b"")', 'value or b"")'),
    _engine("the chain leaves the inputs out", _CHAIN, 'self.head.inputs + b"".join(self._inputs)', "self.head.inputs"),
    _engine("a taken key stays in the table", _RECOVERY, "                newest.pop(key, None)\n", "                pass\n"),
    _engine("a table that stands behind is believed", _RECOVERY, "        if base.seq < last.seq:\n            return self._roll_forward(base, table, last, bounds)\n        if base != last:\n", "        if False:\n"),
    _engine("the restored chain starts anew", _RECOVERY, "RunningChain(checkpoint.chain)", "RunningChain()"),
    _engine("the restored seq starts anew", _RECOVERY, "Partition(parameters, checkpoint.seq, checkpoint.stream_time_ms)", "Partition(parameters, 0, checkpoint.stream_time_ms)"),
    _engine("the restored stream time starts anew", _RECOVERY, "Partition(parameters, checkpoint.seq, checkpoint.stream_time_ms)", "Partition(parameters, checkpoint.seq, 0)", "recovery"),
    _engine("the restored records are left out", _RECOVERY, "        partition.load(records.values())\n", ""),
    _engine("records without a checkpoint stay", _RECOVERY, "            stale = table.records\n", "            stale = {}\n", "recovery"),
    _engine("a table ahead is believed", _RECOVERY, "        if base.seq > last.seq:\n", "        if False:\n", "damage"),
    _engine("a torn transaction is believed", _RECOVERY, "        if checkpoint is None:\n            raise self._refusal(\n                self._facts.decisions_topic,\n                f\"the last", "        if False:\n            raise self._refusal(\n                self._facts.decisions_topic,\n                f\"the last", "damage"),
    _engine("truncated inputs are believed", _RECOVERY, "            if high_watermark < next_offset:\n", "            if False:\n", "damage"),
    _engine("inputs that are gone are believed", _RECOVERY, "            if earliest > next_offset:\n", "            if False:\n", "recovery"),
    _engine("another partition count is believed", _RECOVERY, "        if checkpoint.partition_count != facts.partition_count:\n", "        if False:\n", "recovery"),
    _engine("a topic made anew is believed", _RECOVERY, "            if were.get(topic) != topic_id:\n", "            if False:\n", "recovery"),
    _engine("lost decisions are a first start", _RECOVERY, "        if table.checkpoint is not None or table.records or decided > 0:\n", "        if False:\n", "recovery"),
    _engine("a refold compares nothing", _REFOLD, "            if ours != theirs:\n", "            if False:\n", "damage"),
    _engine("a refold skips a gap", _REFOLD, "        if logged.seq != partition.seq + 1:\n", "        if False:\n", "recovery"),
    _engine("a refold compares no chain", _REFOLD, "        if head != checkpoint.chain:\n", "        if False:\n", "recovery"),
    _engine("a refold keeps no chain", _REFOLD, "        self._state.chain.commit(head)\n", ""),
    _engine("a refold touches nothing", _REFOLD, "        return {*ended.changed, *ended.forgotten}\n", "        return {*ended.changed}\n", "engine"),
)

ALL = (*FOLD, *PARTITION, *ENGINE)
