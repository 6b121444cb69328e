"""`epochfence broker`: a single-node Apache Kafka for this machine."""

import json
from pathlib import Path
from typing import Annotated

import typer

from epochfence.broker import LocalBroker, RunningBroker
from epochfence.errors import ClusterError

broker = typer.Typer(no_args_is_help=True, help="A single-node Apache Kafka for this machine.")

Directory = Annotated[
    Path | None,
    typer.Option(
        help="Where its jars, data and logs are. Default: $EPOCHFENCE_BROKER_DIR, else epochfence/broker in the XDG "
        "data home (~/.local/share).",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.add_typer(broker, name="broker")


@broker.command(epilog="Example: epochfence broker start")
def start(directory: Directory = None, as_json: Json = False) -> None:
    """Start the broker and wait until it serves groups and transactions. Needs Java 17 or newer, and Maven once.

    It goes on running when this command has ended. When it runs already, that is what is printed.
    """
    running = LocalBroker(directory).start(progress=lambda line: typer.echo(f"{line} ...", err=True))
    _print(running, as_json)


@broker.command(epilog="Example: epochfence broker stop")
def stop(directory: Directory = None, as_json: Json = False) -> None:
    """Stop the broker of this directory and no other. Its data stays."""
    stopped = LocalBroker(directory).stop()
    if as_json:
        typer.echo(json.dumps({"running": False, "stopped": stopped}))
    else:
        typer.echo("stopped" if stopped else "it did not run")


@broker.command(epilog="Example: epochfence broker status --json")
def status(directory: Directory = None, as_json: Json = False) -> None:
    """Say whether the broker runs and where. Exit code 3 when it does not run."""
    local = LocalBroker(directory)
    running = local.status()
    if running is not None:
        _print(running, as_json)
        return
    if as_json:
        typer.echo(json.dumps({"running": False, "directory": str(local.directory)}))
    raise ClusterError(f"no broker runs in {local.directory}: `epochfence broker start` starts it")


def _print(running: RunningBroker, as_json: bool) -> None:
    facts = {"bootstrap_servers": running.bootstrap_servers, "pid": running.pid, "directory": str(running.directory)}
    if as_json:
        typer.echo(json.dumps({"running": True, **facts}))
    else:
        typer.echo(f"running at {running.bootstrap_servers} (pid {running.pid}, data in {running.directory})")
