"""A timeline as a Mermaid sequence diagram: https://mermaid.js.org/syntax/sequenceDiagram.html."""

from collections.abc import Iterator

from epochfence.audit.escapes import mermaid, shortened
from epochfence.audit.sentences import sentence
from epochfence.audit.timeline import Moment, Speaker, Timeline
from epochfence.protocol.vocabulary import Action, Reason, Verdict

_PROCESSOR = "processor"
_NAME_CHARACTERS = 40
_RECEIVERS = {Action.CALL: Speaker.GATEWAY, Action.COMPENSATE: Speaker.COMPENSATOR}


def mermaid_diagram(timeline: Timeline) -> str:
    """The diagram's text. What senders wrote is escaped; nothing that a call carried is in it."""
    return "\n".join(_lines(timeline)) + "\n"


def _lines(timeline: Timeline) -> Iterator[str]:
    yield "sequenceDiagram"
    yield f"    %% call {mermaid(shortened(timeline.call_id, _NAME_CHARACTERS))}, partition {timeline.partition}"
    yield f"    participant {_PROCESSOR}"
    for speaker in lanes(timeline):
        yield f"    participant {speaker}"
    for moment in timeline.moments:
        yield from _moment(moment)


def lanes(timeline: Timeline) -> list[Speaker]:
    """Everyone who spoke or was sent something, in a fixed order."""
    there = {moment.speaker for moment in timeline.moments}
    there |= {receiver(moment) for moment in timeline.moments if moment.decision.dispatch is not None}
    return [speaker for speaker in Speaker if speaker in there]


def receiver(moment: Moment) -> Speaker:
    """Who is sent what the decision releases."""
    assert moment.decision.dispatch is not None
    return _RECEIVERS.get(moment.decision.dispatch.action, Speaker.UNKNOWN)


def _moment(moment: Moment) -> Iterator[str]:
    decision, rejected = moment.decision, moment.decision.verdict is Verdict.REJECT
    token = "" if moment.token == "none" else f" under {moment.token}"
    source = "" if moment.source is None else f" by {mermaid(shortened(moment.source, _NAME_CHARACTERS))}"
    arrow = "-x" if rejected else "->>"
    yield f"    {moment.speaker}{arrow}{_PROCESSOR}: {mermaid(moment.said + token)}{source}"
    reason = "" if decision.reason is Reason.NONE else f" {decision.reason}"
    yield f"    Note over {_PROCESSOR}: seq {decision.seq} {decision.verdict}{reason}<br/>{mermaid(sentence(decision))}"
    if decision.dispatch is not None:
        tool = mermaid(shortened(decision.dispatch.tool, _NAME_CHARACTERS))
        sent = f"{decision.dispatch.action} in epoch {decision.dispatch.epoch}"
        yield f"    {_PROCESSOR}->>{receiver(moment)}: {sent}, {tool}"
