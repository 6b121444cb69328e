"""`epochfence audit verify` over logs in memory: what a person reads and a script gets, sound or damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from epochfence.audit.findings import FindingKind
from epochfence.audit.proof import prove
from epochfence.audit.unverifiable import Unverifiable
from epochfence.engine.history import LogRecord
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Checkpoint, Dispatch
from epochfence.protocol.vocabulary import Cause, Orphans, Reason, Verdict
from epochfence.wire.codec import CHECKPOINT_KEY, OutputDecoder, encode_record
from tests.audit_verb import Said, run_audit
from tests.builders import call, compensation, result, timeout
from tests.memory_archive import DECISIONS, NAMES, TABLE, MemoryArchive

CALLS, TIMEOUTS, RESULTS, COMPENSATIONS = NAMES
S, T, C, R = range(4)
"""Of the ghost write's decisions, in the order in which they were made."""


Verify = Callable[..., Said]


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Verify:
    def run(archive: MemoryArchive, *options: str) -> Said:
        return run_audit(monkeypatch, capfd, archive, "verify", *options)

    return run


def ghost_write() -> MemoryArchive:
    """Call 7: opened, fenced, compensated; then its success comes late."""
    archive = MemoryArchive()
    for event in (_now(archive), timeout(1), compensation(2, execution_id="c"), result(1, execution_id="r")):
        archive.say(event)
    return archive


def _now(archive: MemoryArchive, call_id: str = "7"):  # type: ignore[no-untyped-def]
    return call(call_id=call_id, occurred_at_ms=archive.now_ms)


def test_a_sound_log(verify: Verify) -> None:
    said = verify(ghost_write())
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "m.*: 4 decisions in 4 transactions, 4 inputs, 1 calls"
    assert "folded again 4 decisions; compared 1 records of the epoch table" in lines
    assert "  yes  the epoch table is what the fold makes of the decisions" in lines
    assert lines[-1] == "VERIFIED"
    assert [line for line in lines if len(line) > 100] == []


def test_nothing_decided_yet_is_said(verify: Verify) -> None:
    said = verify(MemoryArchive())
    assert (said.code, said.out.splitlines()[-1]) == (0, "nothing is decided yet")


def test_json_is_one_object(verify: Verify) -> None:
    archive = ghost_write()
    archive.edit(R, reason=Reason.DUPLICATE)
    said = verify(archive, "--json")
    assert said.code == 4
    found = json.loads(said.out)
    assert found["holds"] is False
    first = found["findings"][0]
    assert {name: first[name] for name in ("kind", "topic", "partition", "offset", "seq", "call_id")} == {
        "kind": "REFOLD",
        "topic": DECISIONS,
        "partition": 0,
        "offset": 3,
        "seq": 4,
        "call_id": "7",
    }
    assert (first["field"], first["logged"], first["computed"]) == ("reason", "DUPLICATE", "STALE_EPOCH")


def test_a_partition_that_is_not_there(verify: Verify) -> None:
    said = verify(ghost_write(), "--partition", "1")
    assert (said.code, said.out) == (2, "")
    assert said.err == "epochfence: there is no partition 1: they are 0 to 0\n"


# ---- damage, each kind by its words -----------------------------------------------------------------------------


def _remove_decision(archive: MemoryArchive) -> None:
    del archive.topics[DECISIONS][T]


def _lose_the_newest_decision(archive: MemoryArchive) -> None:
    del archive.topics[DECISIONS][R]


def _double_decision(archive: MemoryArchive) -> None:
    archive.topics[DECISIONS].append(archive.topics[DECISIONS][T]._replace(offset=99))


def _swap_decisions(archive: MemoryArchive) -> None:
    first, second = archive.topics[DECISIONS][T], archive.topics[DECISIONS][C]
    archive.topics[DECISIONS][T : C + 1] = [second._replace(offset=T), first._replace(offset=C)]


def _forge_a_commit(archive: MemoryArchive) -> None:
    archive.edit(R, verdict=Verdict.COMMIT, reason=Reason.NONE, committed_epoch=1, orphaned_effect=False)


