"""The proof from the topics: a sound log is borne out, and each kind of damage is found and named."""

from __future__ import annotations

import ast
import copy
import io
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import fastavro
import pytest

import epochfence
from epochfence.audit.calls import CallRules
from epochfence.audit.findings import CLAIMS, MAX_FINDINGS, FindingKind, Proof
from epochfence.audit.proof import prove
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Checkpoint, Decision, about_no_record
from epochfence.protocol.events import ToolCall
from epochfence.protocol.vocabulary import Outcome, Reason, Verdict
from epochfence.wire.codec import SINGLE_OBJECT_MAGIC, NoLookup
from epochfence.wire.fingerprint import fingerprint
from epochfence.wire.schemas import load_schema
from tests.builders import CALL_ID, call, compensation, result, timeout
from tests.memory_archive import DECISIONS, NAMES, MemoryArchive

S, T, R, C = range(4)
"""Of the ghost write's decisions, in the order in which they were made: call, timeout, compensation, late result."""


def ghost_write(archive: MemoryArchive | None = None) -> MemoryArchive:
    """Call 7: opened, fenced, compensated; then its success comes late. One transaction each."""
    archive = archive or MemoryArchive()
    for event in (_now(archive), timeout(1), compensation(2, execution_id="c"), result(1, execution_id="r")):
        archive.say(event)
    return archive


def _now(archive: MemoryArchive, call_id: str = CALL_ID) -> ToolCall:
    return call(call_id=call_id, occurred_at_ms=archive.now_ms)


def kinds(archive: MemoryArchive) -> set[FindingKind]:
    return set(prove(archive).findings_by_kind)


def test_a_sound_log_bears_out_every_claim() -> None:
    proof = prove(ghost_write())
    assert proof.findings == []
    assert proof.holds
    assert all(proof.bears_out(claim) for claim in CLAIMS)
    assert proof.counts == {
        "decisions": 4,
        "inputs": 4,
        "transactions": 4,
        "calls": 1,
        "commits": 1,
        "rejections": 1,
        "late_answers": 1,
        "orphaned_effects": 1,
        "dispatches": 2,
    }
    assert proof.heads[0].seq == 4


def test_poison_misrouted_and_unknown_records_are_borne_out_too() -> None:
    archive = ghost_write()
    archive.say(b"no avro", result(9, call_id="8"), _now(archive, ""), timeout(None))
    proof = prove(archive)
    assert proof.findings == []
    assert proof.counts["decisions"] == 8


def test_several_decisions_in_a_transaction_and_a_call_id_that_is_used_again() -> None:
    archive = MemoryArchive(Parameters(retention_ms=50))
    archive.say(_now(archive), timeout(1))
    archive.say(compensation(2))
    archive.say(*[result(1, call_id="8", execution_id=str(n)) for n in range(8)])
    archive.say(_now(archive))  # the first life is forgotten by now
    assert archive.decisions()[-1].verdict is Verdict.OPEN
    archive.say(result(1, incarnation=1))
    proof = prove(archive)
    assert proof.findings == []
    assert proof.counts["commits"] == 2


def test_an_empty_prefix_proves_nothing_and_contradicts_nothing() -> None:
    proof = prove(MemoryArchive())
    assert proof.holds
    assert proof.heads == []


# ---- damage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [S, T, R, C])
def test_a_missing_decision(index: int) -> None:
    archive = ghost_write()
    del archive.topics[DECISIONS][index]
    assert FindingKind.UNDECIDED_INPUT in kinds(archive)
    if index < C:
        assert FindingKind.SEQ_GAP in kinds(archive)


def test_a_doubled_decision() -> None:
    archive = ghost_write()
    first = archive.topics[DECISIONS][T]
    archive.topics[DECISIONS].append(first._replace(offset=99))
    assert {FindingKind.DOUBLE_DECISION, FindingKind.SEQ_GAP, FindingKind.CALL_SEQ_GAP} <= kinds(archive)


def test_an_input_that_nobody_decided() -> None:
    archive = ghost_write()
    archive.say_undecided(result(1))
    proof = prove(archive)
    assert [(f.kind, f.topic, f.offset) for f in proof.findings] == [(FindingKind.UNDECIDED_INPUT, "m.results", 1)]


def test_a_long_row_of_undecided_inputs_is_told_in_few_words() -> None:
    archive = ghost_write()
    for _ in range(50):
        archive.say_undecided(result(1))
    assert len(prove(archive).findings) == 4


def test_an_input_that_is_gone() -> None:
    archive = ghost_write()
    del archive.topics[NAMES[2]][0]
    assert kinds(archive) == {FindingKind.MISSING_INPUT, FindingKind.INPUTS_CHAIN, FindingKind.CHECKPOINT}


