"""`epochfence demo`: the story of call 7, told twice, on a real broker."""

from typing import Annotated

import typer

from epochfence.demo.show import show
from epochfence.demo.stage import Interrupted
from epochfence.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("demo", epilog="Example: epochfence demo --keep")(demo)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the topics of this run on the cluster.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the story.")] = False,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Where the cluster is.", show_default=False)] = None,
) -> None:
    """Act out a ghost write on a real broker, without the fence and with it, and prove from the log what happened.

    The cluster: EPOCHFENCE_BOOTSTRAP_SERVERS if set, else the local broker, else Docker. What is started for this run
    is stopped again; its topics, under a prefix of their own, are deleted unless --keep.

    Exit code 0: proven. 1: not. 130 or 143: interrupted, and nothing is left running.
    """
    try:
        code = show(load_settings(bootstrap_servers=bootstrap_servers), keep=keep, as_json=as_json)
    except Interrupted as interrupted:
        typer.echo("epochfence: interrupted; nothing of the demo is left running", err=True)
        code = 128 + interrupted.number
    raise typer.Exit(code)
