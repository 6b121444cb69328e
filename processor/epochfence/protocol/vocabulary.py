"""The words of the protocol: every enum of schemas/*.avsc, symbol for symbol and in the same order.

`UNRECOGNIZED` closes each of them: it is what a reader older than the writer sees. An input that holds it is
undecodable. The members are strings, so that they hash, compare and print as their symbols.
"""

from enum import StrEnum

RULES_VERSION = 1


class EventType(StrEnum):
    """What kind of event a decision answers."""

    TOOL_CALL = "TOOL_CALL"
    TIMEOUT = "TIMEOUT"
    RESULT = "RESULT"
    COMPENSATION = "COMPENSATION"
    NONE = "NONE"
    UNRECOGNIZED = "UNRECOGNIZED"


class Policy(StrEnum):
    """What a fenced call does next."""

    COMPENSATE = "COMPENSATE"
    REPLAY = "REPLAY"
    UNRECOGNIZED = "UNRECOGNIZED"


class Orphans(StrEnum):
    """What a late success is worth."""

    REPORT = "REPORT"
    COMPENSATE = "COMPENSATE"
    UNRECOGNIZED = "UNRECOGNIZED"


class Cause(StrEnum):
    """Why somebody asks for a fence."""

    DEADLINE = "DEADLINE"
    CANCELLED = "CANCELLED"
    WATCHDOG = "WATCHDOG"
    OPERATOR = "OPERATOR"
    UNRECOGNIZED = "UNRECOGNIZED"


class Outcome(StrEnum):
    """The outcomes of results (SUCCESS, FAILURE, UNKNOWN) and of compensations (OK, FAILED, UNKNOWN)."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    UNKNOWN = "UNKNOWN"
    OK = "OK"
    FAILED = "FAILED"
    UNRECOGNIZED = "UNRECOGNIZED"


class Verdict(StrEnum):
    """What was decided."""

    OPEN = "OPEN"
    FENCE = "FENCE"
    COMMIT = "COMMIT"
    REJECT = "REJECT"
    SETTLE = "SETTLE"
    ESCALATE = "ESCALATE"
    UNRECOGNIZED = "UNRECOGNIZED"


class Reason(StrEnum):
    """Why it was decided. Append-only."""

    NONE = "NONE"
    STALE_EPOCH = "STALE_EPOCH"
    FUTURE_EPOCH = "FUTURE_EPOCH"
    MALFORMED = "MALFORMED"
    UNKNOWN_CALL = "UNKNOWN_CALL"
    DUPLICATE = "DUPLICATE"
    CONFLICT = "CONFLICT"
    ALREADY_COMMITTED = "ALREADY_COMMITTED"
    WRONG_SPEAKER = "WRONG_SPEAKER"
    FENCED_BEFORE_OPEN = "FENCED_BEFORE_OPEN"
    CLOSED = "CLOSED"
    WRONG_INCARNATION = "WRONG_INCARNATION"
    DOUBLE_COMPENSATION = "DOUBLE_COMPENSATION"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"
    EPOCHS_EXHAUSTED = "EPOCHS_EXHAUSTED"
    EXPIRED = "EXPIRED"
    MISROUTED = "MISROUTED"
    UNDECODABLE = "UNDECODABLE"
    OVERSIZED = "OVERSIZED"
    REPAIRED = "REPAIRED"
    UNRECOGNIZED = "UNRECOGNIZED"


class Status(StrEnum):
    """How a call stands."""

    INFLIGHT = "INFLIGHT"
    COMPENSATING = "COMPENSATING"
    COMMITTED = "COMMITTED"
    CANCELLED = "CANCELLED"
    ESCALATED = "ESCALATED"
    UNRECOGNIZED = "UNRECOGNIZED"


class Kind(StrEnum):
    """Who may speak in an epoch: the tool or the compensator."""

    CALL = "CALL"
    COMPENSATION = "COMPENSATION"
    UNRECOGNIZED = "UNRECOGNIZED"


class CommittedBy(StrEnum):
    """What kind of event committed a call."""

    RESULT = "RESULT"
    COMPENSATION = "COMPENSATION"
    UNRECOGNIZED = "UNRECOGNIZED"


class Action(StrEnum):
    """What a dispatch asks for."""

    CALL = "CALL"
    COMPENSATE = "COMPENSATE"
    UNRECOGNIZED = "UNRECOGNIZED"
