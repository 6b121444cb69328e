"""REFERENCE: the fold, written from the text of the protocol alone. Plain, obvious and slow on purpose.

It imports nothing of the product. Each sentence of the text that decides something is quoted or named where it is
done. Where the text is silent the literal reading is taken and the place is marked SILENT.

    python -m tests.independent.reference < events.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tests.independent.jsonform import TOPIC_OF_TYPE, UndecodableError, jsonable, parse_line
from tests.independent.records import Answer, Call, Event, as_claimed, call_key, tells_of_an_effect

THIRTY_DAYS_MS = 2_592_000_000
REMEMBERED_ORPHANS = 32


class ReferencePartition:
    """One partition of the processor, in memory.

    `decide` takes an event (Avro names, bytes as bytes, plus "type") or None for bytes that do not decode, and where
    it stood: topic, partition, offset, timestamp_ms, and if need be `call_id` (what the decision about undecodable
    bytes names) and `misrouted`. Its answer has all the fields of decision.avsc, with bytes as bytes. Parameters may
    be changed between transactions. `last_row` names the row of the table that decided, or the admission rule.
    """

    def __init__(
        self, retention_ms: int = 86_400_000, max_body_bytes: int = 262_144, prefix: str = "epochfence."
    ) -> None:
        self.retention_ms = retention_ms
        self.max_body_bytes = max_body_bytes
        self.prefix = prefix
        self.stream_time_ms = 0
        self.seq = 0
        self.calls: dict[str, Call] = {}
        self.last_row: int | str = ""
        self._lines = 0
        self.timestamps_ms: list[int] = []
        self._just_closed: set[str] = set()

    # ---- the JSON form --------------------------------------------------------------------------------------

    def decide_line(self, line: bytes) -> dict[str, Any]:
        """One line of `fold`: a transaction of its own. The answer is in the JSON form."""
        number, self._lines = self._lines, self._lines + 1
        at = {"topic": "", "partition": 0, "offset": number, "timestamp_ms": 0}
        event: Event | None
        try:
            event, at["timestamp_ms"] = parse_line(line, number)
            at["topic"] = self.prefix + TOPIC_OF_TYPE[event["type"]]
        except UndecodableError:
            event = None  # timestamp 0: "an undecodable line ... does not move stream time"
        decision = self.decide(event, at)
        self.end_transaction()
        result = jsonable(decision)
        assert isinstance(result, dict)
        return result

    # ---- a transaction's end ---------------------------------------------------------------------------------

    def end_transaction(self, now_ms: int | None = None) -> None:
        """Moves stream time (never beyond now_ms, the processor's own clock, if given), stamps and forgets."""
        newest_ms = max(self.timestamps_ms, default=self.stream_time_ms)
        if now_ms is not None:
            newest_ms = min(newest_ms, now_ms)
        self.stream_time_ms = max(self.stream_time_ms, newest_ms)
        self.timestamps_ms = []
        for call_id in self._just_closed:
            if self.calls[call_id].closed:
                self.calls[call_id].closed_at_ms = self.stream_time_ms
        self._just_closed = set()
        for call_id, call in list(self.calls.items()):
            if call.closed_at_ms is not None and call.closed_at_ms + self.retention_ms < self.stream_time_ms:
                del self.calls[call_id]

    # ---- a decision ------------------------------------------------------------------------------------------

    def decide(self, event: Event | None, at: dict[str, Any]) -> dict[str, Any]:
        """The decision about one input record. decided_at_ms and checkpoint are None."""
        self.seq += 1
        self.timestamps_ms.append(at["timestamp_ms"])
        decision = as_claimed(event, at, self.seq)
        rejected = self._admission(event, at)
        if rejected is not None:
            self.last_row, decision["verdict"], decision["reason"] = rejected, "REJECT", rejected.split(" ")[0]
            return decision
        assert event is not None
        before = self.calls.get(event["call_id"])
        was_closed = before is not None and before.closed
        call, answer = self._fold(before, event, at)
        self.last_row = answer.row
        for name in ("verdict", "reason", "orphaned_effect", "payload", "dispatch"):
            decision[name] = getattr(answer, name)
        if call is None:
            return decision
        self.calls[call.call_id] = call
        call.seq = self.seq
        call.call_seq += 1
        if not call.closed:
            call.closed_at_ms = None
            self._just_closed.discard(call.call_id)
        elif not was_closed:
            self._just_closed.add(call.call_id)
        stands = ("call_seq", "incarnation", "live_epoch", "status", "committed_epoch", "committed_by")
        for name in (*stands, "committed_outcome", "commit_seq", "unsettled"):
            decision[name] = getattr(call, name)
        return decision

    def _admission(self, event: Event | None, at: dict[str, Any]) -> str | None:
        """The reason of the first admission rule that fits, and which rule where a reason has several."""
        if event is None:
            return "UNDECODABLE"
        if at.get("misrouted", False):
            return "MISROUTED"
        call_id = event["call_id"].encode("utf-8")
        if not call_id or len(call_id) > 256 or call_id.startswith(b"\0"):
            return "MALFORMED call_id"
        if event["type"] != "tool_call":
            return None
        in_range = 1 <= event["timeout_ms"] <= THIRTY_DAYS_MS and 2 <= event["max_epochs"] <= 100
        if not in_range or not event["tool"] or not event["runner"]:
            return "MALFORMED range"
        if event["policy"] == "REPLAY" and not event["idempotency_key"]:
            return "MALFORMED replay"
        if event["arguments"] is not None and len(event["arguments"]) > self.max_body_bytes:
            return "OVERSIZED"
        if at["timestamp_ms"] - event["occurred_at_ms"] > self.retention_ms:
            return "EXPIRED"
        return None

    # ---- the table: the first row that fits decides ----------------------------------------------------------

    def _fold(self, call: Call | None, e: Event, at: dict[str, Any]) -> tuple[Call | None, Answer]:
        if e["type"] == "tool_call":
            return self._tool_call(call, e, at)
        if call is None:
            return self._no_record(e, at)
        return call, self._on_record(call, e, at)

    def _tool_call(self, call: Call | None, e: Event, at: dict[str, Any]) -> tuple[Call, Answer]:
        if call is None:
            now_ms = at["timestamp_ms"]
            call = Call(e["call_id"], at["offset"], now_ms, 1, now_ms, "CALL", "INFLIGHT", e)
            return call, Answer(1, "OPEN", dispatch=self._dispatch_call(call))
        if call.status == "CANCELLED":
            return call, Answer(2, "REJECT", "FENCED_BEFORE_OPEN")
        if all(e[name] == call.planner[name] for name in ("tool", "arguments", "idempotency_key")):
            return call, Answer(3, "REJECT", "DUPLICATE")
        return call, Answer(4, "REJECT", "CONFLICT")

    def _no_record(self, e: Event, at: dict[str, Any]) -> tuple[Call | None, Answer]:
        if e["type"] == "timeout" and e["epoch"] == 1 and e["incarnation"] is None:
            now_ms = at["timestamp_ms"]
            call = Call(e["call_id"], None, now_ms, 2, now_ms, "COMPENSATION", "CANCELLED", None)
            return call, Answer(5, "FENCE", "FENCED_BEFORE_OPEN")
        ill = self._ill_formed(e)
        if ill is not None:
            return None, Answer(6, "REJECT", ill, orphaned_effect=tells_of_an_effect(e))
        return None, Answer(7, "REJECT", "UNKNOWN_CALL", orphaned_effect=tells_of_an_effect(e))

    def _ill_formed(self, e: Event) -> str | None:
        if e["epoch"] is None or e["epoch"] < 1:
            return "MALFORMED"
        if e.get("execution_id") == "":
            return "MALFORMED"
        if e.get("outcome") == "SUCCESS" and e["payload"] is None:
            return "MALFORMED"
        if e.get("payload") is not None and len(e["payload"]) > self.max_body_bytes:
            return "OVERSIZED"
        return None

    def _on_record(self, call: Call, e: Event, at: dict[str, Any]) -> Answer:
        # Row 8. Only a Timeout may have no incarnation; in `fold` a Result's or Compensation's may be left out, and
        # then it is the record's own.
        theirs = e.get("incarnation")
        spoken_for_a_cancelled = call.status == "CANCELLED" and e["type"] != "timeout"
        if spoken_for_a_cancelled or (theirs is not None and theirs != call.incarnation):
            return Answer(8, "REJECT", "WRONG_INCARNATION", orphaned_effect=tells_of_an_effect(e))
        ill = self._ill_formed(e)
        if ill is not None:
            return self._orphan(call, e, at, Answer(9, "REJECT", ill))
        # A well-formed OK in an epoch that carries the current key, "whatever its verdict".
        doubled = self._is_double_compensation(call, e)
        if e["epoch"] > call.live_epoch:
            answer = self._orphan(call, e, at, Answer(10, "REJECT", "FUTURE_EPOCH"))
        elif e["epoch"] < call.live_epoch:
            answer = self._orphan(call, e, at, Answer(11, "REJECT", "STALE_EPOCH"))
        elif e["type"] == "timeout":
            answer = self._timeout(call, e, at)
        elif e["type"] == "result":
            answer = self._result(call, e, at)
        else:
            answer = self._compensation(call, e, at)
        if doubled:
            answer.reason = "DOUBLE_COMPENSATION"
        return answer

    def _timeout(self, call: Call, e: Event, at: dict[str, Any]) -> Answer:
        if call.status == "CANCELLED":
            return Answer(12, "REJECT", "CLOSED")
        if e["cause"] == "OPERATOR" and (call.status == "ESCALATED" or call.unsettled):
            return Answer(13, "FENCE", dispatch=self._raise_compensation(call, at))
        if call.status == "COMMITTED" and not call.clean_up_in_flight:
            return Answer(14, "REJECT", "ALREADY_COMMITTED")
        if call.live_epoch >= call.planner["max_epochs"]:
            return self._exhausted(call)
        return self._rows_16_and_17(call, e["cause"], at)

    def _exhausted(self, call: Call) -> Answer:
        if call.status != "COMMITTED":
            call.status = "ESCALATED"
        return Answer(15, "ESCALATE", "EPOCHS_EXHAUSTED")

    def _rows_16_and_17(self, call: Call, cause: str, at: dict[str, Any]) -> Answer:
        replays = call.status == "INFLIGHT" and call.planner["policy"] == "REPLAY"
        if cause in ("DEADLINE", "WATCHDOG") and replays and call.live_epoch + 2 <= call.planner["max_epochs"]:
            call.live_epoch += 1
            call.live_since_ms = at["timestamp_ms"]
            return Answer(16, "FENCE", dispatch=self._dispatch_call(call))
        return Answer(17, "FENCE", dispatch=self._raise_compensation(call, at))

    def _result(self, call: Call, e: Event, at: dict[str, Any]) -> Answer:
        if call.kind == "COMPENSATION":
            return self._orphan(call, e, at, Answer(18, "REJECT", "WRONG_SPEAKER"))
        if call.status == "COMMITTED":
            if (e["outcome"], e["payload"]) == (call.committed_outcome, call.committed_payload):
                return Answer(20, "REJECT", "DUPLICATE")
            return self._orphan(call, e, at, Answer(21, "REJECT", "CONFLICT"))
        assert call.status == "INFLIGHT", "a CALL epoch is live only while INFLIGHT or COMMITTED"
        if e["outcome"] == "UNKNOWN" or (e["outcome"] == "FAILURE" and (e["epoch"] > 1 or call.suspected)):
            self._take_evidence(call, e)
            answer = self._rows_16_and_17(call, "DEADLINE", at)
            answer.row, answer.reason = 22, "OUTCOME_UNKNOWN"
            return answer
        self._commit(call, "RESULT", e)
        call.committed_payload = e["payload"]
        return Answer(23, "COMMIT", payload=e["payload"])

    def _compensation(self, call: Call, e: Event, at: dict[str, Any]) -> Answer:
        if call.kind == "CALL":
            return Answer(19, "REJECT", "WRONG_SPEAKER")
        if call.live_epoch_is_done:
            return Answer(24, "REJECT", "DUPLICATE")
        if e["outcome"] == "OK":
            # "Unsettled ends when an OK is accepted (rows 25, 26) in an epoch that was raised after the newest orphan."
            if call.orphan_epoch is not None and call.live_epoch > call.orphan_epoch:
                call.unsettled = False
            if call.status in ("COMPENSATING", "ESCALATED"):
                self._commit(call, "COMPENSATION", e)
                return Answer(25, "COMMIT")
            assert call.clean_up_in_flight
            call.settled_epoch = call.live_epoch
            return Answer(26, "SETTLE")
        if call.live_epoch >= call.planner["max_epochs"]:
            answer = self._exhausted(call)
        else:
            answer = Answer(27, "FENCE", "COMPENSATION_FAILED", dispatch=self._raise_compensation(call, at))
        answer.row = 27
        return answer

    def _commit(self, call: Call, by: str, e: Event) -> None:
        assert call.committed_epoch is None, "at most one epoch commits"
        call.committed_epoch, call.committed_by, call.committed_outcome = call.live_epoch, by, e["outcome"]
        call.commit_seq = self.seq
        call.status = "COMMITTED"

    # ---- orphans, evidence, double compensation --------------------------------------------------------------

    def _orphan(self, call: Call, e: Event, at: dict[str, Any], answer: Answer) -> Answer:
        """The rows marked *orphan?*."""
        if not tells_of_an_effect(e):
            return answer
        self._take_evidence(call, e)
        if call.status == "INFLIGHT":
            call.suspected = True
            return answer
        if call.status == "COMMITTED" and (call.committed_by, call.committed_outcome) == ("RESULT", "SUCCESS"):
            return answer
        # SILENT: an ill-formed Result with an empty execution_id. The empty id is remembered like any other.
        seen = (e["execution_id"], e["outcome"])
        if seen in call.remembered_orphans:
            return answer
        call.remembered_orphans = [*call.remembered_orphans, seen][-REMEMBERED_ORPHANS:]
        answer.orphaned_effect = True
        if call.planner["orphans"] == "COMPENSATE":
            call.unsettled = True
            call.orphan_epoch = call.live_epoch
            if call.live_epoch < call.planner["max_epochs"]:
                answer.dispatch = self._raise_compensation(call, at)
            elif call.status != "COMMITTED":
                call.status = "ESCALATED"
        return answer

    def _take_evidence(self, call: Call, e: Event) -> None:
        """ "the newest payload of a Result SUCCESS or UNKNOWN that an *orphan?* row rejected or row 22 took" """
        # SILENT: what an oversized newest payload leaves behind. It is skipped, and an older one stays.
        payload = e["payload"]
        if tells_of_an_effect(e) and payload is not None and len(payload) <= self.max_body_bytes:
            call.evidence = payload

    @staticmethod
    def _is_double_compensation(call: Call, e: Event) -> bool:
        if e["type"] != "compensation" or e["outcome"] != "OK" or call.key_first_epoch is None:
            return False
        if not call.key_first_epoch <= e["epoch"] <= call.live_epoch:
            return False
        if call.first_ok_execution is None:
            call.first_ok_execution = e["execution_id"]
        return bool(call.first_ok_execution != e["execution_id"])

    # ---- dispatches and keys ---------------------------------------------------------------------------------

    def _raise_compensation(self, call: Call, at: dict[str, Any]) -> dict[str, Any]:
        call.live_epoch += 1
        call.live_since_ms = at["timestamp_ms"]
        call.kind = "COMPENSATION"
        if call.status != "COMMITTED":
            call.status = "COMPENSATING"
        # "An epoch that is raised when an orphan has made the call unsettled since the current key was first
        # dispatched takes the next key". An orphan bears the epoch that was live when it came.
        first = call.key_first_epoch
        if first is None or (call.orphan_epoch is not None and call.orphan_epoch >= first):
            call.key_number += 1
            call.key_first_epoch = call.live_epoch
            call.first_ok_execution = None
        call.compensations_sent += 1
        suffix = "" if call.key_number == 1 else f":{call.key_number}"
        return {
            **self._dispatch(call, "COMPENSATE", call.compensations_sent),
            "idempotency_key": f"{call.call_id}@{call.incarnation}:compensate{suffix}",
            "call_idempotency_key": call_key(call),
            "evidence": call.evidence,
        }

    def _dispatch_call(self, call: Call) -> dict[str, Any]:
        call.calls_sent += 1
        return {**self._dispatch(call, "CALL", call.calls_sent), "runner": call.planner["runner"]}

    @staticmethod
    def _dispatch(call: Call, action: str, attempt: int) -> dict[str, Any]:
        return {
            "action": action,
            "tool": call.planner["tool"],
            "arguments": call.planner["arguments"],
            "epoch": call.live_epoch,
            "incarnation": call.incarnation,
            "runner": None,
            "idempotency_key": call_key(call),
            "call_idempotency_key": None,
            "evidence": None,
            "timeout_ms": call.planner["timeout_ms"],
            "attempt": attempt,
        }


def main() -> int:
    """Decides every line of standard input and prints the decisions."""
    parser = argparse.ArgumentParser(description="The reference fold: JSON Lines events in, decisions out.")
    parser.add_argument("--retention-ms", type=int, default=86_400_000)
    partition = ReferencePartition(retention_ms=parser.parse_args().retention_ms)
    for line in sys.stdin.buffer:
        print(json.dumps(partition.decide_line(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
