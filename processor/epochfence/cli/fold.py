"""`epochfence fold`: events in, decisions out, no broker."""

import sys

import typer

from epochfence.protocol.admission import Parameters
from epochfence.settings import Settings
from epochfence.simulation.lines import LineFold
from epochfence.wire.jsonl import write_decision

_RETENTION_MS = Settings.model_fields["retention_ms"].default


def register(app: typer.Typer) -> None:
    app.command("fold")(fold)


def fold(
    retention_ms: int = typer.Option(_RETENTION_MS, min=1, help="How long a closed call is remembered, milliseconds."),
) -> None:
    """JSON Lines events on standard input, one decision a line on standard output. No broker.

    The first line has offset 0. `timestamp_ms` on a line is the broker's timestamp. A line that is no event is
    decided UNDECODABLE.

    Example: echo '{"type":"tool_call","call_id":"7","tool":"reserve","timeout_ms":1000}' | epochfence fold
    """
    lines = LineFold(Parameters(retention_ms=retention_ms))
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        out.write(write_decision(lines.decide(line.removesuffix(b"\n")), decided=False))
    out.flush()
