"""The command line: one module a verb, no logic of its own. docs/cli.md says what each verb and exit code means."""

import sys
from importlib import import_module

import typer

from epochfence import __version__
from epochfence.clients.printable import printable
from epochfence.errors import EpochfenceError

VERBS = ("demo", "broker", "topics", "run", "send", "decisions", "table", "fold", "simulate", "explore", "audit")

app = typer.Typer(
    name="epochfence",
    help="A fence in front of every tool call that has a durable effect.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"epochfence {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


for _verb in VERBS:
    import_module(f"epochfence.cli.{_verb}").register(app)


def main() -> None:
    """Run a verb. A person's mistake or a fault of the cluster is one line on standard error and an exit code."""
    try:
        app()
    except EpochfenceError as error:
        # It may quote what somebody typed or sent: no control character of theirs reaches a terminal.
        print(f"epochfence: {printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does. Nothing is left to say to it.
        sys.stderr.close()
        sys.exit(1)
