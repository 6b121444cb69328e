"""What an exploration found, told to people: a report, a trace that `epochfence simulate` runs, and a diagram."""

import json
from collections.abc import Sequence
from typing import Any

from epochfence.protocol.events import Compensation, Event, Result, Timeout
from epochfence.protocol.fold import ROWS
from epochfence.simulation.asking import WRONG_INCARNATION
from epochfence.simulation.explorer import Counterexample, Explored, Happened
from epochfence.simulation.world import WHAT_IS_PROMISED, Settings
from epochfence.wire.jsonl import to_json

ALWAYS = (
    "at most one commit, and only of the live epoch",
    "no ghost write: a result never commits after a compensation was sent",
    "nobody acts but by a dispatch that was decided, behind a fence",
    "epochs never fall",
    "an honest compensator is never told of a double compensation",
    "at rest, an effect that contradicts the commit is unsettled",
)
"""The properties, in words. `folding`, `explorer` and the fold's own invariants hold them."""

WITH_HOSTILE = 4
"""With hostile events the last two are not promised: they speak of participants that keep their promises."""

NEED_HOSTILE = frozenset({4, 6, 7, 8, 9, 10, 18, 19})
"""Rows that no participant reaches who keeps the promises, whatever crashes: other arguments under one call_id, an
answer to no call or to another life, an ill-formed or future epoch, an answer in an epoch where another speaks."""


def expected_rows(settings: Settings) -> frozenset[int]:
    """The rows of the table that an exploration with these settings must reach, else it explores too little."""
    rows = {row.number for row in ROWS}
    if not settings.hostile:
        rows -= NEED_HOSTILE
        twice = settings.deliveries > 1
        if not settings.duplicates and not (twice and settings.idempotent):
            rows -= {20, 21}  # nothing is answered twice
        if not settings.duplicates and not twice:
            rows.discard(24)
    if settings.policy != "REPLAY" or settings.epochs < 3:
        rows.discard(16)  # no epoch is left to replay in
    if settings.orphans != "COMPENSATE":
        rows.discard(26)  # nothing is cleaned up after a commit
    return frozenset(rows)


def report(explored: Explored) -> list[str]:
    """The lines that `epochfence explore` prints."""
    settings, found = explored.settings, explored.counterexample
    end = "every state within the bounds" if explored.complete else "cut off by a bound"
    if found is not None:
        end = "stopped at the counterexample"
    rate = round(explored.states / explored.seconds) if explored.seconds else explored.states
    lines = [
        f"EXPLORE policy={settings.policy} orphans={settings.orphans} idempotent={str(settings.idempotent).lower()} "
        f"epochs={settings.epochs} duplicates={settings.duplicates} deliveries={settings.deliveries} "
        f"operator_epochs={settings.operator_epochs} hostile={settings.hostile}",
        f"promises={_promises(settings)}",
        f"states={explored.states} transitions={explored.transitions} depth={explored.depth}: {end}",
        f"time={explored.seconds:.1f} s ({rate} states/s), {explored.records} call records, {explored.folds} folds",
    ]
    lines += _rows(explored)
    if found is None:
        held = ALWAYS[:WITH_HOSTILE] if settings.hostile else ALWAYS
        return lines + [f"PROPERTY OK: {text}" for text in held]
    lines.append(f"PROPERTY FAIL: {found.why}")
    return lines + [f"  {number}. {_line(step)}" for number, step in enumerate(found.steps, 1)]


def _promises(settings: Settings) -> str:
    if settings.hostile:
        return "kept by all but the hostile, whom nobody believes"
    kept = ",".join(promise for promise in settings.relied_on() if promise is not settings.broken)
    return kept if settings.broken is None else f"{kept} broken={settings.broken} ({WHAT_IS_PROMISED[settings.broken]})"


def _rows(explored: Explored) -> list[str]:
    missing = missing_rows(explored)
    lines = [f"rows={','.join(str(row) for row in sorted(explored.rows - {0}))}"]
    if missing and explored.complete:
        lines.append(f"SOMETIMES FAIL: rows never reached: {','.join(map(str, missing))}")
    elif not missing:
        lines.append(f"SOMETIMES OK: all {len(expected_rows(explored.settings))} rows that can be reached were")
    return lines


