"""`epochfence send`: events from standard input into their topics."""

import json
import sys
from typing import Annotated

import typer

from epochfence.broker import find_cluster
from epochfence.clients.line_sending import LineInput, LineSending
from epochfence.clients.sender import Acknowledged
from epochfence.settings import load_settings

INTERRUPTED = 130
"""The exit code of what Ctrl-C ended, as shells count: 128 + SIGINT."""

_EXAMPLE = '{"type":"tool_call","call_id":"7","tool":"reserve","timeout_ms":1000}'


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("send", epilog=f"Example: echo '{_EXAMPLE}' | epochfence send")(send)


def send(
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="host:port of the cluster. Default: as in the settings, else the local broker.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="What every topic's name begins with. Default: as in the settings.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print an object for each acknowledged event: line, topic, partition, offset."),
    ] = False,
) -> None:
    """Send events, one JSON object a line on standard input, and wait until each is acknowledged.

    The form of a line is that of `fold`, without timestamp_ms. A Result or Compensation must say its incarnation: the
    offset of the ToolCall that opened the call, which --json prints. Lines are counted from 0, and the number is the
    event_id where none is given. The events of one call reach the log in the order of their lines; acknowledgements
    come in the order of the cluster's answers.

    Exit code 2 at the first line that is no event or is too large, after what stands before it was acknowledged;
    nothing after it is sent. 3 when the cluster does not answer.
    """
    settings = load_settings(bootstrap_servers=bootstrap_servers, topic_prefix=prefix)
    by_hand = sys.stdin.isatty()
    sending = LineSending(settings, find_cluster(settings), lambda event: _print(event, as_json, by_hand))
    try:
        sending.run(LineInput(sys.stdin.fileno(), lambda: _busy(sending)))
    except KeyboardInterrupt:
        sending.finish()
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if not as_json:
            _print_summary(sending, settings.topic_prefix)


def _busy(sending: LineSending) -> bool:
    """Whether an acknowledgement is still to come. If none, those that came are shown before input is waited for."""
    if sending.busy():
        return True
    sys.stdout.flush()
    return False


def _print(event: Acknowledged, as_json: bool, by_hand: bool) -> None:
    if as_json:
        values = {"line": event.number, "topic": event.topic, "partition": event.partition, "offset": event.offset}
        sys.stdout.write(json.dumps(values) + "\n")
    elif by_hand:
        print(f"line {event.number}: {event.topic}[{event.partition}]@{event.offset}", flush=True)


def _print_summary(sending: LineSending, prefix: str) -> None:
    topics = sorted(sending.acknowledged.items())
    parts = ", ".join(f"{count:,} {topic.removeprefix(prefix)}" for topic, count in topics)
    total = sending.acknowledged.total()
    print(f"acknowledged {total:,} event{'' if total == 1 else 's'}" + (f": {parts}" if parts else ""))