def test_an_input_that_was_rewritten_so_that_the_decision_still_fits() -> None:
    archive = ghost_write()
    archive.topics[NAMES[0]][0] = _with_other_source(archive)
    assert kinds(archive) == {FindingKind.INPUTS_CHAIN}


def _with_other_source(archive: MemoryArchive):  # type: ignore[no-untyped-def]
    other = MemoryArchive()
    other.say(replace(_now(other), source="somebody else"))
    return archive.topics[NAMES[0]][0]._replace(value=other.topics[NAMES[0]][0].value)


def test_an_edited_decision() -> None:
    archive = ghost_write()
    archive.edit(C, reason=Reason.DUPLICATE)
    assert kinds(archive) == {FindingKind.REFOLD, FindingKind.DECISIONS_CHAIN}


def test_a_ghost_write_in_the_log_a_late_success_that_commits() -> None:
    archive = ghost_write()
    archive.edit(C, verdict=Verdict.COMMIT, reason=Reason.NONE, committed_epoch=1, orphaned_effect=False)
    found = kinds(archive)
    assert {
        FindingKind.SECOND_COMMIT,
        FindingKind.STALE_ACCEPTED,
        FindingKind.UNRELEASED_ACCEPTED,
        FindingKind.REFOLD,
        FindingKind.DECISIONS_CHAIN,
    } == found


def test_a_late_success_rejected_without_a_reason() -> None:
    archive = ghost_write()
    archive.edit(C, reason=Reason.NONE)
    assert FindingKind.STALE_ACCEPTED in kinds(archive)


def test_a_compensation_written_before_the_fence_that_released_it() -> None:
    archive = ghost_write()
    fence = archive.topics[DECISIONS][T]
    archive.topics[DECISIONS][T] = fence._replace(timestamp_ms=archive.topics[NAMES[3]][0].timestamp_ms + 1)
    assert kinds(archive) == {FindingKind.ANSWERED_EARLY}


def test_a_compensation_that_nothing_released() -> None:
    archive = ghost_write()
    archive.edit(T, dispatch=None)
    assert FindingKind.UNRELEASED_ACCEPTED in kinds(archive)


@pytest.mark.parametrize(
    "change",
    [
        lambda point: replace(point, partition_count=8),
        lambda point: replace(point, seq=point.seq + 1),
        lambda point: replace(point, decisions_topic_id="another"),
        lambda point: replace(point, stream_time_ms=point.stream_time_ms + 1),
        lambda point: replace(point, inputs=(*point.inputs[:3], point.inputs[3]._replace(next_offset=7))),
    ],
)
def test_a_checkpoint_that_contradicts_its_log(change: Callable[[Checkpoint], Checkpoint]) -> None:
    archive = ghost_write()

    def edited(decision: Decision) -> Decision:
        assert decision.checkpoint is not None
        return replace(decision, checkpoint=change(decision.checkpoint))

    archive.rewrite(C, edited)
    assert kinds(archive) == {FindingKind.CHECKPOINT}


def test_a_torn_transaction() -> None:
    archive = ghost_write()
    archive.edit(C, checkpoint=None)
    assert kinds(archive) == {FindingKind.TORN_TRANSACTION}


def test_what_is_no_decision() -> None:
    archive = ghost_write()
    record = archive.topics[DECISIONS][C]
    archive.topics[DECISIONS].append(record._replace(offset=50, value=b"\xc3\x01 nonsense"))
    archive.topics[DECISIONS].append(record._replace(offset=51, key=b"8"))
    proof = prove(archive)
    assert proof.findings_by_kind == {FindingKind.NOT_A_DECISION: 2}
    assert "8 bytes" not in str(proof.findings[0])


def test_a_decodable_record_that_was_decided_undecodable() -> None:
    archive = ghost_write()

    def forged(decision: Decision) -> Decision:
        said = about_no_record(None, CALL_ID, decision.input, decision.seq, Reason.UNDECODABLE, False)
        return replace(said, checkpoint=decision.checkpoint)

    archive.rewrite(C, forged)
    assert FindingKind.REFOLD in kinds(archive)


def test_one_damage_is_told_once_for_each_call() -> None:
    archive = ghost_write()
    for number in range(20):
        archive.say(result(1, Outcome.UNKNOWN, execution_id=str(number)))
    del archive.topics[DECISIONS][T]  # so the fold never hears of the fence, and decides all that follows otherwise
    assert prove(archive).findings_by_kind[FindingKind.REFOLD] == 1


def test_what_the_processor_forgets_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    class Watched(CallRules):
        def __init__(self) -> None:
            super().__init__()
            used.append(self)

    monkeypatch.setattr("epochfence.audit.proof.CallRules", Watched)
    archive = MemoryArchive(Parameters(retention_ms=100))
    for number in range(100):
        archive.say(_now(archive, str(number)))
        archive.say(result(1, call_id=str(number), incarnation=number))
    assert prove(archive).holds
    assert 0 < len(used[0]) < 10


