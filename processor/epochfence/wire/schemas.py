"""Which schema is which class: the mapping between schemas/*.avsc and the values of the protocol."""

import json
from enum import StrEnum
from functools import cache
from typing import Any

from epochfence.protocol import decisions, events, records, vocabulary
from epochfence.protocol.events import Compensation, Result, Timeout, ToolCall
from epochfence.resources import schema_text

INPUT_TOPICS = ("tool-calls", "timeouts", "results", "compensations")
"""The four input topics without their prefix, in the order in which a checkpoint lists them."""

EVENT_SCHEMAS = {
    "tool-calls": "tool_call",
    "timeouts": "timeout",
    "results": "result",
    "compensations": "compensation",
}
"""Topic (without prefix) -> schema: one record type a topic."""

TOPIC_OF_EVENT: dict[type, str] = {
    ToolCall: "tool-calls",
    Timeout: "timeouts",
    Result: "results",
    Compensation: "compensations",
}

CLASSES: dict[str, type] = {
    "ToolCall": events.ToolCall,
    "Timeout": events.Timeout,
    "Result": events.Result,
    "Compensation": events.Compensation,
    "Input": events.Input,
    "Decision": decisions.Decision,
    "Dispatch": decisions.Dispatch,
    "Checkpoint": decisions.Checkpoint,
    "InputPosition": decisions.InputPosition,
    "Chain": decisions.Chain,
    "CallRecord": records.CallRecord,
    "RememberedOrphan": records.RememberedOrphan,
}
"""Avro record name -> the class whose fields are the record's, in the schema's order."""

ENUMS: dict[str, type[StrEnum]] = {
    "EventType": vocabulary.EventType,
    "Policy": vocabulary.Policy,
    "Orphans": vocabulary.Orphans,
    "Cause": vocabulary.Cause,
    "Outcome": vocabulary.Outcome,
    "ResultOutcome": vocabulary.Outcome,
    "CompensationOutcome": vocabulary.Outcome,
    "CommittedOutcome": vocabulary.Outcome,
    "OrphanOutcome": vocabulary.Outcome,
    "Verdict": vocabulary.Verdict,
    "Reason": vocabulary.Reason,
    "Status": vocabulary.Status,
    "Kind": vocabulary.Kind,
    "CommittedBy": vocabulary.CommittedBy,
    "Action": vocabulary.Action,
}
"""Avro enum name -> the enum that has its symbols."""


@cache
def load_schema(name: str) -> dict[str, Any]:
    """A schema of schemas/ as parsed JSON, by its file's name: `tool_call`. Not to be changed."""
    schema: dict[str, Any] = json.loads(schema_text(name))
    return schema
