"""`epochfence audit timeline`: what happened to a call, in the terminal, as JSON, as a diagram, and as a page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.cells import cell_len

from epochfence.audit.mermaid import mermaid_diagram
from epochfence.audit.page import page
from epochfence.audit.sentences import SENTENCES, sentence
from epochfence.audit.timeline import Timeline, read_timeline
from epochfence.protocol.admission import Parameters
from epochfence.protocol.vocabulary import Orphans, Reason, Verdict
from tests.audit_verb import Said, run_audit
from tests.builders import Log, call, compensation, result, timeout
from tests.memory_archive import DECISIONS, NAMES, MemoryArchive

EVIL = "\"><script>document.title='taken'</script>\x1b[2J\u202eevil; end\n%%{init}%%" + "語" * 60
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


Tell = Callable[..., Said]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tell:
    def run(archive: MemoryArchive, *options: str) -> Said:
        return run_audit(monkeypatch, capfd, archive, "timeline", *options)

    return run


def ghost_write(call_id: str = "7", source: str = "planner") -> MemoryArchive:
    """Opened, fenced, compensated; then its success comes late. Another call lies in between."""
    archive = MemoryArchive()
    opening = call(call_id=call_id, occurred_at_ms=archive.now_ms, source=source, orphans=Orphans.COMPENSATE)
    archive.say(opening)
    archive.say(call(call_id="other", occurred_at_ms=archive.now_ms))
    archive.say(timeout(1, call_id=call_id))
    archive.say(compensation(2, call_id=call_id, execution_id="c", source="compensator-1"))
    archive.say(result(1, call_id=call_id, execution_id="r", source=source))
    return archive


def of(archive: MemoryArchive, call_id: str = "7") -> Timeline:
    timeline = read_timeline(archive, call_id)
    assert timeline is not None
    return timeline


# ---- in the terminal --------------------------------------------------------------------------------------------


def test_the_ghost_write_as_a_person_reads_it(tell: Tell) -> None:
    said = tell(ghost_write(), "7")
    assert (said.code, said.err) == (0, "")
    head, _, *rest = said.out.splitlines()
    assert head == "call 7, partition 0: 4 decisions, COMMITTED in epoch 3, unsettled"
    words = " ".join(" ".join(rest).split())
    for told in (
        "said TOOL_CALL by the planner, calls itself planner, token none",
        "decided OPEN. Opened: epoch 1 is live, and the tool may be called.",
        "released CALL reserve under the token (0, 1), attempt 1, key 7@0, 7 B of arguments, to be run by gateway",
        "said TIMEOUT DEADLINE by the planner, calls itself planner, token (?, 1)",
        "decided FENCE. Fenced: epoch 2 is live now, and every older one is stale.",
        "decided COMMIT. Committed: the compensation of epoch 2 is the outcome of the call, OK.",
        "said RESULT SUCCESS by the gateway, calls itself planner, token (0, 1)",
        "decided REJECT STALE_EPOCH. Rejected: epoch 1 was fenced, epoch 3 is live. "
        "An effect that no commit owns may have landed. The call is unsettled until it is compensated again.",
        "then COMMITTED, epoch 3 live, unsettled",
    ):
        assert told in words
    assert [line.split()[1] for line in rest if line.startswith("seq ")] == ["1", "3", "4", "5"]
    assert "seat" not in said.out


def test_foreign_text_is_printable_and_no_line_is_wider_than_100(tell: Tell) -> None:
    said = tell(ghost_write(EVIL[:40], EVIL), EVIL[:40])
    assert said.code == 0
    assert not {"\x1b", "\u202e"} & set(said.out)
    assert [line for line in said.out.splitlines() if cell_len(line) > 100] == []


def test_a_call_that_does_not_exist_is_a_sentence(tell: Tell) -> None:
    said = tell(ghost_write(), "8\x1b")
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    assert r"nothing was ever decided about a call '8\x1b'" in line


def test_one_way_to_show_it_at_a_time(tell: Tell) -> None:
    said = tell(ghost_write(), "7", "--json", "--mermaid")
    assert (said.code, said.out) == (2, "")
    assert "choose one" in said.err


def test_poison_and_deleted_inputs_are_said(tell: Tell) -> None:
    archive = ghost_write()
    archive.say(b"no avro")
    del archive.topics[NAMES[2]][0]
    words = " ".join(tell(archive, "7").out.split())
    assert "said what does not decode by the sender, token none; its record is not shown: it does not decode" in words
    assert "RESULT SUCCESS by the gateway, token (?, 1); its record is not shown: it was deleted" in words


def test_a_damaged_decision_is_refused_with_its_place(tell: Tell) -> None:
    archive = ghost_write()
    archive.topics[DECISIONS][2] = archive.topics[DECISIONS][2]._replace(value=b"nonsense")
    said = tell(archive, "7")
    assert (said.code, said.out) == (4, "")
    assert "m.decisions[0]@2 is no decision" in said.err


def test_far_apart_inputs_are_fetched_one_by_one_and_near_ones_together() -> None:
    archive = MemoryArchive()
    archive.say(call(occurred_at_ms=archive.now_ms))
    archive.say(result(1, execution_id="z"))
    archive.say(*[result(1, call_id=f"x{n}") for n in range(4_999)])
    archive.say(result(1, execution_id="a"), result(1, execution_id="b"))
    reads: list[tuple[str, int, int]] = []
    real = archive.read
    archive.read = lambda topic, start, end: reads.append((topic, start, end)) or real(topic, start, end)  # type: ignore[method-assign, func-returns-value]
    archive.say(result(1, execution_id="c"))
    assert len(of(archive).moments) == 5
    assert [read for read in reads if read[0] == NAMES[2]] == [(NAMES[2], 0, 1), (NAMES[2], 5_000, 5_003)]


# ---- JSON -------------------------------------------------------------------------------------------------------


def test_json_has_all_of_it(tell: Tell) -> None:
    said = tell(ghost_write(), "7", "--json")
    assert said.code == 0
    told = json.loads(said.out)
    assert (told["type"], told["call_id"], told["partition"]) == ("timeline", "7", 0)
    assert [moment["decision"]["seq"] for moment in told["moments"]] == [1, 3, 4, 5]
    late = told["moments"][-1]
    assert (late["speaker"], late["source"], late["token"]) == ("gateway", "planner", "(0, 1)")
    assert late["event"]["payload"] == "seat 12 held"
    assert late["decision"]["reason"] == "STALE_EPOCH"
    assert late["released"].startswith("COMPENSATE reserve under the token (0, 3)")
    assert late["sentence"].startswith("Rejected: epoch 1 was fenced, epoch 3 is live.")


# ---- sentences --------------------------------------------------------------------------------------------------


def test_everything_that_is_decided_in_the_acceptance_cases_has_a_sentence() -> None:
    cases = (Path(__file__).parent.parent / "vectors" / "fold_cases.jsonl").read_text("utf-8").splitlines()
    decided = set()
    for case in map(json.loads, cases):
        for decision in case["decisions"]:
            decided.add((Verdict(decision["verdict"]), Reason(decision["reason"])))
    assert len(decided) > 15
    assert decided <= SENTENCES.keys()


def test_every_reason_but_the_two_that_no_fold_gives_has_a_sentence() -> None:
    told = {reason for _, reason in SENTENCES}
    assert set(Reason) - told == {Reason.REPAIRED, Reason.UNRECOGNIZED}
    assert {verdict for verdict, _ in SENTENCES} == set(Verdict) - {Verdict.UNRECOGNIZED}


def test_a_verdict_of_a_newer_writer_is_said_to_be_unknown() -> None:
    (decision,) = Log(call()).decisions
    decision.verdict = Verdict.UNRECOGNIZED
    assert sentence(decision) == "UNRECOGNIZED NONE: this version has no words for it."


# ---- Mermaid ----------------------------------------------------------------------------------------------------


def test_a_diagram_of_the_ghost_write(tell: Tell) -> None:
    said = tell(ghost_write(), "7", "--mermaid")
    lines = [line.strip() for line in said.out.splitlines()]
    assert lines[0] == "sequenceDiagram"
    assert "participant compensator" in lines
    assert "planner->>processor: TOOL_CALL by planner" in lines
    assert "processor->>gateway: CALL in epoch 1, reserve" in lines
    assert "gateway-xprocessor: RESULT SUCCESS under (0, 1) by planner" in lines
    assert any(line.startswith("Note over processor: seq 5 REJECT STALE_EPOCH<br/>") for line in lines)


def test_no_foreign_text_is_syntax_in_a_diagram() -> None:
    drawn = mermaid_diagram(of(ghost_write("7", EVIL)))
    ours = re.sub(r"#\d+;|<br/>|->>", "", drawn)
    assert not set('<>"\x1b\u202e;#{}') & set(ours)


# ---- the page ---------------------------------------------------------------------------------------------------


class Parsed(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_a_page_of_the_ghost_write(tmp_path: Path, tell: Tell) -> None:
    file = tmp_path / "call.html"
    said = tell(ghost_write(), "7", "--html", str(file))
    assert (said.code, said.out, said.err) == (0, "", "")
    parsed = Parsed(file.read_text("utf-8"))
    assert [a["href"] for a in parsed.of("a")] == ["#seq-1", "#seq-3", "#seq-4", "#seq-5"]
    assert [d["id"] for d in parsed.of("details")] == ["seq-1", "seq-3", "seq-4", "seq-5"]
    rejected = [a["href"] for a in parsed.of("a") if "rejected-moment" in (a["class"] or "")]
    assert rejected == ["#seq-5"]
    bands = [text for text in parsed.text if re.fullmatch(r"epoch \d", text)]
    assert bands == ["epoch 1", "epoch 2", "epoch 3"]
    assert "seat" not in "".join(parsed.text)


def test_bands_tell_two_lives_of_a_call_apart() -> None:
    archive = MemoryArchive(Parameters(retention_ms=50))
    archive.say(call(occurred_at_ms=archive.now_ms))
    archive.say(result(1))
    archive.say(*[result(1, call_id="8", execution_id=str(n)) for n in range(8)])
    archive.say(call(occurred_at_ms=archive.now_ms))
    texts = Parsed(page(of(archive))).text
    assert [text for text in texts if text.startswith("epoch 1, ")] == [
        "epoch 1, incarnation 0",
        "epoch 1, incarnation 1",
    ]


def test_a_page_needs_no_network_and_no_foreign_text_is_markup() -> None:
    text = page(of(ghost_write(EVIL[:60], EVIL), EVIL[:60]))
    parsed = Parsed(text)
    assert len(parsed.of("script")) == 1
    assert not [a for _, a in parsed.tags if {"src", "onclick", "style"} & a.keys()]
    assert all(a["href"] is not None and a["href"].startswith("#") for a in parsed.of("a"))
    assert not set("\x1b\u202e") & set(text)
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    policy = parsed.of("meta")[1]["content"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_a_file_that_cannot_be_written_is_wrong_use(tmp_path: Path, tell: Tell) -> None:
    said = tell(ghost_write(), "7", "--html", str(tmp_path))
    assert said.code == 2
    assert said.err.startswith(f"epochfence: cannot write {tmp_path}: ")


_PROBE = """<script>
addEventListener('load', () => {
  const arrow = document.querySelector('a[href="#seq-5"]');
  const before = document.getElementById('seq-5').open;
  arrow.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}));
  setTimeout(() => {
    const red = getComputedStyle(arrow.querySelector('path')).stroke;
    const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    document.body.setAttribute('data-probe', JSON.stringify({
      title: document.title, before, after: document.getElementById('seq-5').open, red, wide,
      others: [...document.querySelectorAll('details')].filter(d => d.open).length,
    }));
  }, 100);
});
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_in_a_real_browser_an_arrow_opens_its_details_and_nothing_foreign_runs(tmp_path: Path) -> None:
    text = page(of(ghost_write("7", EVIL)))
    # The probe would not be let run by the page's own policy: that is looked at apart, below.
    without_policy = re.sub(r"<meta http-equiv[^>]*>", "", text)
    probed = json.loads(_attribute(_dom(tmp_path, without_policy.replace("</body>", _PROBE + "</body>"))))
    assert probed == {
        "title": "Call 7",
        "before": False,
        "after": True,
        "red": "rgb(193, 18, 31)",
        "wide": 0,
        "others": 1,
    }
    assert "data-probe" not in _dom(tmp_path, text.replace("</body>", _PROBE + "</body>")).split("<script>")[0]
    # The page's own script is let run: a fragment opens what it names.
    assert re.search(r'<details id="seq-5"[^>]* open=""', _dom(tmp_path, text, "#seq-5"))


def _dom(directory: Path, text: str, fragment: str = "") -> str:
    file = directory / "page.html"
    file.write_text(text, "utf-8")
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={directory / 'profile'}"]
    command += ["--virtual-time-budget=3000", "--dump-dom", file.as_uri() + fragment]
    return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode()


def _attribute(dom: str) -> str:
    found = re.search(r'data-probe="([^"]*)"', dom)
    assert found is not None
    return found[1].replace("&quot;", '"')
