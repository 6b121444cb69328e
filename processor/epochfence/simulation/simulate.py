"""Run a trace through the fenced fold and beside it through the naive last writer, and check the properties."""

from dataclasses import dataclass
from typing import Any

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Event
from epochfence.protocol.vocabulary import Reason
from epochfence.simulation.controls import Control, line_fold
from epochfence.simulation.naive import NaiveWrite, is_broken, last_writer
from epochfence.simulation.properties import Failure, check
from epochfence.simulation.traces import Trace
from epochfence.wire.jsonl import LineError, read_event, to_json

MAX_FAILURES_TOLD = 5


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one trace."""

    trace: Trace
    decisions: tuple[Decision, ...]
    naive: tuple[NaiveWrite, ...]
    failures: tuple[Failure, ...]
    not_events: tuple[tuple[int, str], ...]
    """Lines that are no events, with why. They were decided UNDECODABLE."""

    @property
    def naive_broken(self) -> bool:
        """Whether the last writer wrote a ghost; see `naive`."""
        return is_broken(self.naive)


def simulate(trace: Trace, control: Control | None = None, parameters: Parameters | None = None) -> Run:
    """Run one trace. A line that is no event is decided, as in `fold`, and does not stop the run."""
    parameters = parameters or Parameters()
    fold = line_fold(control, parameters)
    decisions = tuple(fold.decide(line) for line in trace.lines)
    events: list[Event | None] = []
    not_events = []
    for number, line in enumerate(trace.lines):
        try:
            events.append(read_event(line, number).event)
        except LineError as error:
            events.append(None)
            not_events.append((number, str(error)))
    failures = tuple(check(events, decisions, parameters.max_body_bytes))
    return Run(trace, decisions, tuple(last_writer(events)), failures, tuple(not_events))


def report(run: Run) -> list[str]:
    """The lines that `epochfence simulate` prints about a run."""
    return [
        f"TRACE {run.trace.name}",
        "fenced=" + " | ".join(map(snapshot, run.decisions)),
        f"naive_broken={run.naive_broken} naive=" + " | ".join(map(_naive_snapshot, run.naive)),
        "PROPERTY OK" if not run.failures else "PROPERTY FAIL: " + _told(run.failures),
    ]


def _told(failures: tuple[Failure, ...]) -> str:
    told = [str(failure) for failure in failures[:MAX_FAILURES_TOLD]]
    if len(failures) > MAX_FAILURES_TOLD:
        told.append(f"and {len(failures) - MAX_FAILURES_TOLD} more")
    return "; ".join(told)


def snapshot(decision: Decision) -> str:
    """How the call stands after an event, and what was decided: `REJECT STALE_EPOCH 7@0 live=2 COMPENSATING`."""
    words: list[str] = [decision.verdict]
    if decision.reason is not Reason.NONE:
        words.append(decision.reason)
    if decision.status is not None:
        incarnation = "" if decision.incarnation is None else f"@{decision.incarnation}"
        words += [f"{decision.call_id}{incarnation}", f"live={decision.live_epoch}", decision.status]
    if decision.committed_epoch is not None:
        words.append(f"committed={decision.committed_epoch}")
    words += ["unsettled"] * decision.unsettled + ["orphaned_effect"] * decision.orphaned_effect
    if decision.dispatch is not None:
        words.append(f"-> {decision.dispatch.action}")
    return " ".join(words)


def _naive_snapshot(write: NaiveWrite) -> str:
    if write.call_id is None:
        return "-"
    return f"{write.call_id} {write.state or '-'}" + " ghost_write" * write.ghost


def as_json(run: Run) -> dict[str, Any]:
    """A run as JSON data: the decisions in the JSON form, without a clock's time."""
    return {
        "trace": run.trace.name,
        "sentence": run.trace.sentence,
        "fenced": [{**to_json(decision), "decided_at_ms": None} for decision in run.decisions],
        "naive_broken": run.naive_broken,
        "naive": [to_json(write) for write in run.naive],
        "property": "FAIL" if run.failures else "OK",
        "failures": [to_json(failure) for failure in run.failures],
        "not_events": [{"line": number, "why": why} for number, why in run.not_events],
    }
