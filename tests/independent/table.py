"""The compacted `epoch-table` against the calls that the refold ends with."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tests.independent.jsonform import UndecodableError
from tests.independent.log import Record
from tests.independent.records import Call, digest

if TYPE_CHECKING:
    from tests.independent.checker import PartitionCheck

CHECKPOINT_KEY = b"\0checkpoint"
AS_THEY_ARE = (
    "call_id",
    "incarnation",
    "seq",
    "call_seq",
    "opened_at_ms",
    "live_epoch",
    "live_since_ms",
    "kind",
    "status",
    "committed_epoch",
    "committed_by",
    "committed_outcome",
    "commit_seq",
    "unsettled",
    "key_number",
    "key_first_epoch",
    "settled_epoch",
    "calls_sent",
    "compensations_sent",
    "closed_at_ms",
)


def call_record(call: Call) -> dict[str, Any]:
    """The fields of a CallRecord that the text fixes for this call; the others may be as they like.

    Left out: call_digest (its bytes are the product's own), policy and orphans of a CANCELLED call, suspected outside
    INFLIGHT, orphan_epoch once the call is settled, evidence of a call that a SUCCESS committed: nothing reads them.
    """
    record: dict[str, Any] = {name: getattr(call, name) for name in AS_THEY_ARE}
    by_result = call.committed_by == "RESULT"
    payload = b"\0" if call.committed_payload is None else b"\1" + call.committed_payload
    record["content_digest"] = hashlib.sha256(payload).digest() if by_result else None
    record["remembered_orphans"] = [
        {"execution_digest": digest(execution_id), "outcome": outcome}
        for execution_id, outcome in call.remembered_orphans
    ]
    first_ok = call.first_ok_execution
    record["first_ok_execution"] = None if first_ok is None else digest(first_ok)
    if call.status == "INFLIGHT":
        record["suspected"] = call.suspected
    if call.unsettled:
        record["orphan_epoch"] = call.orphan_epoch
    if (call.committed_by, call.committed_outcome) != ("RESULT", "SUCCESS"):
        record["evidence"] = call.evidence
    planner = call.tool_call
    if planner is None:
        nothing = {"tool": "", "idempotency_key": "", "runner": "", "timeout_ms": 0, "max_epochs": 0}
        return record | nothing | {"arguments": None, "call_digest": None}
    names = ("tool", "idempotency_key", "policy", "orphans", "timeout_ms", "max_epochs", "runner")
    record |= {name: planner[name] for name in names}
    dropped = call.closed and planner["orphans"] == "REPORT"
    record["arguments"] = None if dropped else planner["arguments"]
    return record


def check_table(check: PartitionCheck) -> None:
    """The last value of each key is the refold's record; the checkpoint is the last one in `decisions`."""
    newest: dict[bytes | None, Record] = {}
    for record in check.log.topics["epoch-table"][check.partition]:
        newest[record.key] = record
    live = {key: record for key, record in newest.items() if record.value is not None}
    check_checkpoint(check, live.pop(CHECKPOINT_KEY, None))
    calls = {call_id.encode("utf-8"): call for call_id, call in check.reference.calls.items()}
    for key, call in calls.items():
        if key not in live:
            check.find("table_missing", None, f"{key!r} is {call.status} and not in the table", "epoch-table")
    for found_key, record in live.items():
        key = found_key or b""  # a null key is no call either
        if key not in calls:
            check.find("table_extra", record.offset, f"{found_key!r} is no call, or forgotten", "epoch-table")
            continue
        try:
            got = check.codec.decode("call_record", record.value)
        except UndecodableError as error:
            check.find("table_undecodable", record.offset, str(error), "epoch-table")
            continue
        for name, value in call_record(calls[key]).items():
            if got[name] != value:
                detail = f"{key!r}: {name} is {got[name]!r:.200}, refolded {value!r:.200}"
                check.find("table", record.offset, detail, "epoch-table")
        if got["status"] != "CANCELLED" and got["call_digest"] is None:
            check.find("table", record.offset, f"{key!r}: call_digest is null", "epoch-table")
    check.report.counts["calls in the table"] += len(live)


def check_checkpoint(check: PartitionCheck, record: Record | None) -> None:
    checkpoints = [d["checkpoint"] for _, d in check.decisions if d["checkpoint"] is not None]
    wanted = checkpoints[-1] if checkpoints else None
    got = None
    if record is not None:
        try:
            got = check.codec.decode("checkpoint", record.value)
        except UndecodableError as error:
            check.find("table_undecodable", record.offset, str(error), "epoch-table")
            return
    if got != wanted:
        names = [n for n in wanted or () if got is not None and got[n] != (wanted or {})[n]]
        offset = None if record is None else record.offset
        detail = f"not the last one in decisions: {names or ('missing' if got is None else 'unexpected')}"
        check.find("table_checkpoint", offset, detail, "epoch-table")
