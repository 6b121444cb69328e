"""The state that the reference keeps of a call, and the words the text gives to it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
EVENT_TYPES = {"tool_call": "TOOL_CALL", "timeout": "TIMEOUT", "result": "RESULT", "compensation": "COMPENSATION"}


@dataclass
class Call:
    """A call record. Names are those of CallRecord where it has them."""

    call_id: str
    incarnation: int | None
    opened_at_ms: int
    live_epoch: int
    live_since_ms: int
    kind: str
    status: str
    tool_call: Event | None  # as the planner sent it; None when CANCELLED before it opened
    seq: int = 0
    call_seq: int = 0
    committed_epoch: int | None = None
    committed_by: str | None = None
    committed_outcome: str | None = None
    commit_seq: int | None = None
    committed_payload: bytes | None = None
    suspected: bool = False
    evidence: bytes | None = None
    unsettled: bool = False
    orphan_epoch: int | None = None
    remembered_orphans: list[tuple[str, str]] = field(default_factory=list)  # (execution_id, outcome)
    key_number: int = 0
    key_first_epoch: int | None = None
    first_ok_execution: str | None = None
    settled_epoch: int | None = None
    calls_sent: int = 0
    compensations_sent: int = 0
    closed_at_ms: int | None = None

    @property
    def clean_up_in_flight(self) -> bool:
        """A COMMITTED call's newer epoch is a clean-up; it is in flight until it has settled."""
        return self.status == "COMMITTED" and not self.live_epoch_is_done

    @property
    def live_epoch_is_done(self) -> bool:
        """ "The live epoch is done when it is the committed epoch, or a clean-up that has settled." """
        return self.live_epoch in (self.committed_epoch, self.settled_epoch)

    @property
    def closed(self) -> bool:
        """ "closed (COMMITTED or CANCELLED, no clean-up in flight, not unsettled)" """
        return self.status in ("COMMITTED", "CANCELLED") and not self.clean_up_in_flight and not self.unsettled

    @property
    def planner(self) -> Event:
        assert self.tool_call is not None, "a CANCELLED call has nothing to send"
        return self.tool_call


@dataclass
class Answer:
    """What one row says: the decision without what every decision has."""

    row: int
    verdict: str
    reason: str = "NONE"
    orphaned_effect: bool = False
    payload: bytes | None = None
    dispatch: dict[str, Any] | None = None


def as_claimed(event: Event | None, at: dict[str, Any], seq: int) -> dict[str, Any]:
    """A decision as it stands before any rule has spoken: what was said, and nothing about a record."""
    said = event if event is not None else {}
    return {
        "type": "decision",
        "seq": seq,
        "call_id": said.get("call_id", at.get("call_id", "")),
        "call_seq": 0,  # "A decision about no record ... has call_seq 0, live_epoch 0, null status."
        "verdict": "",
        "reason": "NONE",
        "event": EVENT_TYPES[said["type"]] if said else "NONE",
        "epoch": said.get("epoch"),
        "outcome": said.get("outcome"),
        "cause": said.get("cause"),
        "execution_id": said.get("execution_id"),
        "input": {
            "topic": at["topic"],
            "partition": at["partition"],
            "offset": at["offset"],
            "timestamp_ms": at["timestamp_ms"],
            "event_id": said.get("event_id", ""),
        },
        "incarnation": None,
        "live_epoch": 0,
        "status": None,
        "committed_epoch": None,
        "committed_by": None,
        "committed_outcome": None,
        "commit_seq": None,
        "unsettled": False,
        "orphaned_effect": False,
        "payload": None,
        "dispatch": None,
        "rules_version": 1,
        "decided_at_ms": None,
        "checkpoint": None,
    }


def tells_of_an_effect(e: Event) -> bool:
    """ "A Result SUCCESS or UNKNOWN that is rejected is evidence of an effect that no commit owns." """
    return e["type"] == "result" and e["outcome"] in ("SUCCESS", "UNKNOWN")


def call_key(call: Call) -> str:
    return str(call.planner["idempotency_key"]) or f"{call.call_id}@{call.incarnation}"


def digest(text: str) -> bytes:
    """SHA-256 of a string in UTF-8, as CallRecord keeps execution ids."""
    return hashlib.sha256(text.encode("utf-8")).digest()
