"""A call's timeline as lines of at most 100 cells, for a terminal."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from epochfence.audit.sentences import released, sentence
from epochfence.audit.timeline import Moment, Timeline
from epochfence.cli._lines import LINE_CELLS, STATUS_STYLES, UNSETTLED_STYLE, cropped, moment
from epochfence.cli.decisions import VERDICT_STYLES
from epochfence.clients.printable import printable
from epochfence.protocol.vocabulary import Reason, Status

_LABEL = 12
_FOREIGN = 48
_FOREIGN_IN_HEAD = 24


def timeline_lines(timeline: Timeline) -> Iterator[Text]:
    """A head, then a few lines for each moment. What senders wrote is printable, and cropped."""
    last = timeline.standing
    stands = "no record" if last is None else f"{last.status} in epoch {last.live_epoch}"
    unsettled = ", unsettled" if last is not None and last.unsettled else ""
    yield Text(
        f"call {cropped(timeline.call_id, _FOREIGN_IN_HEAD)}, partition {timeline.partition}: "
        f"{len(timeline.moments)} decisions, {stands}{unsettled}"
    )
    begun_ms = timeline.moments[0].decision.input.timestamp_ms
    for one in timeline.moments:
        yield from _moment(one, begun_ms)


def _moment(one: Moment, begun_ms: int) -> Iterator[Text]:
    decision = one.decision
    at = decision.input
    yield Text("")
    passed_ms = at.timestamp_ms - begun_ms
    yield Text(f"seq {decision.seq}  {moment(at.timestamp_ms)}  {passed_ms:+,} ms", "bold")
    source = f", calls itself {cropped(one.source, _FOREIGN)}" if one.source else ""
    lost = "" if one.lost is None else f"; its record is not shown: {one.lost}"
    yield from _field("said", f"{one.said} by the {one.speaker}{source}, token {one.token}{lost}")
    reason = "" if decision.reason is Reason.NONE else f" {decision.reason}"
    style = VERDICT_STYLES.get(decision.verdict, "")
    yield from _field("decided", f"{decision.verdict}{reason}. {sentence(decision)}", style)
    if decision.dispatch is not None:
        sent = decision.dispatch
        shown = sent._replace(
            tool=cropped(sent.tool, _FOREIGN),
            idempotency_key=cropped(sent.idempotency_key, _FOREIGN),
            runner=None if sent.runner is None else cropped(sent.runner, _FOREIGN),
        )
        yield from _field("released", released(shown))
    if decision.status is not None:
        alarm = ", unsettled" if decision.unsettled else ""
        style = UNSETTLED_STYLE if decision.unsettled else STATUS_STYLES.get(Status(decision.status), "")
        yield from _field("then", f"{decision.status}, epoch {decision.live_epoch} live{alarm}", style)


def _field(name: str, text: str, style: str = "") -> Iterator[Text]:
    """The field's name, and its text wrapped behind it."""
    for number, line in enumerate(_wrapped(printable(text), LINE_CELLS - _LABEL)):
        label = f"  {name}" if number == 0 else ""
        yield Text(label.ljust(_LABEL)).append(line, style)


def _wrapped(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        if line and cell_len(line) + 1 + cell_len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line
