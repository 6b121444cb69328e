"""What came of it: was the ghost write there without the fence, and does the log prove that it was not with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from epochfence.audit.findings import CLAIMS, Proof
from epochfence.demo.world import Record, Sight
from epochfence.protocol.decisions import Decision
from epochfence.protocol.vocabulary import CommittedBy, EventType, Outcome, Reason, Verdict


class Check(NamedTuple):
    """A sentence, and whether it is true."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Evidence:
    """What both halves left behind, read back from the topics and from the world."""

    naive: Sight
    """Call 7 without the fence."""
    in_time: Sight
    """Call 6 with the fence."""
    late: Sight
    """Call 7 with the fence."""
    decisions: Sequence[Decision]
    """All of the fenced half."""
    proof: Proof

    @property
    def naive_check(self) -> Check:
        """The naive half must show what the fence is for."""
        return Check(f"the record says {self.naive.record}, and the seat is {seat(self.naive)}", self.naive.is_ghost)

    @property
    def story(self) -> list[Check]:
        """What the log tells of the two calls, and whether the world agrees."""
        six = [decision for decision in self.decisions if decision.call_id == "6"]
        seven = [decision for decision in self.decisions if decision.call_id == "7"]
        commit = next((decision for decision in seven if decision.verdict is Verdict.COMMIT), None)
        late = next((d for d in seven if d.event is EventType.RESULT and d.outcome is Outcome.SUCCESS), None)
        return [
            Check("call 6 is committed by its result, in epoch 1", _commits(six) == [(1, CommittedBy.RESULT)]),
            Check(
                "call 7 is committed by its compensation, in epoch 2",
                _commits(seven) == [(2, CommittedBy.COMPENSATION)],
            ),
            _lateness(commit, late),
            Check(
                "the late success was decided REJECT STALE_EPOCH, orphaned effect",
                late is not None
                and (late.verdict, late.reason, late.epoch, late.live_epoch, late.orphaned_effect)
                == (Verdict.REJECT, Reason.STALE_EPOCH, 1, 2, True),
            ),
            Check(
                f"the world agrees: call 6 {seat(self.in_time)}/{self.in_time.record}, "
                f"call 7 {seat(self.late)}/{self.late.record}",
                self.in_time == Sight(True, Record.HELD) and self.late == Sight(False, Record.RELEASED),
            ),
        ]

    @property
    def claims(self) -> list[Check]:
        """What the log proves of every record in it."""
        return [Check(claim.text, self.proof.bears_out(claim)) for claim in CLAIMS]

    @property
    def proven(self) -> bool:
        """The ghost write was there without the fence, and with it neither the log nor the world shows one."""
        return self.naive_check.holds and all(check.holds for check in (*self.story, *self.claims)) and self.proof.holds

    def to_json(self) -> dict[str, Any]:
        """The whole of it as JSON data."""
        return {
            "proven": self.proven,
            "naive": {**_sight(self.naive), "ghost_write": self.naive.is_ghost},
            "fenced": {"call_6": _sight(self.in_time), "call_7": _sight(self.late)},
            "story": [check._asdict() for check in self.story],
            "proof": self.proof.to_json(),
        }


def seat(sight: Sight) -> str:
    """The seat in a word."""
    return "held" if sight.seat_is_held else "free"


def _sight(sight: Sight) -> dict[str, Any]:
    return {"seat": seat(sight), "record": str(sight.record)}


def _commits(decisions: Sequence[Decision]) -> list[tuple[int | None, CommittedBy | None]]:
    return [(d.committed_epoch, d.committed_by) for d in decisions if d.verdict is Verdict.COMMIT]


def _lateness(commit: Decision | None, late: Decision | None) -> Check:
    if commit is None or late is None:
        return Check("the success of call 7 came after the compensation", False)
    late_ms = late.input.timestamp_ms - commit.input.timestamp_ms
    return Check(
        f"the success of call 7 came {late_ms} ms after the compensation, by the broker's clock",
        late_ms > 0 and late.seq > commit.seq,
    )
