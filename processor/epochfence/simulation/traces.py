"""The built-in traces: short stories of one call, each with the sentence that says what it teaches.

A trace is a list of lines, in the JSON Lines form that `epochfence fold` reads. `EIGHT` and their order are part of
the command line's contract; `THREE_QUESTIONS` are the open questions that the protocol answers; `FURTHER` holds the
rest of what people ask about.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from epochfence.errors import UsageError

_Line = dict[str, Any]


class Trace(NamedTuple):
    """A name, what the trace teaches, and its lines without line feeds."""

    name: str
    sentence: str
    lines: tuple[bytes, ...]


def _trace(name: str, sentence: str, *events: _Line | str) -> Trace:
    lines = (event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events)
    return Trace(name, sentence, tuple(line.encode() for line in lines))


def _call(**more: Any) -> _Line:
    """S: the ToolCall."""
    call = {"type": "tool_call", "call_id": "7", "tool": "reserve", "arguments": "seat 12", "timeout_ms": 1000}
    return {**call, **more}


def _timeout(epoch: int, **more: Any) -> _Line:
    """T: the Timeout of an epoch."""
    return {"type": "timeout", "call_id": "7", "epoch": epoch, "cause": "DEADLINE", **more}


def _result(epoch: int | None, outcome: str = "SUCCESS", **more: Any) -> _Line:
    """R(e): a Result of an epoch, a success unless said otherwise."""
    payload = "seat 12 held" if outcome == "SUCCESS" else None
    return {"type": "result", "call_id": "7", "epoch": epoch, "outcome": outcome, "payload": payload, **more}


def _compensation(epoch: int, outcome: str = "OK", **more: Any) -> _Line:
    """C(e): a Compensation of an epoch, OK unless said otherwise."""
    return {"type": "compensation", "call_id": "7", "epoch": epoch, "outcome": outcome, **more}


EIGHT = (
    _trace("happy_success", "The answer comes in time and commits.", _call(), _result(1)),
    _trace(
        "timeout_then_compensate",
        "The deadline fences epoch 1; the compensation commits in epoch 2.",
        _call(),
        _timeout(1),
        _compensation(2),
    ),
    _trace(
        "late_success_after_compensate",
        "The success comes after its epoch was fenced: the last writer writes a ghost, the fence rejects it.",
        _call(),
        _timeout(1),
        _result(1),
        _compensation(2),
    ),
    _trace(
        "duplicate_success_same_epoch",
        "The success is delivered twice; it commits once.",
        _call(),
        _result(1, execution_id="x"),
        _result(1, execution_id="x"),
    ),
    _trace(
        "compensate_then_late_success",
        "The success comes after the compensation was committed: with the last writer the ghost stays.",
        _call(),
        _timeout(1),
        _compensation(2),
        _result(1),
    ),
    _trace(
        "timeout_without_compensate_result",
        "The compensator has not answered yet; the call waits in epoch 2 and nothing has committed.",
        _call(),
        _timeout(1),
    ),
    _trace(
        "ghost_then_duplicate_compensate",
        "A late success, then a compensation that is delivered twice.",
        _call(),
        _timeout(1),
        _result(1),
        _compensation(2, execution_id="a"),
        _compensation(2, execution_id="a"),
    ),
    _trace(
        "success_before_timeout_ignored",
        "The success was in time; the timeout after it does not raise the epoch.",
        _call(),
        _result(1),
        _timeout(1),
    ),
)
"""What `epochfence simulate` runs without an option, in this order."""

THREE_QUESTIONS = (
    _trace(
        "compensate_result_before_the_bump",
        "A compensation answers before the fence is durable: it was sent without one, and is rejected.",
        _call(),
        _compensation(2, execution_id="early"),
        _timeout(1),
        _compensation(2, execution_id="again"),
    ),
    _trace(
        "success_without_an_epoch",
        "A success that echoes no epoch is malformed, not stale: the call is suspected and goes on.",
        _call(),
        _result(None),
        _result(1),
    ),
    _trace(
        "second_timeout_while_epoch_2_in_flight",
        "A repeated timeout of epoch 1 opens nothing; one of epoch 2 opens epoch 3 under the same key.",
        _call(),
        _timeout(1),
        _timeout(1),
        _timeout(2),
        _compensation(2, execution_id="a"),
        _compensation(3, execution_id="a"),
    ),
)
"""The open questions that the protocol answers."""

FURTHER = (
    _trace(
        "timeout_crosses_its_call",
        "The timeout overtakes its own call: the call is cancelled before it opens, and nothing is sent.",
        _timeout(1),
        _call(),
        _result(1),
    ),
    _trace(
        "compensated_twice",
        "Two executions answer under one compensation key: the compensator broke its own idempotency.",
        _call(),
        _timeout(1),
        _compensation(2, execution_id="a"),
        _compensation(2, execution_id="b"),
    ),
    _trace(
        "compensated_twice_across_epochs",
        "Epochs 2 and 3 carry one key, so a second execution in epoch 3 is named too.",
        _call(),
        _timeout(1),
        _timeout(2),
        _compensation(2, execution_id="a"),
        _compensation(3, execution_id="b"),
    ),
    _trace(
        "late_unknown_after_a_final_compensation",
        "An UNKNOWN may have had an effect: late, it is flagged like a success.",
        _call(),
        _timeout(1),
        _compensation(2),
        _result(1, "UNKNOWN"),
    ),
    _trace(
        "failure_after_evidence_does_not_commit",
        "A rejected success made the call suspected: a FAILURE cannot close it, it is compensated.",
        _call(),
        _result(None),
        _result(1, "FAILURE"),
        _compensation(2),
    ),
    _trace(
        "cancelled_replay_call_is_not_sent_again",
        "A planner that cancels does not want the call replayed, whatever its policy.",
        _call(policy="REPLAY", idempotency_key="k"),
        _timeout(1, cause="CANCELLED"),
        _compensation(2),
    ),
    _trace(
        "exhausted_then_an_operator",
        "The epochs run out and a person is asked; the operator's timeout sends the compensation again.",
        _call(max_epochs=2),
        _timeout(1),
        _timeout(2),
        _timeout(2, cause="OPERATOR"),
        _compensation(3),
    ),
    _trace(
        "forgotten_and_opened_anew",
        "A closed call is forgotten; an answer to its first life cannot reach the second.",
        _call(timestamp_ms=0),
        _result(1, timestamp_ms=1),
        _call(call_id="8", timestamp_ms=90_000_000),
        _result(1, timestamp_ms=90_000_001),
        _call(timestamp_ms=90_000_002),
        _result(1, incarnation=0, timestamp_ms=90_000_003),
    ),
    _trace(
        "orphan_is_cleaned_up",
        "The compensator is not final: a late success is compensated again, under the next key, once.",
        _call(orphans="COMPENSATE"),
        _timeout(1),
        _compensation(2),
        _result(1, execution_id="x"),
        _compensation(3),
        _result(1, execution_id="x"),
    ),
    _trace(
        "replayed_call_fails_after_a_timeout",
        "After a replay a FAILURE proves nothing about epoch 1: the call is replayed again, not closed.",
        _call(policy="REPLAY", idempotency_key="k"),
        _timeout(1),
        _result(2, "FAILURE"),
        _result(3),
    ),
    _trace(
        "call_id_reused_with_other_arguments",
        "A call_id belongs to one call: other arguments are a conflict, the same ones a duplicate.",
        _call(),
        _call(arguments="seat 13"),
        _call(),
    ),
    _trace(
        "failure_closes_the_call", "In epoch 1 a FAILURE means no effect: it commits.", _call(), _result(1, "FAILURE")
    ),
    _trace(
        "success_after_a_committed_failure",
        "The gateway said FAILURE and then SUCCESS: it contradicts itself, and the effect is cleaned up.",
        _call(orphans="COMPENSATE"),
        _result(1, "FAILURE"),
        _result(1),
        _compensation(2),
    ),
    _trace(
        "unknown_outcome_is_compensated",
        "An UNKNOWN in time may have had an effect: it fences as a deadline does, and is the evidence.",
        _call(),
        _result(1, "UNKNOWN", payload="no answer from the seat map"),
        _compensation(2),
    ),
    _trace(
        "replay_succeeds_and_the_first_answer_is_late",
        "Epoch 2 sends the call again under the same key; the answer to epoch 1 is then stale.",
        _call(policy="REPLAY", idempotency_key="k"),
        _timeout(1),
        _result(2),
        _result(1),
    ),
    _trace(
        "failed_compensation_is_sent_again",
        "A compensation that failed opens the next epoch, under the same key.",
        _call(),
        _timeout(1),
        _compensation(2, "FAILED"),
        _compensation(3),
    ),
    _trace(
        "orphan_when_the_epochs_have_run_out",
        "No epoch is left for the clean-up: the call stays unsettled until an operator asks for one.",
        _call(orphans="COMPENSATE", max_epochs=2),
        _timeout(1),
        _compensation(2),
        _result(1),
        _timeout(2, cause="OPERATOR"),
        _compensation(3),
    ),
    _trace(
        "everyone_speaks_out_of_turn",
        "A compensator in a CALL epoch and a tool in a COMPENSATION epoch commit nothing.",
        _call(),
        _compensation(1),
        _timeout(1),
        _result(2),
        _compensation(2),
    ),
    _trace(
        "second_answer_differs",
        "Two successes with different payloads: the first stands, the second is a conflict.",
        _call(),
        _result(1),
        _result(1, payload="seat 13 held"),
    ),
    _trace(
        "poison_between_events",
        "Lines that are no events are decided too, and change nothing.",
        _call(),
        "",
        '{"type": "result", "call_id": "7", "epoch": 1.0, "outcome": "SUCCESS", "payload": "seat 12 held"}',
        _result(1),
    ),
    _trace(
        "two_calls_do_not_touch",
        "The fence of one call is nothing to another.",
        _call(),
        _call(call_id="8", arguments="seat 13"),
        _timeout(1),
        _result(1, call_id="8", payload="seat 13 held"),
        _result(1),
        _compensation(2),
    ),
)
"""Further instructive traces."""

ALL = EIGHT + THREE_QUESTIONS + FURTHER


def named(name: str) -> Trace:
    """The built-in trace of that name. Raises UsageError, with the names that there are."""
    for trace in ALL:
        if trace.name == name:
            return trace
    raise UsageError(f"no built-in trace is called {name!r}; there are {', '.join(trace.name for trace in ALL)}")


def from_file(name: str, lines: Iterable[bytes]) -> Trace:
    """A person's own trace, from the lines of a file as `epochfence fold` would read them."""
    return Trace(name, "From a file.", tuple(line.removesuffix(b"\n") for line in lines))
