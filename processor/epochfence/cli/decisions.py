"""`epochfence decisions`: what was decided, committed only."""

from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import typer

from epochfence.broker import find_cluster
from epochfence.cli._lines import LINE_CELLS, STATUS_STYLES, UNSETTLED_STYLE, Cell, Lines, cropped, notify, size
from epochfence.clients.decisions import CommittedDecision, read_decisions
from epochfence.engine.process.logs import configure_logs
from epochfence.engine.process.supervisor import StopFlag
from epochfence.errors import UsageError
from epochfence.protocol.decisions import Decision
from epochfence.protocol.vocabulary import EventType, Reason, Status, Verdict
from epochfence.settings import load_settings
from epochfence.wire.jsonl import write_decision

VERDICT_STYLES = {
    Verdict.OPEN: "cyan",
    Verdict.FENCE: "yellow",
    Verdict.COMMIT: "bold green",
    Verdict.REJECT: "red",
    Verdict.SETTLE: "green",
    Verdict.ESCALATE: "bold red",
}
_PARTITION, _SEQ, _CALL, _SAID, _VERDICT, _STANDS, _RELEASES = 3, 6, 12, 14, 26, 15, 18
assert _PARTITION + _SEQ + _CALL + _SAID + _VERDICT + _STANDS + _RELEASES + 6 == LINE_CELLS


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("decisions", epilog="Example: epochfence decisions --call 7 --follow")(decisions)


def decisions(
    call: Annotated[str | None, typer.Option(metavar="ID", help="Only this call's: one partition is read.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C or SIGTERM.")] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning/--from-now", help="--from-now: only what is committed from now on.")
    ] = True,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition's.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each decision whole, as a line of JSON.")] = False,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="host:port of the cluster. Default: as in the settings, else the local broker.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="What every topic's name begins with. Default: as in the settings.")
    ] = None,
) -> None:
    """Print the decisions from the beginning to the end as it stands. Only what is committed is ever shown.

    Each partition in the order of seq, all of them by the broker's clock. A line says: partition and seq; the call;
    what was said and of which epoch; the verdict and its reason; the call's live epoch and status after it; what
    the decision releases to be sent (which attempt, how long its arguments), or how long the committed payload is.
    Arguments and payloads themselves are in --json.
    """
    if not from_beginning and not follow:
        raise UsageError("--from-now shows what is yet to come, so it needs --follow")
    settings = load_settings(bootstrap_servers=bootstrap_servers, topic_prefix=prefix)
    bootstrap = find_cluster(settings)
    configure_logs()
    stopping = StopFlag() if follow else lambda: False
    found = read_decisions(
        settings,
        bootstrap,
        call_id=call,
        partition=partition,
        follow=follow,
        from_now=not from_beginning,
        stop=stopping,
        notify=notify,
    )
    shown = _show(islice(found, limit), as_json, follow)
    if not shown and not follow and not as_json:
        notify("nothing is decided yet" if call is None else "nothing is decided about that call")


def _show(found: Iterable[CommittedDecision], as_json: bool, flush: bool) -> bool:
    """Print what was found, at once where `flush`. Returns whether there was anything."""
    lines = Lines()
    count = 0
    for count, committed in enumerate(found, 1):
        if as_json:
            lines.json(write_decision(committed.decision))
        else:
            if count == 1:
                lines.row(_header())
            _print(lines, committed)
        if flush:
            lines.flush()
    return count > 0


def _header() -> list[Cell]:
    return [
        Cell("P", _PARTITION, "bold", right=True),
        Cell("SEQ", _SEQ, "bold", right=True),
        Cell("CALL", _CALL, "bold"),
        Cell("SAID, EPOCH", _SAID, "bold"),
        Cell("VERDICT, REASON", _VERDICT, "bold"),
        Cell("LIVE, STATUS", _STANDS, "bold"),
        Cell("RELEASES", style="bold"),
    ]


def _print(lines: Lines, committed: CommittedDecision) -> None:
    lines.row(decision_cells(committed))
    notes = decision_notes(committed.decision)
    if notes:
        lines.row([Cell("", _PARTITION + 1 + _SEQ), Cell(f"^ {notes}", style=UNSETTLED_STYLE)])


def decision_cells(committed: CommittedDecision) -> list[Cell]:
    """The columns of a decision's line."""
    decision = committed.decision
    style = VERDICT_STYLES.get(decision.verdict, "")
    cells = [
        Cell(str(committed.partition), _PARTITION, right=True),
        Cell(f"{decision.seq}", _SEQ, right=True),
        Cell(_said(decision), _SAID),
        Cell(_verdict(decision), _VERDICT, style),
        Cell(*_stands(decision)),
        Cell(_releases(decision)),
    ]
    # A number that outgrows its column takes the room of the call's id, which can be cropped.
    used = sum(max(len(cell.text), cell.width) for cell in cells) + len(cells)
    room = max(4, min(_CALL, LINE_CELLS - used))
    cells.insert(2, Cell(cropped(decision.call_id, room), room))
    return cells


def decision_notes(decision: Decision) -> str:
    """What a person must not miss, in words; empty where there is no such thing."""
    notes = []
    if decision.orphaned_effect:
        notes.append("an effect of a fenced epoch may have landed")
    if decision.unsettled:
        notes.append("the call is unsettled")
    return "; ".join(notes)


def _said(decision: Decision) -> str:
    if decision.event is EventType.NONE:
        return "-"
    if decision.event is EventType.TOOL_CALL:
        return str(decision.event)
    return f"{decision.event} {'none' if decision.epoch is None else decision.epoch}"


def _verdict(decision: Decision) -> str:
    return str(decision.verdict) if decision.reason is Reason.NONE else f"{decision.verdict} {decision.reason}"


def _stands(decision: Decision) -> tuple[str, int, str]:
    status = decision.status
    if status is None:
        return "-", _STANDS, ""
    return f"{decision.live_epoch:>2} {status}", _STANDS, STATUS_STYLES.get(Status(status), "")


def _releases(decision: Decision) -> str:
    dispatch = decision.dispatch
    if dispatch is not None:
        return f"{dispatch.action}#{dispatch.attempt} {size(dispatch.arguments)}"
    return f"payload {size(decision.payload)}" if decision.payload is not None else ""