def _forge_a_dispatch(archive: MemoryArchive) -> None:
    def forged(dispatch: Dispatch | None) -> Dispatch:
        assert dispatch is not None
        return dispatch._replace(arguments=b"seat 99")

    archive.rewrite(T, lambda decision: replace(decision, dispatch=forged(decision.dispatch)))


def _rewrite_an_input(archive: MemoryArchive) -> None:
    other = MemoryArchive()
    other.say(replace(_now(other), source="somebody else"))
    archive.topics[CALLS][0] = archive.topics[CALLS][0]._replace(value=other.topics[CALLS][0].value)


def _edit_checkpoint(**fields: object) -> Callable[[MemoryArchive], None]:
    def edit(archive: MemoryArchive) -> None:
        def edited(point: Checkpoint | None) -> Checkpoint:
            assert point is not None
            return replace(point, **fields)  # type: ignore[arg-type]

        archive.rewrite(R, lambda decision: replace(decision, checkpoint=edited(decision.checkpoint)))

    return edit


def _tear(archive: MemoryArchive) -> None:
    archive.edit(R, checkpoint=None)


def _no_decision(archive: MemoryArchive) -> None:
    archive.topics[DECISIONS].append(archive.topics[DECISIONS][R]._replace(offset=50, value=b"nonsense"))


def _truncate_an_input(archive: MemoryArchive) -> None:
    archive.topics[RESULTS].clear()


def _edit_the_table(archive: MemoryArchive) -> None:
    rows = archive.topics[TABLE]
    index = max(n for n, row in enumerate(rows) if row.key == b"7")
    record = OutputDecoder(archive.lookup).record(rows[index].value)
    rows[index] = rows[index]._replace(value=encode_record(replace(record, live_epoch=3)))


def _drop_from_the_table(archive: MemoryArchive) -> None:
    archive.topics[TABLE].append(LogRecord(99, 0, b"7", None))


def _add_to_the_table(archive: MemoryArchive) -> None:
    row = next(row for row in archive.topics[TABLE] if row.key == b"7")
    archive.topics[TABLE].append(row._replace(offset=99, key=b"8"))


def _nonsense_in_the_table(archive: MemoryArchive) -> None:
    archive.topics[TABLE].append(LogRecord(99, 0, b"7", b"nonsense"))


def _nonsense_for_the_tables_checkpoint(archive: MemoryArchive) -> None:
    archive.topics[TABLE].append(LogRecord(99, 0, CHECKPOINT_KEY, b"nonsense"))


