"""docs/protocol.md and the code tell one story: its table and lists are made from the code, and the words are these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import pytest

from docs import generate
from epochfence.protocol.fold import ROWS
from epochfence.protocol.vocabulary import (
    Action,
    Cause,
    CommittedBy,
    EventType,
    Kind,
    Orphans,
    Outcome,
    Policy,
    Reason,
    Status,
    Verdict,
)

PAGE = generate.PAGE.read_text("utf-8")


def test_the_page_is_what_the_code_says() -> None:
    assert generate.rewritten(PAGE) == PAGE, "run python -m docs.generate"


def test_a_changed_row_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tuple(replace(row, reason=Reason.CLOSED) if row.number == 11 else row for row in ROWS)
    monkeypatch.setattr(generate, "ROWS", changed)
    assert generate.rewritten(PAGE) != PAGE


@pytest.mark.parametrize(
    "spoil",
    [lambda page: page.replace("<!-- table: begin -->", ""), lambda page: page + page],
    ids=["a marker is missing", "twice there"],
)
def test_a_page_without_its_markers_is_refused(spoil: Callable[[str], str]) -> None:
    with pytest.raises(ValueError, match="between the markers of"):
        generate.rewritten(spoil(PAGE))


WORDS = """
1 | ToolCall | none | OPEN
2 | ToolCall | CANCELLED | REJECT FENCED_BEFORE_OPEN
3 | ToolCall | any, same tool, arguments and idempotency_key | REJECT DUPLICATE
4 | ToolCall | any | REJECT CONFLICT
5 | Timeout, epoch 1, no incarnation | none | FENCE FENCED_BEFORE_OPEN
6 | ill-formed | none | REJECT MALFORMED or OVERSIZED | *flag*
7 | any | none | REJECT UNKNOWN_CALL | *flag*
8 | any with an incarnation that is not the record's (a CANCELLED one has none); any Result or Compensation on CANCELLED | any | REJECT WRONG_INCARNATION | *flag*
9 | ill-formed | any | REJECT MALFORMED or OVERSIZED | *orphan?*
10 | any | epoch > live | REJECT FUTURE_EPOCH | *orphan?*
11 | any | epoch < live | REJECT STALE_EPOCH | *orphan?*
12 | Timeout | CANCELLED | REJECT CLOSED
13 | Timeout, cause OPERATOR | ESCALATED or unsettled | FENCE | Raise(COMPENSATION), whatever the budget
14 | Timeout | COMMITTED, no clean-up in flight | REJECT ALREADY_COMMITTED | the epoch is **not** raised
15 | Timeout | live = max_epochs or more | ESCALATE EPOCHS_EXHAUSTED | ESCALATED (COMMITTED stays so)
16 | Timeout, cause DEADLINE or WATCHDOG | INFLIGHT, REPLAY, live + 2 ≤ max_epochs | FENCE | Raise(CALL)
17 | Timeout | any | FENCE | Raise(COMPENSATION)
18 | Result | live epoch is a COMPENSATION | REJECT WRONG_SPEAKER | *orphan?*
19 | Compensation | live epoch is a CALL | REJECT WRONG_SPEAKER
20 | Result | COMMITTED, same outcome and payload | REJECT DUPLICATE
21 | Result | COMMITTED | REJECT CONFLICT | *orphan?*
22 | Result UNKNOWN; or FAILURE with epoch > 1 or on a suspected record | INFLIGHT | FENCE OUTCOME_UNKNOWN
23 | Result SUCCESS or FAILURE | INFLIGHT | COMMIT | committed = live, COMMITTED
24 | Compensation | the live epoch is done | REJECT DUPLICATE
25 | Compensation OK | COMPENSATING or ESCALATED | COMMIT | committed = live, COMMITTED
26 | Compensation OK | a clean-up in flight | SETTLE | the commit stands
27 | Compensation | any | FENCE COMPENSATION_FAILED
"""  # noqa: E501
"""The words of the protocol, written down here a second time. To change one of them is to change the protocol."""


@pytest.mark.parametrize("words", WORDS.strip().splitlines(), ids=lambda words: words.split(" ")[0])
def test_the_words_of_each_row(words: str) -> None:
    number, event, record, verdict, *effect = words.split(" | ")
    row = generate.cells(ROWS[int(number) - 1])
    assert row[:4] == (number, event, record, verdict)
    assert effect == [] or effect == [row[4]]
    if "*" not in "".join(effect):
        assert not row[4].startswith("*"), "the row marks an orphan, and the words do not"
    assert any(line.split(" | ")[0] == f"| {number}" for line in PAGE.splitlines())


def test_there_are_27_rows_in_order() -> None:
    assert [row.number for row in ROWS] == list(range(1, 28))


SYMBOLS: dict[type[StrEnum], str] = {
    Verdict: "OPEN FENCE COMMIT REJECT SETTLE ESCALATE",
    Status: "INFLIGHT COMPENSATING COMMITTED CANCELLED ESCALATED",
    Reason: "NONE STALE_EPOCH FUTURE_EPOCH MALFORMED UNKNOWN_CALL DUPLICATE CONFLICT ALREADY_COMMITTED WRONG_SPEAKER "
    "FENCED_BEFORE_OPEN CLOSED WRONG_INCARNATION DOUBLE_COMPENSATION OUTCOME_UNKNOWN COMPENSATION_FAILED "
    "EPOCHS_EXHAUSTED EXPIRED MISROUTED UNDECODABLE OVERSIZED REPAIRED",
    EventType: "TOOL_CALL TIMEOUT RESULT COMPENSATION NONE",
    Policy: "COMPENSATE REPLAY",
    Orphans: "REPORT COMPENSATE",
    Cause: "DEADLINE CANCELLED WATCHDOG OPERATOR",
    Outcome: "SUCCESS FAILURE UNKNOWN OK FAILED",
    Kind: "CALL COMPENSATION",
    CommittedBy: "RESULT COMPENSATION",
    Action: "CALL COMPENSATE",
}


@pytest.mark.parametrize("enum", SYMBOLS, ids=lambda enum: enum.__name__)
def test_the_symbols_of_each_enum_in_order_and_each_is_on_the_page(enum: type[StrEnum]) -> None:
    wanted = SYMBOLS[enum].split()
    assert list(enum) == [*wanted, "UNRECOGNIZED"]
    assert all(symbol in PAGE for symbol in wanted)
