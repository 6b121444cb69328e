"""`epochfence explore`: every interleaving of a call to a bound, on the production fold."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from epochfence.errors import UsageError
from epochfence.protocol.vocabulary import Orphans, Policy
from epochfence.simulation.explored import as_json, diagram, is_good, report, trace_lines
from epochfence.simulation.explorer import Explorer
from epochfence.simulation.independence import explore_two
from epochfence.simulation.world import WHAT_IS_PROMISED, Promise, Settings

_PROMISES = "; ".join(f"{promise}: {text}" for promise, text in WHAT_IS_PROMISED.items())


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("explore", epilog="Example: epochfence explore --break final --trace counterexample.jsonl")(explore)


def explore(
    policy: Annotated[str, typer.Option(help="COMPENSATE or REPLAY.")] = "COMPENSATE",
    orphans: Annotated[str, typer.Option(help="REPORT (a final compensator) or COMPENSATE (any other).")] = "REPORT",
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="The tool may be run twice for one dispatch.")
    ] = False,
    epochs: Annotated[int, typer.Option(min=2, max=8, help="max_epochs of the call.")] = 3,
    duplicates: Annotated[int, typer.Option(min=0, max=9, help="How many answers are delivered twice.")] = 1,
    deliveries: Annotated[int, typer.Option(min=1, max=9, help="How often a dispatch may be delivered.")] = 2,
    steps: Annotated[int | None, typer.Option(min=1, help="Look no further than this many steps.")] = None,
    states: Annotated[int, typer.Option(min=1, help="Stop at so many states: a million takes 250 MB.")] = 2_000_000,
    hostile: Annotated[int, typer.Option(min=0, max=3, help="How many events come from somebody hostile.")] = 0,
    broken: Annotated[
        str | None,
        typer.Option("--break", metavar="PROMISE", help=f"Break one. {_PROMISES}.", show_default=False),
    ] = None,
    two: Annotated[bool, typer.Option("--two-calls", help="Two calls: that neither touches the other.")] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the counterexample for `simulate --trace-file`.")
    ] = None,
    diagram_file: Annotated[
        Path | None, typer.Option("--diagram", metavar="FILE", help="Write it as a Mermaid sequence diagram.")
    ] = None,
    as_one_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explore every interleaving of one call: tool, compensator, planner, watchdog and operator, late, twice or never.

    The exit code is 1 if a property breaks, and then the shortest counterexample is printed; the trace file holds the
    events of it, the diagram also what happened in the world. Where only the world contradicts the log, `simulate`
    finds nothing wrong with the trace: the log alone cannot know. With --break the counterexample is what is wanted,
    and the exit code is 1 all the same.
    """
    settings = _settings(policy, orphans, idempotent, epochs, duplicates, deliveries, hostile, broken)
    if two:
        _two_calls(settings, steps, states, as_one_json)
        return
    explored = Explorer(settings).run(steps, states)
    if explored.counterexample is not None:
        _write(trace, b"".join(line + b"\n" for line in trace_lines(explored.counterexample)))
        _write(diagram_file, diagram(explored.counterexample).encode())
    typer.echo(json.dumps(as_json(explored)) if as_one_json else "\n".join(report(explored)))
    raise typer.Exit(0 if is_good(explored) else 1)


def _settings(
    policy: str,
    orphans: str,
    idempotent: bool,
    epochs: int,
    duplicates: int,
    deliveries: int,
    hostile: int,
    broken: str | None,
) -> Settings:
    if policy not in (Policy.COMPENSATE, Policy.REPLAY):
        raise UsageError(f"no policy is called {policy!r}: give COMPENSATE or REPLAY")
    if orphans not in (Orphans.REPORT, Orphans.COMPENSATE):
        raise UsageError(f"--orphans cannot be {orphans!r}: give REPORT or COMPENSATE")
    if broken is not None and broken not in list(Promise):
        raise UsageError(f"no promise is called {broken!r}; there are {', '.join(Promise)}")
    settings = Settings(
        policy=Policy(policy),
        orphans=Orphans(orphans),
        idempotent=idempotent,
        epochs=epochs,
        duplicates=duplicates,
        deliveries=deliveries,
        hostile=hostile,
        broken=None if broken is None else Promise(broken),
    )
    if settings.broken is not None and settings.broken not in settings.relied_on():
        relied = ", ".join(settings.relied_on())
        raise UsageError(f"with these options nothing relies on {broken}; what is relied on: {relied}")
    return settings


def _two_calls(settings: Settings, steps: int | None, states: int, as_one_json: bool) -> None:
    found = explore_two(settings, steps, states)
    if as_one_json:
        typer.echo(json.dumps({**asdict(found), "seconds": round(found.seconds, 3)}))
    else:
        end = "every state within the bounds" if found.complete else "cut off by a bound"
        typer.echo(
            "\n".join(
                (
                    f"EXPLORE two calls, states={found.states} depth={found.depth}: {end}",
                    f"pairs of the states of one call={found.expected} time={found.seconds:.1f} s",
                    "PROPERTY OK: neither call touches the other"
                    if found.broken is None
                    else f"PROPERTY FAIL: {found.broken}",
                )
            )
        )
    raise typer.Exit(found.broken is not None)


def _write(path: Path | None, content: bytes) -> None:
    if path is None:
        return
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
