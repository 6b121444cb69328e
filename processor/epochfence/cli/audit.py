"""`epochfence audit`: can this log be trusted, and what happened to a call."""

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from epochfence.audit.findings import CLAIMS, Finding, FindingKind, Proof
from epochfence.audit.history import ClusterArchive
from epochfence.audit.mermaid import mermaid_diagram
from epochfence.audit.page import page
from epochfence.audit.proof import prove
from epochfence.audit.timeline import read_timeline
from epochfence.broker import find_cluster
from epochfence.cli._lines import Lines
from epochfence.cli._timeline import timeline_lines
from epochfence.clients.call_ids import key_of
from epochfence.clients.printable import printable
from epochfence.engine.process.logs import configure_logs
from epochfence.errors import EpochfenceError, LogError, UsageError
from epochfence.settings import load_settings

audit = typer.Typer(no_args_is_help=True, help="Can this log be trusted, and what happened to a call. Reads only.")

Bootstrap = Annotated[
    str | None,
    typer.Option(help="host:port of the cluster. Default: as in the settings, else the local broker."),
]
Prefix = Annotated[str | None, typer.Option(help="What every topic's name begins with. Default: as in the settings.")]
_SHOWN_FINDINGS = 20


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.add_typer(audit, name="audit")


def open_archive(bootstrap_servers: str | None, prefix: str | None) -> ClusterArchive:
    """The topics that the settings and options name."""
    settings = load_settings(bootstrap_servers=bootstrap_servers, topic_prefix=prefix)
    bootstrap = find_cluster(settings)
    configure_logs()
    return ClusterArchive(settings, bootstrap)


@audit.command(epilog="Example: epochfence audit verify --json | jq .holds")
def verify(
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that was found, as one JSON object.")] = False,
    bootstrap_servers: Bootstrap = None,
    prefix: Prefix = None,
) -> None:
    """Prove from the topics alone that the log is what was decided: no processor is asked, nothing is written.

    Every decision is walked in order, its input fetched by its offset and folded again under the parameters that the
    log states; every field is compared, and seq, call_seq, the chain, the checkpoints and the epoch table are checked.
    A processor may go on meanwhile: what is not decided yet is counted. Exit code 4, with the first divergence, where
    the log contradicts itself; 1 where nothing is wrong but part of it could not be verified.
    """
    archive = open_archive(bootstrap_servers, prefix)
    count = archive.facts.partition_count
    if partition is not None and partition >= count:
        raise UsageError(f"there is no partition {partition}: they are 0 to {count - 1}")
    numbers = list(range(count)) if partition is None else [partition]
    # What is remembered of the calls is never garbage in a cycle: looking for some in it all, again and again, took a
    # fifth of the time of a long log.
    gc.set_threshold(100_000, 50, 100)
    with _progress(len(numbers)) as progress:
        proof = prove(archive, numbers, at_rest=False, progress=progress)
    report(proof, as_json)


@audit.command(epilog="Example: epochfence audit timeline 7 --html call-7.html")
def timeline(
    call_id: Annotated[str, typer.Argument(help="The call.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it whole, bodies too, as one JSON object.")] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print it as a Mermaid sequence diagram.")] = False,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as one page that needs nothing else.")
    ] = None,
    bootstrap_servers: Bootstrap = None,
    prefix: Prefix = None,
) -> None:
    """Print every event and decision of a call in order: who spoke, under which token, what was decided and why.

    Only the partition that its key lies in is read. Who spoke is what the sender calls itself. Of arguments and
    payloads the length is shown; --json has them whole. Exit code 1 for a call about which nothing was ever decided.
    """
    if sum((as_json, as_mermaid, html_file is not None)) > 1:
        raise UsageError("--json, --mermaid and --html are three ways to show it: choose one")
    key_of(call_id)  # refuses what a shell took that is not UTF-8
    found = read_timeline(open_archive(bootstrap_servers, prefix), call_id)
    if found is None:
        raise EpochfenceError(
            f"nothing was ever decided about a call {call_id!r}. Its id is its key, to the letter; a record in the "
            "wrong partition is MISROUTED, and stands there"
        )
    lines = Lines()
    if html_file is not None:
        _write(html_file, page(found))
    elif as_json:
        lines.json(json.dumps(found.to_json(), ensure_ascii=False).encode() + b"\n")
    elif as_mermaid:
        lines.text(mermaid_diagram(found).rstrip("\n"))
    else:
        for line in timeline_lines(found):
            lines.text(line)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def report(proof: Proof, as_json: bool) -> None:
    """Print what was found. Raises LogError with the first divergence, EpochfenceError where part was not verified."""
    lines = Lines()
    if as_json:
        lines.json(json.dumps(proof.to_json(), ensure_ascii=False).encode() + b"\n")
    else:
        for line in summary(proof):
            lines.text(printable(line))
    lines.flush()
    contradiction = proof.contradiction
    if contradiction is not None:
        raise LogError(_first(contradiction))
    if proof.findings:
        early = proof.findings_by_kind[FindingKind.ANSWERED_EARLY]
        raise EpochfenceError(
            f"the log does not contradict itself, but of {early} accepted answers the sender did not wait for the "
            f"decision that releases it, first here: {proof.findings[0]}"
        )
    if not proof.complete:
        raise EpochfenceError(f"nothing is wrong, but it is verified in part only: {'; '.join(proof.unverified)}")


def _first(finding: Finding) -> str:
    values = "" if finding.field is None else f". {finding.field}: logged {finding.logged}, computed {finding.computed}"
    return f"the log contradicts itself, first here: {finding}{values}"


def summary(proof: Proof) -> Iterator[str]:
    """What a person reads."""
    counts = proof.counts
    yield (
        f"{proof.prefix}*: {counts['decisions']:,} decisions in {counts['transactions']:,} transactions, "
        f"{counts['inputs']:,} inputs, {counts['calls']:,} calls"
    )
    yield f"folded again {proof.refolded:,} decisions; compared {proof.table_calls:,} records of the epoch table"
    yield (
        f"out of broker time {proof.departures:,} decisions, the largest by {proof.largest_departure_ms:,} ms; "
        f"not decided yet {proof.undecided:,} inputs"
    )
    for claim in CLAIMS:
        yield f"  {proof.verdict_on(claim):<4} {claim.text}"
    for sentence in proof.unverified:
        yield f"NOT VERIFIED {sentence}"
    for finding in proof.findings[:_SHOWN_FINDINGS]:
        yield f"WRONG {finding}"
    more = proof.findings_by_kind.total() - _SHOWN_FINDINGS
    if more > 0:
        yield f"WRONG {more:,} more; --json has the first {len(proof.findings):,}"
    for head in proof.heads:
        yield f"chain of partition {head.partition} at seq {head.seq}"
        yield f"  decisions {head.decisions}"
        yield f"  inputs    {head.inputs}"
    if proof.holds and not counts["decisions"]:
        yield "nothing is decided yet"
    elif proof.holds:
        yield "VERIFIED" if proof.complete else "VERIFIED IN PART"


@contextmanager
def _progress(partitions: int) -> Iterator[Callable[[int, int, int], None]]:
    """A bar on a terminal; nothing anywhere else."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda partition, done, total: None
        return
    columns = (TextColumn("partition {task.fields[number]}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, number=0)

        def show(partition: int, done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(total, 1), number=f"{partition} (of {partitions})")

        yield show
