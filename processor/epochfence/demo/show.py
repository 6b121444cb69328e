"""The demo as a person sees it: the steps as they happen, then what the log proves. Fits 100 columns, piped or not."""

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from epochfence.broker import ProvidedCluster, provide_cluster
from epochfence.demo.acts import fenced_half, gather, naive_half
from epochfence.demo.journal import Step, Tone
from epochfence.demo.stage import Processor, interruptible, own_prefix, topics
from epochfence.demo.verdict import Check, Evidence, seat
from epochfence.settings import Settings

WIDTH = 100
_COLUMNS = (("time", 6), ("who", 11), ("what", 44), ("record written", 18), ("seat", 4), ("record", 8))
_STYLES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "bold red"}


class Teller:
    """Prints to standard output, in colour where a terminal shows it. `quiet`: progress only, to standard error."""

    def __init__(self, quiet: bool) -> None:
        stream = sys.stderr if quiet else sys.stdout
        # Piped output has no width of its own: rich would take 80 and break the lines.
        width = None if stream.isatty() else WIDTH
        self._console = Console(file=stream, width=width, highlight=False, emoji=False, soft_wrap=True)
        self._quiet = quiet
        self._call_id: str | None = None

    def say(self, line: str = "", style: str = "") -> None:
        """A line of the story."""
        if not self._quiet:
            self._console.print(Text(line, style))

    def progress(self, line: str) -> None:
        """What is going on while nothing else is to be seen."""
        self._console.print(Text(f"{line} ...", "dim"))

    def scene(self, title: str, about: str) -> None:
        """The head of a half."""
        self.say()
        self.say(title, "bold")
        self.say(about)
        self.say(_row([name for name, _ in _COLUMNS]), "dim")
        self._call_id = None

    def step(self, step: Step) -> None:
        """A step, as it happens."""
        if step.call_id != self._call_id:
            self._call_id = step.call_id
            self.say(_row(["", f"call {step.call_id}", "", "", "", ""]), "dim")
        place = "" if step.place is None else str(step.place)
        at = f"{step.at_ms / 1000:.3f}"
        cells = [at, step.who, step.what, place, seat(step.sight), str(step.sight.record)]
        self.say(_row(cells), _STYLES[step.tone])

    def checks(self, checks: Sequence[Check]) -> None:
        """Sentences, each marked as true or not."""
        for check in checks:
            self.say(f"  {'yes' if check.holds else 'NO '}  {check.text}", "" if check.holds else "bold red")


def _row(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True)).rstrip()


def show(settings: Settings, *, keep: bool, as_json: bool) -> int:
    """Run the demo. Returns 0 when the log proves it, 1 when not. Raises EpochfenceError, and stage.Interrupted."""
    teller = Teller(quiet=as_json)
    with interruptible(), provide_cluster(settings, teller.progress) as cluster:
        evidence = _run(settings, cluster, keep, teller)
        teller.progress("cleaning up")
    if as_json:
        print(json.dumps(evidence.to_json(), ensure_ascii=False))
    else:
        _conclude(evidence, teller)
        if keep:
            teller.say(
                "Its topics are kept. `epochfence broker start` starts a broker of this run again, with its data."
            )
            options = f"--bootstrap-servers {cluster.bootstrap_servers} --prefix {evidence.proof.prefix}"
            teller.say(f"epochfence decisions {options} --call 7")
    return 0 if evidence.proven else 1


def _run(settings: Settings, cluster: ProvidedCluster, keep: bool, teller: Teller) -> Evidence:
    bootstrap, prefix = cluster.bootstrap_servers, own_prefix(settings)
    naive = settings.model_copy(update={"topic_prefix": f"{prefix}naive."})
    fenced = settings.model_copy(update={"topic_prefix": prefix})
    teller.say("epochfence: call 7 reserves a seat. The tool's answer is slower than the planner's deadline.", "bold")
    teller.say(f"cluster  {cluster.how}, at {bootstrap}")
    teller.say(f"topics   {prefix}*, {'kept' if keep else 'deleted at the end'}")
    with (
        topics(naive, bootstrap, keep=keep, progress=teller.progress),
        topics(fenced, bootstrap, keep=keep, progress=teller.progress),
        Processor(fenced, bootstrap) as processor,
    ):
        teller.scene(
            "1. Last writer wins", "Everyone acts on what was asked. The application writes what arrives last."
        )
        left = naive_half(naive, bootstrap, teller.step)
        teller.scene("2. Fenced", "Nobody acts before a committed decision. The application writes what was committed.")
        processor.wait_ready()
        acted = fenced_half(fenced, bootstrap, processor, teller.step)
        processor.stop()
        return gather(fenced, bootstrap, left, acted)


def _conclude(evidence: Evidence, teller: Teller) -> None:
    counts = evidence.proof.counts
    teller.say()
    teller.say("What is left", "bold")
    teller.say(" without the fence")
    teller.checks([evidence.naive_check])
    teller.say(" with it")
    teller.checks(evidence.story)
    teller.say(f" and of all {counts['inputs']} inputs and {counts['decisions']} decisions, read back from the topics:")
    teller.checks(evidence.claims)
    for finding in evidence.proof.findings:
        teller.say(f"  {finding}", "red")
    for head in evidence.proof.heads:
        teller.say(f"       chain of decisions[{head.partition}] at seq {head.seq}: {head.decisions[:16]}…")
    teller.say()
    if evidence.proven:
        teller.say("PROVEN: the ghost write happened without the fence, and did not happen with it.", "bold green")
    else:
        teller.say("NOT PROVEN: see what is marked NO above.", "bold red")