def missing_rows(explored: Explored) -> list[int]:
    """Rows that should have been reached and were not."""
    return sorted(expected_rows(explored.settings) - explored.rows)


def is_good(explored: Explored) -> bool:
    """Nothing is broken, and where all was explored every row that can be reached was."""
    return explored.counterexample is None and not (explored.complete and missing_rows(explored))


def as_json(explored: Explored) -> dict[str, Any]:
    """The same as one JSON object."""
    settings, found = explored.settings, explored.counterexample
    return {
        "settings": {
            "policy": settings.policy,
            "orphans": settings.orphans,
            "idempotent": settings.idempotent,
            "epochs": settings.epochs,
            "duplicates": settings.duplicates,
            "deliveries": settings.deliveries,
            "operator_epochs": settings.operator_epochs,
            "hostile": settings.hostile,
            "broken": settings.broken,
        },
        "states": explored.states,
        "transitions": explored.transitions,
        "depth": explored.depth,
        "complete": explored.complete,
        "seconds": round(explored.seconds, 3),
        "rows": sorted(explored.rows - {0}),
        "rows_missing": missing_rows(explored),
        "property": "OK" if found is None else "FAIL",
        "counterexample": None if found is None else {"why": found.why, "steps": [_line(step) for step in found.steps]},
    }


def _line(step: Happened) -> str:
    if step.step is None:
        return f"{step.actor}: {step.what}"
    decided = step.step.said or "an invariant of the fold broke"
    return f"{step.actor}: {step.what} => {decided}"


# ---- a trace ----------------------------------------------------------------------------------------------------


def trace_lines(counterexample: Counterexample) -> list[bytes]:
    """The events that the processor decided, in order, in the JSON Lines form: what `simulate --trace-file` takes."""
    events = [step.event for step in counterexample.steps if step.event is not None]
    return [_event_line(event) for event in events]


def _event_line(event: Event) -> bytes:
    values = {name: value for name, value in to_json(event).items() if value is not None and name != "event_id"}
    if type(event) is Timeout or type(event) is Result or type(event) is Compensation:
        values["epoch"] = event.epoch
        if values.get("incarnation") != WRONG_INCARNATION:
            values.pop("incarnation", None)  # it is the record's own, wherever the ToolCall stands in the file
    kind = {"ToolCall": "tool_call"}.get(type(event).__name__, type(event).__name__.lower())
    return json.dumps({"type": kind, **values}, ensure_ascii=False).encode()


# ---- a diagram --------------------------------------------------------------------------------------------------

_ACTORS = {"planner": "Planner", "watchdog": "Watchdog", "operator": "Operator", "hostile": "Somebody hostile"}
_OTHERS = {"gateway": "Tool gateway", "tool": "Tool", "compensator": "Compensator"}


def diagram(counterexample: Counterexample) -> str:
    """The counterexample as a Mermaid sequence diagram."""
    spoke = {step.actor for step in counterexample.steps}
    acted = {step.step.dispatch.action for step in counterexample.steps if step.step and step.step.dispatch}
    spoke |= {"gateway"} if "CALL" in acted else set()
    spoke |= {"compensator"} if "COMPENSATE" in acted else set()
    lines = ["sequenceDiagram"]
    lines += [f"    participant {actor} as {name}" for actor, name in _ACTORS.items() if actor in spoke]
    lines.append("    participant processor as Processor")
    lines += [f"    participant {actor} as {name}" for actor, name in _OTHERS.items() if actor in spoke]
    for step in counterexample.steps:
        lines += [f"    {line}" for line in _arrows(step)]
    lines.append(f"    Note over processor: {_plain(counterexample.why)}")
    return "\n".join(lines) + "\n"


def _arrows(step: Happened) -> Sequence[str]:
    if step.step is None:
        return [f"Note over {step.actor}: {_plain(step.what)}"]
    arrows = [f"{step.actor}->>processor: {_plain(step.what)}", f"Note over processor: {_plain(step.step.said)}"]
    dispatch = step.step.dispatch
    if dispatch is not None:
        to = "gateway" if dispatch.action == "CALL" else "compensator"
        arrows.append(f"processor-->>{to}: {dispatch.action}, epoch {dispatch.epoch}")
    return arrows


def _plain(text: str) -> str:
    return text.replace(";", ",").replace("#", "no.")