D = "m.decisions[0]@"
DAMAGE = [
    (_remove_decision, f"SEQ_GAP {D}2 (call '7', seq 3): seq 3 where 2 should be. seq: logged 3, computed 2"),
    (_lose_the_newest_decision, "TABLE m.epoch-table[0]: it stands ahead of the last decision"),
    (_double_decision, f"SEQ_GAP {D}99 (call '7', seq 2)"),
    (_swap_decisions, f"SEQ_GAP {D}1 (call '7', seq 3)"),
    (_forge_a_commit, f"REFOLD {D}3 (call '7', seq 4): verdict: the log says COMMIT, the fold REJECT"),
    (_forge_a_dispatch, f"REFOLD {D}1 (call '7', seq 2): dispatch.arguments: the log says 7 bytes, the fold other 7"),
    (_rewrite_an_input, f"INPUTS_CHAIN {D}0 (call '7', seq 1): it breaks in the transaction of seq 1 to 1"),
    (_edit_checkpoint(stream_time_ms=5), f"CHECKPOINT {D}3 (call '7', seq 4): it states another stream time"),
    (_edit_checkpoint(partition_count=8), "partition_count: logged 8, computed 1"),
    (_edit_checkpoint(inputs=()), "inputs m.tool-calls: logged null, computed"),
    (_tear, f"TORN_TRANSACTION {D}3 (call '7', seq 4): the last decision has no checkpoint"),
    (_no_decision, f"NOT_A_DECISION {D}50: neither single-object nor Confluent framing"),
    (_truncate_an_input, f"MISSING_INPUT {D}3 (call '7', seq 4): it answers m.results@0 at"),
    (
        _edit_the_table,
        "TABLE m.epoch-table[0] (call '7'): the table differs from the fold. live_epoch: logged 3, computed 2",
    ),
    (_drop_from_the_table, "TABLE m.epoch-table[0] (call '7'): the table lacks this call"),
    (_add_to_the_table, "TABLE m.epoch-table[0] (call '8'): the table has a call that the fold does not have"),
    (_nonsense_in_the_table, "TABLE m.epoch-table[0] (call '7'): its record cannot be read"),
    (_nonsense_for_the_tables_checkpoint, "TABLE m.epoch-table[0]: its checkpoint cannot be read"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_damage_is_exit_code_4_and_a_sentence_that_names_the_place(
    damage: Callable[[MemoryArchive], None], words: str, verify: Verify
) -> None:
    archive = ghost_write()
    damage(archive)
    said = verify(archive)
    assert said.code == 4
    (line,) = said.err.splitlines()
    assert line.startswith("epochfence: the log contradicts itself, first here: ")
    assert words in line
    assert "WRONG " in said.out
    assert "VERIFIED" not in said.out
    assert "seat" not in said.out + said.err


def test_what_an_id_says_to_a_terminal_is_escaped(verify: Verify) -> None:
    archive = MemoryArchive()
    archive.say(_now(archive, "\x1b[2Jevil"))
    archive.edit(0, live_epoch=2)
    said = verify(archive)
    assert said.code == 4
    assert "\x1b" not in said.out + said.err


def test_decisions_of_newer_rules_are_left_to_a_newer_version(verify: Verify) -> None:
    archive = ghost_write()
    archive.edit(C, rules_version=2)
    said = verify(archive)
    assert (said.code, said.out) == (2, "")
    assert f"{D}2 was decided under rules_version 2, and this version knows 1" in said.err


# ---- what is no damage ------------------------------------------------------------------------------------------


def test_what_is_not_decided_yet_is_counted_and_is_no_failure(verify: Verify) -> None:
    archive = ghost_write()
    archive.say_undecided(result(1))
    archive.say_undecided(timeout(2))
    said = verify(archive)
    assert said.code == 0
    assert "not decided yet 2 inputs" in said.out
    assert prove(archive).findings_by_kind[FindingKind.UNDECIDED_INPUT] == 2  # at rest it would be one


def test_a_record_below_the_checkpoint_that_nobody_decided_is_damage(verify: Verify) -> None:
    archive = ghost_write()
    archive.say(result(1, execution_id="r2"))
    archive.say(timeout(1))
    del archive.topics[DECISIONS][4]
    said = verify(archive)
    assert said.code == 4
    assert "UNDECIDED_INPUT m.results[0]@1: no decision answers it" in said.out


def test_how_far_the_order_departs_from_broker_time(verify: Verify) -> None:
    archive = MemoryArchive()
    archive.say(_now(archive))
    archive.say(timeout(1))
    record = archive.topics[TIMEOUTS][0]
    archive.topics[TIMEOUTS][0] = record._replace(timestamp_ms=record.timestamp_ms - 27)
    archive.rewrite(1, lambda d: replace(d, input=d.input._replace(timestamp_ms=d.input.timestamp_ms - 27)))
    assert "out of broker time 1 decisions, the largest by 7 ms" in verify(archive).out


def test_who_answers_before_the_decision_is_committed_is_told_but_the_log_is_not_blamed(verify: Verify) -> None:
    archive = MemoryArchive()
    archive.say(_now(archive), timeout(1), compensation(2))  # one transaction: nothing was released before the answer
    said = verify(archive)
    assert said.code == 1
    assert "  NO   every accepted answer was released by a decision committed before it" in said.out
    assert "of 1 accepted answers the sender did not wait for the decision that releases it" in said.err
    assert f"ANSWERED_EARLY {D}2 (call '7', seq 3): COMPENSATE of epoch 2 was released at" in said.err
    archive.edit(2, call_seq=9)
    assert verify(archive).code == 4


def test_a_table_that_is_being_rebuilt_is_not_passed_off_as_verified(verify: Verify) -> None:
    archive = ghost_write()
    archive.topics[TABLE].clear()
    said = verify(archive)
    assert said.code == 1
    assert "  part the epoch table is what the fold makes of the decisions" in said.out
    assert "verified in part only: m.epoch-table[0] has no checkpoint" in said.err


# ---- inputs that were deleted -----------------------------------------------------------------------------------


def _two_lives(archive: MemoryArchive) -> None:
    """Call 7 is opened and committed, forgotten, opened again."""
    archive.say(_now(archive))
    archive.say(result(1))
    for number in range(8):
        archive.say(result(1, call_id="8", execution_id=str(number)))
    archive.say(_now(archive))
    archive.say(result(1, incarnation=1))


def test_inputs_that_were_deleted_leave_the_decisions_chain_to_be_checked(verify: Verify) -> None:
    archive = MemoryArchive(Parameters(retention_ms=50))
    _two_lives(archive)
    assert verify(archive).code == 0
    del archive.topics[CALLS][:1]
    said = verify(archive)
    assert said.code == 1
    assert "  yes  seq has no gap, nor has call_seq within a call" in said.out
    assert "  part the fold, run again over the inputs, repeats every decision" in said.out
    assert "the inputs of 1 decisions were deleted, so 1 calls were not folded again" in said.out
    assert "folded again 10 decisions" in said.out  # the first life is not, the second is
    assert said.out.splitlines()[-1] == "VERIFIED IN PART"


@pytest.mark.parametrize("change", [{"reason": Reason.CLOSED}, {"call_seq": 7}])
def test_damage_beside_deleted_inputs_is_found(change: dict[str, object], verify: Verify) -> None:
    archive = MemoryArchive(Parameters(retention_ms=50))
    _two_lives(archive)
    del archive.topics[CALLS][:1]
    archive.edit(1, **change)
    said = verify(archive)
    assert said.code == 4
    assert "DECISIONS_CHAIN" in said.out


def _lives(archive: MemoryArchive) -> None:
    """Twenty call_ids, thrice each: committed, unsettled by a late success, raised again, and settled or not."""
    for number in range(60):
        name = str(number % 20)
        orphans = Orphans.COMPENSATE if number % 2 else Orphans.REPORT
        epochs = 2 if number % 8 == 3 else 8  # with two there is none left for a clean-up: it stays unsettled
        archive.say(call(call_id=name, occurred_at_ms=archive.now_ms, orphans=orphans, max_epochs=epochs))
        archive.say(timeout(1, call_id=name))
        archive.say(compensation(2, call_id=name, incarnation=number))
        archive.say(result(1, call_id=name, incarnation=number))
        if number % 4 == 1:
            archive.say(compensation(3, call_id=name, incarnation=number, execution_id="y"))
            archive.say(timeout(3, Cause.OPERATOR, call_id=name))


@pytest.mark.parametrize("topic", NAMES)
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_wherever_an_input_was_cut_off_a_sound_log_is_not_called_damaged(topic: str, kept: float) -> None:
    archive = MemoryArchive(Parameters(retention_ms=150))
    _lives(archive)
    assert prove(archive).complete
    del archive.topics[topic][: max(1, int(len(archive.topics[topic]) * (1 - kept)) - 1)]
    proof = prove(archive)
    assert proof.findings == []
    assert not proof.complete


@pytest.mark.parametrize("topics", [(TIMEOUTS, RESULTS, COMPENSATIONS), (RESULTS,)])
@pytest.mark.parametrize("retention_ms", range(560, 680, 10))
def test_calls_that_cannot_be_folded_are_forgotten_as_the_processor_does(
    retention_ms: int, topics: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Unverifiable] = []
    monkeypatch.setattr("epochfence.audit.proof.Unverifiable", lambda: used.append(Unverifiable()) or used[-1])
    archive = MemoryArchive(Parameters(retention_ms=retention_ms))
    _lives(archive)
    for topic in topics:
        del archive.topics[topic][:-1]
    assert prove(archive).holds
    names = [str(n) for n in range(19)]  # the last one has all its inputs
    remembered = [name for name in names if _is_in_the_table(archive, name)]
    assert 5 < len(remembered) < 19
    assert [name for name in names if name in used[0]] == remembered


def _is_in_the_table(archive: MemoryArchive, call_id: str) -> bool:
    return [row.value for row in archive.topics[TABLE] if row.key == call_id.encode()][-1] is not None
