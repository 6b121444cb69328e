"""The picture in a timeline's page: an SVG of swim lanes, one row a decision, one band an epoch."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from epochfence.audit.escapes import html, shortened
from epochfence.audit.mermaid import lanes, receiver
from epochfence.audit.timeline import Moment, Speaker, Timeline
from epochfence.protocol.vocabulary import Action, Reason, Status, Verdict

_LEFT, _RIGHT, _HEAD, _ROW, _SENT, _FOOT = 150, 20, 64, 74, 34, 16
_LANE, _MIN_WIDTH = 205, 760
_GAP = 10
_BOX_HALF, _BOX_HEIGHT = 108, 22
_SOURCE_CHARACTERS, _TOOL_CHARACTERS = 30, 18


class _Row(NamedTuple):
    moment: Moment
    top: int
    height: int


class _Band(NamedTuple):
    name: str
    style: str
    top: int
    bottom: int


def drawing(timeline: Timeline) -> str:
    """The SVG. Each event is a link to `#seq-N`."""
    rows = list(_rows(timeline))
    places = _places(timeline)
    width = max(_MIN_WIDTH, _LEFT + _RIGHT + _LANE * len(places))
    height = rows[-1].top + rows[-1].height + _FOOT
    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="Swim lanes of the call" '
        'xmlns="http://www.w3.org/2000/svg">',
        *(_band(band, width) for band in _bands(rows)),
        *_heads(timeline, places, height),
        *(_row(row, places, rows[0].moment.decision.input.timestamp_ms) for row in rows),
        "</svg>",
    ]
    return "\n".join(parts)


def _rows(timeline: Timeline) -> Iterator[_Row]:
    top = _HEAD
    for moment in timeline.moments:
        height = _ROW + (_SENT if moment.decision.dispatch is not None else 0)
        yield _Row(moment, top, height)
        top += height


def _places(timeline: Timeline) -> dict[str, int]:
    """The x of every lane: those who ask on the left of the processor, those who act on its right."""
    there = lanes(timeline)
    asking = [s for s in there if s in (Speaker.PLANNER, Speaker.WATCHDOG, Speaker.OPERATOR)]
    names: list[str] = [*asking, "processor", *(s for s in there if s not in asking)]
    return {name: _LEFT + _LANE // 2 + _LANE * n for n, name in enumerate(names)}


def _bands(rows: Sequence[_Row]) -> Iterator[_Band]:
    """One for each run of decisions after which the same epoch is live; a new epoch begins at the decision's box."""
    current: _Band | None = None
    lives = {row.moment.decision.incarnation for row in rows} - {None}
    for row in rows:
        decision, middle = row.moment.decision, row.top + _ROW // 2
        if decision.status is None:
            name, style = "", "none"
        else:
            style = _kind(row.moment, current)
            life = f", incarnation {decision.incarnation}" if len(lives) > 1 else ""
            name = f"epoch {decision.live_epoch}{life}"
        if current is None:
            current = _Band(name, style, row.top, row.top)
        elif name and name != current.name:
            yield current._replace(bottom=middle)
            current = _Band(name, style, middle, middle)
        current = current._replace(bottom=row.top + row.height)
    if current is not None:
        yield current


def _kind(moment: Moment, before: _Band | None) -> str:
    """Who may speak in the live epoch, as a style."""
    decision = moment.decision
    if decision.dispatch is not None:
        return "call" if decision.dispatch.action is Action.CALL else "compensation"
    if decision.status is Status.CANCELLED:
        return "none"
    return "none" if before is None else before.style


def _band(band: _Band, width: int) -> str:
    return (
        f'<rect class="{band.style}" x="0" y="{band.top}" width="{width}" height="{band.bottom - band.top}"/>'
        f'<line class="band-edge" x1="0" y1="{band.top}" x2="{width}" y2="{band.top}"/>'
        f'<text class="band-name" x="8" y="{band.top + 16}">{html(band.name)}</text>'
    )


def _heads(timeline: Timeline, places: dict[str, int], height: int) -> Iterator[str]:
    for name, x in places.items():
        sources = {m.source for m in timeline.moments if m.speaker == name and m.source}
        called = shortened(", ".join(sorted(sources)), _SOURCE_CHARACTERS)
        yield (
            f'<text class="lane-name" x="{x}" y="24">{html(name)}</text>'
            f'<text class="lane-source" x="{x}" y="42">{html(called)}</text>'
            f'<line class="lane" x1="{x}" y1="{_HEAD - 12}" x2="{x}" y2="{height}"/>'
        )


def _row(row: _Row, places: dict[str, int], begun_ms: int) -> str:
    moment, decision = row.moment, row.moment.decision
    rejected = decision.verdict is Verdict.REJECT
    start, middle, y = places[moment.speaker], places["processor"], row.top + 26
    style = "rejected" if rejected else "said"
    reason = "" if decision.reason is Reason.NONE else f" {decision.reason}"
    box = "box-rejected" if rejected else "box-committed" if decision.verdict is Verdict.COMMIT else "box"
    token = "" if moment.token == "none" else f" {moment.token}"
    passed_ms = decision.input.timestamp_ms - begun_ms
    parts = [
        f'<a href="#seq-{decision.seq}" class="moment {style}-moment">',
        f'<text class="when" x="8" y="{row.top + 32}">seq {decision.seq}, {passed_ms:+,} ms</text>',
        _arrow(style, start, middle, y, crossed=rejected),
        _label(f"{style}-text", start, middle, y, moment.said + token),
        f'<rect class="{box}" x="{middle - _BOX_HALF}" y="{y + 10}" width="{2 * _BOX_HALF}" height="{_BOX_HEIGHT}" '
        f'rx="4"/><text class="verdict {style}-text" x="{middle}" y="{y + 25}">{decision.verdict}{reason}</text>',
    ]
    dispatch = decision.dispatch
    if dispatch is not None:
        end, below = places[receiver(moment)], row.top + _ROW + 14
        what = f"{dispatch.action} {shortened(dispatch.tool, _TOOL_CHARACTERS)} (epoch {dispatch.epoch})"
        parts += [
            _arrow("released", middle, end, below, crossed=False),
            _label("released-text", middle, end, below, what),
        ]
    return "".join([*parts, "</a>"])


def _arrow(style: str, start: int, end: int, y: int, *, crossed: bool) -> str:
    """From lane to lane. One that is rejected ends in a cross, short of the lane: also without colours it is seen."""
    ahead = 1 if end > start else -1
    if crossed:
        tip = end - ahead * 8
        head = f"M{tip - 6} {y - 6} L{tip + 6} {y + 6} M{tip - 6} {y + 6} L{tip + 6} {y - 6}"
    else:
        tip = end - ahead * 2
        head = f"M{tip - ahead * 8} {y - 5} L{tip} {y} L{tip - ahead * 8} {y + 5}"
    return f'<path class="{style}" d="M{start} {y} L{tip} {y} "/><path class="{style} tip" d="{head}"/>'


def _label(style: str, start: int, end: int, y: int, text: str) -> str:
    """Beside the sender's end, where no other lane's arrow is."""
    ahead, anchor = (1, "start") if end > start else (-1, "end")
    x = start + ahead * _GAP
    return f'<text class="{style}" text-anchor="{anchor}" x="{x}" y="{y - 6}">{html(text)}</text>'
