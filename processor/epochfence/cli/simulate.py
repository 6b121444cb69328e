"""`epochfence simulate`: the traces, fenced beside the naive last writer."""

import json
from pathlib import Path
from typing import Annotated

import typer

from epochfence.errors import UsageError
from epochfence.simulation.controls import WHAT_IS_WRONG, Control
from epochfence.simulation.simulate import Run, as_json, report
from epochfence.simulation.simulate import simulate as run_trace
from epochfence.simulation.traces import ALL, EIGHT, Trace, from_file, named

MAX_EXIT_CODE = 100
"""Exit codes wrap at 256, and shells give those over 125 a meaning of their own."""

_CONTROLS = "; ".join(f"{control}: {wrong}" for control, wrong in WHAT_IS_WRONG.items())


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command(
        "simulate", epilog="Example: epochfence simulate --inject late_success_after_compensate --control no-fence"
    )(simulate)


def simulate(
    inject: Annotated[
        str | None, typer.Option(metavar="TRACE", help="Run one built-in trace.", show_default=False)
    ] = None,
    trace_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run a trace of your own: JSON Lines, as `fold` takes.", show_default=False),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Do one thing wrong. {_CONTROLS}.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run every built-in trace.")] = False,
    as_one_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run traces through the fold, beside a planner that lets the last writer win, and check the properties.

    Without an option the eight classic traces are run. A line of a file that is no event is decided UNDECODABLE, as
    in `fold`, and named on standard error; a file without any event is an error.

    The exit code is the number of failed traces, at most 100; a wrong option or file gives 2 and no `failed=` line.
    """
    left_out = _control(control)
    runs = [run_trace(trace, left_out) for trace in _traces(inject, trace_file, everything)]
    if trace_file is not None:
        _name_what_is_no_event(runs[0])
    failed = sum(bool(run.failures) for run in runs)
    _print(runs, failed, as_one_json)
    raise typer.Exit(min(failed, MAX_EXIT_CODE))


def _print(runs: list[Run], failed: int, as_one_json: bool) -> None:
    if as_one_json:
        data = {"runs": [as_json(run) for run in runs], "failed": failed, "traces": len(runs)}
        typer.echo(json.dumps(data, ensure_ascii=False))
        return
    for run in runs:
        typer.echo("\n".join(report(run)))
    typer.echo(f"failed={failed} / {len(runs)}")


def _control(name: str | None) -> Control | None:
    if name is None:
        return None
    try:
        return Control(name)
    except ValueError:
        raise UsageError(f"no control is called {name!r}; there is {', '.join(Control)}") from None


def _traces(inject: str | None, trace_file: Path | None, everything: bool) -> tuple[Trace, ...]:
    if (inject is not None) + (trace_file is not None) + everything > 1:
        raise UsageError("--inject, --trace-file and --all exclude one another: give one of them")
    if inject is not None:
        return (named(inject),)
    if trace_file is not None:
        return (_read(trace_file),)
    return ALL if everything else EIGHT


def _name_what_is_no_event(run: Run) -> None:
    if len(run.not_events) == len(run.trace.lines):
        why = f": line 0: {run.not_events[0][1]}" if run.not_events else ": it is empty"
        raise UsageError(f"no line of {run.trace.name} is an event{why}")
    for number, why in run.not_events:
        typer.echo(f"{run.trace.name}: line {number} is no event ({why}): decided UNDECODABLE", err=True)


def _read(path: Path) -> Trace:
    try:
        with path.open("rb") as file:
            return from_file(path.name, file)
    except OSError as error:
        raise UsageError(f"cannot read the trace file {path}: {error.strerror}") from None
