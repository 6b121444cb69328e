"""A timeline as one page that needs nothing else: no network, no file beside it, readable on paper.

Lanes are speakers, bands are epochs, a rejected answer is a red arrow that ends in a cross. Details open on a click.
The page's own policy lets nothing run or load but the style and the script below, so that no text of a sender could
either, even if it were not escaped.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from epochfence.audit.drawing import drawing
from epochfence.audit.escapes import html, shortened
from epochfence.audit.sentences import released, sentence
from epochfence.audit.timeline import Moment, Timeline
from epochfence.protocol.vocabulary import Reason, Verdict
from epochfence.wire.jsonl import to_json

_BODIES = ("arguments", "payload", "evidence")
_UNSET = ("null", "none", "")
_TITLE_CHARACTERS = 60

STYLE = """
:root { color-scheme: light; }
body { font: 14px/1.45 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 1300px; margin: 2em auto;
  padding: 0 1em; }
h1 { font-size: 1.35em; overflow-wrap: anywhere; margin-bottom: .2em; }
p.hearsay, .dim { color: #57606a; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg a { cursor: pointer; text-decoration: none; }
svg a:hover text, svg a:focus text { text-decoration: underline; }
.lane { stroke: #8c959f; stroke-dasharray: 3 4; }
.lane-name { font-weight: 600; text-anchor: middle; }
.lane-source { fill: #57606a; font-size: 11px; text-anchor: middle; }
.call { fill: #eaf2fd; } .compensation { fill: #fdf3e1; } .none { fill: #f3f4f6; }
.band-edge { stroke: #afb8c1; }
.band-name { font-size: 11px; font-weight: 600; fill: #57606a; }
.said { stroke: #0b5cad; stroke-width: 1.6; fill: none; } .said-text { fill: #0b5cad; }
.rejected { stroke: #c1121f; stroke-width: 1.8; fill: none; } .rejected-text { fill: #c1121f; }
.released { stroke: #5b6470; stroke-width: 1.4; stroke-dasharray: 6 4; fill: none; }
.released-text { fill: #3d444d; }
.verdict { font-weight: 600; text-anchor: middle; }
.box { fill: #fff; stroke: #8c959f; } .box-rejected { fill: #fff; stroke: #c1121f; }
.box-committed { fill: #e6f6ea; stroke: #1a7f37; }
.when { fill: #57606a; font-size: 11px; }
details { border: 1px solid #d0d7de; border-radius: 6px; margin: .5em 0; padding: .4em .8em; break-inside: avoid; }
details.rejected-moment { border-left: 5px solid #c1121f; }
details:target { outline: 2px solid #0b5cad; }
summary { cursor: pointer; overflow-wrap: anywhere; } summary b { color: inherit; }
.rejected-moment summary b { color: #c1121f; }
table { border-collapse: collapse; } td { padding: .05em .8em .05em 0; vertical-align: top; overflow-wrap: anywhere; }
td:first-child { color: #57606a; white-space: nowrap; }
.fields { display: flex; flex-wrap: wrap; gap: 0 3em; } .fields > div { flex: 1 1 20em; min-width: 0; }
h3 { font-size: 1em; margin: .6em 0 .1em; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } .screen { display: none; }
  .unset { display: none; } }
@page { margin: 1.5cm; }
"""

SCRIPT = """
const open = () => { const there = document.getElementById(location.hash.slice(1)); if (there) there.open = true; };
addEventListener('hashchange', open);
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(d => { d.open = true; }));
document.querySelectorAll('svg a').forEach(a => a.addEventListener('click', () => setTimeout(open)));
open();
"""


def page(timeline: Timeline) -> str:
    """The whole page, in UTF-8. Of bodies it has the length only."""
    title = f"Call {html(shortened(timeline.call_id, _TITLE_CHARACTERS))}"
    policy = f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'; base-uri 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Call {html(timeline.call_id)}</h1>\n{''.join(_summary(timeline))}{drawing(timeline)}\n"
        f"<h2>Every event and its decision</h2>\n{''.join(map(_details, timeline.moments))}"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _summary(timeline: Timeline) -> Iterator[str]:
    rejected = sum(moment.decision.verdict is Verdict.REJECT for moment in timeline.moments)
    last = timeline.standing
    stands = "no record" if last is None else f"{last.status}, epoch {last.live_epoch} live"
    unsettled = ", <b>unsettled</b>" if last is not None and last.unsettled else ""
    yield (
        f"<p>Partition {timeline.partition}, {len(timeline.moments)} decisions, {rejected} of them rejections. "
        f"It stands: {stands}{unsettled}. Last decided {_moment(timeline.moments[-1].timestamp_ms)}.</p>\n"
    )
    yield (
        '<p class="hearsay">Lanes are by type of event. The names under them are what the senders call themselves: '
        'hearsay, not proof.<span class="screen"> Click an arrow for its details.</span></p>\n'
    )


def _details(moment: Moment) -> str:
    decision = moment.decision
    reason = "" if decision.reason is Reason.NONE else f" {decision.reason}"
    rejected = ' class="rejected-moment"' if decision.verdict is Verdict.REJECT else ""
    source = "" if moment.source is None else f", calls itself {html(shortened(moment.source, _TITLE_CHARACTERS))}"
    sent = ""
    if decision.dispatch is not None:
        sent = f"<p>Released: {html(released(decision.dispatch))}</p>"
    said = _fields(moment.event) if moment.event is not None else f"<p>Its record is not shown: {moment.lost}.</p>"
    return (
        f'<details id="seq-{decision.seq}"{rejected}><summary>seq {decision.seq} · {html(moment.said)} under '
        f"{html(moment.token)} → <b>{decision.verdict}{reason}</b></summary>\n"
        f"<p>{html(sentence(decision))}</p>{sent}\n"
        f'<p class="dim">By the {moment.speaker}{source}. The broker received it '
        f"{_moment(decision.input.timestamp_ms)} and the decision {_moment(moment.timestamp_ms)} "
        f"(decisions@{moment.offset}).</p>\n"
        f'<div class="fields"><div><h3>Said</h3>{said}</div><div><h3>Decided</h3>{_fields(decision)}</div></div>'
        "</details>\n"
    )


def _fields(value: object) -> str:
    rows = []
    for name, text in _flat("", value):
        unset = ' class="unset"' if text in _UNSET else ""  # on paper they are left out
        rows.append(f"<tr{unset}><td>{html(name)}</td><td>{html(text)}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """(name, text) of every field; of a body its length."""
    values = to_json(value)
    for name, shown in values.items():
        raw = getattr(value, name)
        if name in _BODIES:
            yield prefix + name, "none" if raw is None else f"{len(raw)} bytes"
        elif name == "checkpoint":
            yield prefix + name, "none" if raw is None else f"at seq {raw.seq}"
        elif isinstance(shown, dict):
            yield from _flat(f"{prefix}{name}.", raw)
        else:
            yield prefix + name, shown if isinstance(shown, str) else json.dumps(shown)


def _moment(timestamp_ms: int) -> str:
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a damaged log may say anything
        return f"at {timestamp_ms} ms"
    return when.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d} UTC"
