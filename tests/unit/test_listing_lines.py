"""The lines that `decisions` and `table` print for people."""

import dataclasses
from collections import Counter

import pytest
from rich.cells import cell_len

from epochfence.cli._lines import LINE_CELLS, Cell, cropped, moment, size
from epochfence.cli.decisions import decision_cells, decision_notes
from epochfence.cli.table import call_cells, summary
from epochfence.clients.decisions import CommittedDecision
from epochfence.clients.table import CallInTable, Standing
from epochfence.protocol.decisions import Decision, Dispatch
from epochfence.protocol.vocabulary import Action, CommittedBy, EventType, Outcome, Reason, Status, Verdict
from tests.builders import Log, call, compensation, result, timeout

HOSTILE = "\x1b[2J[red]\u202e\n" + "語" * 70


def line(cells: list[Cell]) -> str:
    """As `Lines.row` prints it, without colours."""
    filled = (c.text.rjust(c.width) if c.right else c.text + " " * (c.width - cell_len(c.text)) for c in cells)
    return " ".join(filled).rstrip()


def said(decision: Decision, partition: int = 3) -> str:
    return line(decision_cells(CommittedDecision(decision, partition, 0, 0)))


def test_the_ghost_write_as_a_person_reads_it() -> None:
    log = Log(call(), timeout(1), result(1), compensation(2))
    assert [said(decision) for decision in log.decisions] == [
        "  3      1 7            TOOL_CALL      OPEN                        1 INFLIGHT     CALL#1 7 B",
        "  3      2 7            TIMEOUT 1      FENCE                       2 COMPENSATING COMPENSATE#1 7 B",
        "  3      3 7            RESULT 1       REJECT STALE_EPOCH          2 COMPENSATING",
        "  3      4 7            COMPENSATION 2 COMMIT                      2 COMMITTED",
    ]
    assert "may have landed" in decision_notes(log.decisions[2])
    assert decision_notes(log.decisions[3]) == ""


def test_a_committed_payload_is_given_as_its_size() -> None:
    log = Log(call(), result(1))
    assert said(log.decisions[1]).endswith("payload 12 B")
    assert "seat" not in said(log.decisions[1])


def test_an_epoch_that_was_not_said_and_a_record_that_is_no_event() -> None:
    log = Log(call(), result(None))
    assert "RESULT none" in said(log.decisions[1])
    nothing = dataclasses.replace(
        log.decisions[1], event=EventType.NONE, reason=Reason.UNDECODABLE, status=None, call_id=""
    )
    assert said(nothing).split() == ["3", "2", "-", "REJECT", "UNDECODABLE", "-"]


def test_unsettled_is_said_in_words() -> None:
    (decision,) = Log(call()).decisions
    assert "unsettled" in decision_notes(dataclasses.replace(decision, unsettled=True))


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("reason", [Reason.NONE, Reason.DOUBLE_COMPENSATION, Reason.UNRECOGNIZED])
def test_every_line_fits_and_no_control_character_is_in_it(verdict: Verdict, reason: Reason) -> None:
    (decision,) = Log(call()).decisions
    dispatch = Dispatch(Action.COMPENSATE, "t", b"x" * 262_144, 100, 0, None, "k", None, None, 1, 99)
    widest = dataclasses.replace(
        decision,
        seq=9_999_999,
        call_id=HOSTILE,
        verdict=verdict,
        reason=reason,
        event=EventType.COMPENSATION,
        epoch=100,
        live_epoch=100,
        status=Status.COMPENSATING,
        dispatch=dispatch,
    )
    shown = said(widest, partition=99)
    assert shown.isprintable()
    if verdict is not Verdict.UNRECOGNIZED and reason is not Reason.UNRECOGNIZED:
        assert cell_len(shown) <= LINE_CELLS


def test_a_line_of_the_table() -> None:
    log = Log(call(), timeout(1), compensation(2))
    assert line(call_cells(CallInTable(0, log.record))) == (
        "  0      3 7                         2 COMMITTED     2 COMPENSATION OK           reserve"
    )


def test_alarms_stand_in_words_and_every_line_of_the_table_fits() -> None:
    record = dataclasses.replace(
        Log(call(call_id=HOSTILE, tool=HOSTILE)).partition.calls[HOSTILE],
        seq=99_999_999,
        status=Status.COMPENSATING,
        live_epoch=99,
        committed_epoch=99,
        committed_by=CommittedBy.COMPENSATION,
        committed_outcome=Outcome.OK,
    )
    for changes, alarm in (({"unsettled": True}, "UNSETTLED"), ({"status": Status.ESCALATED}, "ESCALATED")):
        shown = line(call_cells(CallInTable(99, dataclasses.replace(record, **changes))))
        assert alarm in shown.split()
        assert cell_len(shown) <= LINE_CELLS
        assert shown.isprintable()


def test_the_table_in_numbers() -> None:
    standings = Counter(
        {
            Standing(Status.COMMITTED, False): 1_200,
            Standing(Status.COMMITTED, True): 2,
            Standing(Status.ESCALATED, True): 1,
        }
    )
    assert summary(standings, ["0: 7", "1: nothing decided"]) == [
        "1,203 calls: 1,202 COMMITTED, 1 ESCALATED; 3 unsettled",
        "seq by partition: 0: 7, 1: nothing decided",
    ]
    assert summary(Counter(), []) == ["0 calls; 0 unsettled", "seq by partition: "]


def test_text_is_cropped_by_the_cells_that_it_takes() -> None:
    assert cropped("short", 8) == "short"
    assert cropped("a-long-call-id", 8) == "a-long-…"
    assert cell_len(cropped("語" * 20, 8)) == 8


def test_sizes_and_moments() -> None:
    assert [size(None), size(b""), size(b"x" * 262_144)] == ["none", "0 B", "262 kB"]
    assert moment(0) == "1970-01-01 00:00:00.000 UTC"
    assert moment(2**62) == f"{2**62} ms"