def test_an_answer_of_another_incarnation_rejected_without_a_reason() -> None:
    archive = MemoryArchive()
    archive.say(_now(archive))
    archive.say(result(1, incarnation=99))
    archive.edit(1, reason=Reason.NONE)
    assert FindingKind.STALE_ACCEPTED in kinds(archive)


def test_a_commit_that_changes_afterwards() -> None:
    archive = ghost_write()
    archive.edit(C, committed_epoch=1)
    assert FindingKind.SECOND_COMMIT in kinds(archive)


def test_a_result_accepted_in_an_epoch_that_released_a_compensation() -> None:
    archive = MemoryArchive()
    archive.say(_now(archive), timeout(1))
    archive.say(result(2))
    archive.edit(2, verdict=Verdict.COMMIT, reason=Reason.NONE, committed_epoch=2)
    assert FindingKind.UNRELEASED_ACCEPTED in kinds(archive)


def test_an_input_of_another_time_than_was_decided() -> None:
    archive = ghost_write()
    record = archive.topics[NAMES[1]][0]
    archive.topics[NAMES[1]][0] = record._replace(timestamp_ms=record.timestamp_ms + 1)
    assert FindingKind.MISSING_INPUT in kinds(archive)


def test_parameters_other_than_the_defaults_are_in_force_from_the_first_decision() -> None:
    archive = MemoryArchive(Parameters(max_body_bytes=1))
    archive.say(_now(archive))
    assert archive.decisions()[0].reason is Reason.OVERSIZED
    assert prove(archive).findings == []


def test_what_was_undecodable_stays_so_when_its_schema_becomes_known() -> None:
    newer = copy.deepcopy(load_schema("result"))
    newer["fields"].append({"name": "note", "type": "string", "default": ""})
    body = io.BytesIO()
    fastavro.schemaless_writer(body, newer, {**asdict(result(1)), "note": "new"})
    archive = ghost_write()
    archive.say(SINGLE_OBJECT_MAGIC + fingerprint(newer) + body.getvalue())
    assert archive.decisions()[-1].reason is Reason.UNDECODABLE

    class Knowing(NoLookup):
        def by_fingerprint(self, fingerprint: bytes) -> str | None:
            return json.dumps(newer)

    archive.lookup = Knowing()
    assert prove(archive).findings == []


# ---- the words --------------------------------------------------------------------------------------------------


def test_every_kind_of_finding_breaks_exactly_one_claim() -> None:
    broken = [kind for claim in CLAIMS for kind in claim.broken_by]
    assert sorted(broken) == sorted(FindingKind)


def test_findings_are_kept_to_a_bound_and_counted_beyond_it() -> None:
    archive = ghost_write()
    archive.edit(C, reason=Reason.DUPLICATE)
    finding = prove(archive).findings[0]
    proof = Proof("m.")
    for _ in range(MAX_FINDINGS + 5):
        proof.add(finding)
    assert len(proof.findings) == MAX_FINDINGS
    assert proof.findings_by_kind[finding.kind] == MAX_FINDINGS + 5


def test_a_contradiction_is_not_crowded_out_by_answers_that_came_early() -> None:
    archive = ghost_write()
    archive.edit(C, reason=Reason.DUPLICATE)
    contradiction = prove(archive).findings[0]
    proof = Proof("m.")
    for _ in range(MAX_FINDINGS):
        proof.add(contradiction._replace(kind=FindingKind.ANSWERED_EARLY))
    assert proof.contradiction is None
    proof.add(contradiction)
    assert proof.contradiction is contradiction
    assert proof.to_json()["contradicts_itself"] is True


def test_a_finding_says_where_and_never_what_the_call_carried() -> None:
    archive = ghost_write()
    archive.edit(T, payload=b"secret", live_epoch=3)
    proof = prove(archive)
    assert "seat" not in str(proof.findings)
    assert "secret" not in str(proof.findings)
    assert "m.decisions[0]@1 (call '7', seq 2): " in "\n".join(map(str, proof.findings))
    assert json.loads(json.dumps(proof.to_json()))["holds"] is False


def test_no_producer_is_in_the_reach_of_an_audit() -> None:
    """Neither audit/ nor any module of ours that it imports names a producer of confluent_kafka."""
    root = Path(epochfence.__file__).parent
    todo, seen = [*(root / "audit").glob("*.py")], set[Path]()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            names = {alias.name for alias in node.names}
            if node.module.startswith("confluent_kafka"):
                assert not {name for name in names if "Producer" in name}, path
            if node.module.startswith("epochfence"):
                parts = node.module.split(".")[1:]
                todo += [
                    p
                    for p in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py"))
                    if p.exists()
                ]
    assert root / "engine" / "kafka" / "history.py" in seen
