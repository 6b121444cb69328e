"""What must hold of events and their decisions, said without the fold.

An onlooker reads the events and the decisions as anybody can who reads the log. It keeps, for each life of a call,
what was decided before and what that did to the world: which dispatches were released, and whether an effect is held
or was released. From these alone it says what is wrong. It knows none of the fold's rows or records.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision, Dispatch
from epochfence.protocol.events import Compensation, Event, Result, Timeout, ToolCall
from epochfence.protocol.vocabulary import (
    Action,
    Cause,
    CommittedBy,
    Orphans,
    Outcome,
    Reason,
    Status,
    Verdict,
)

REMEMBERED_ORPHANS = 32

Commit = tuple[int, CommittedBy, Outcome, int]


class Failure(NamedTuple):
    """A property that a decision broke. `number` counts the events from 0."""

    number: int
    why: str

    def __str__(self) -> str:
        return f"event {self.number}: {self.why}"


@dataclass(slots=True)
class _Life:
    """What the onlooker knows of one life of a call: a call_id in one incarnation."""

    incarnation: int | None
    live_epoch: int
    status: Status
    call_seq: int
    max_body_bytes: int
    max_epochs: int = 0
    clean_up_wanted: bool = False
    """orphans = COMPENSATE."""
    dispatched: set[tuple[Action, int]] = field(default_factory=set)
    """Who was asked to act in which epoch, and so may speak in it."""
    commit: Commit | None = None
    settled_epoch: int | None = None
    unsettled: bool = False
    orphan_epoch: int | None = None
    """The live epoch when the newest orphan came."""
    orphans: list[tuple[str, Outcome]] = field(default_factory=list)
    compensation_key: str | None = None
    key_first_epoch: int = 0
    first_ok_execution: str | None = None

    @property
    def released(self) -> bool:
        """A compensation was sent: in the world the effect is being taken back."""
        return self.compensation_key is not None

    @property
    def held(self) -> bool:
        """The effect is there and a commit owns it."""
        return self.commit is not None and self.commit[1:3] == (CommittedBy.RESULT, Outcome.SUCCESS)

    @property
    def closed(self) -> bool:
        """Nothing is in flight and nothing unsettled, so it may be forgotten."""
        if self.status is Status.CANCELLED:
            return True
        done = self.commit is not None and self.live_epoch in (self.commit[0], self.settled_epoch)
        return done and not self.unsettled


def check(
    events: Sequence[Event | None], decisions: Sequence[Decision], max_body_bytes: int = Parameters().max_body_bytes
) -> list[Failure]:
    """What the decisions break, in order; an empty list is what everybody wants.

    `events` are those of the trace, None for a line that is no event; a Result or Compensation that leaves its
    incarnation out has -1 and means the record's own.
    """
    if len(events) != len(decisions):
        return [Failure(len(decisions), f"{len(events)} events have {len(decisions)} decisions")]
    lives: dict[str, _Life] = {}
    failures = []
    for number, (event, decision) in enumerate(zip(events, decisions, strict=True)):
        broken = [*_numbered(number, decision), *_step(lives, event, decision, max_body_bytes)]
        failures += [Failure(number, why) for why in broken]
    return failures


def _numbered(number: int, decision: Decision) -> list[str]:
    if decision.seq == number + 1 and decision.input.offset == number:
        return []
    return [f"seq {decision.seq} answers offset {decision.input.offset}: one is lost or decided twice"]


def _step(lives: dict[str, _Life], event: Event | None, decision: Decision, max_body_bytes: int) -> list[str]:
    if event is None:
        rejected = decision.reason is Reason.UNDECODABLE
        return _about_no_record(None, None, decision) + ([] if rejected else ["poison was not named UNDECODABLE"])
    life = lives.get(event.call_id)
    if decision.call_seq == 0:
        return _about_no_record(life, event, decision)
    if decision.call_seq == 1:
        lives[event.call_id], broken = _begun(event, decision, max_body_bytes)
        return broken + (["an open call began anew"] if life is not None and not life.closed else [])
    if life is None:
        return ["a decision tells of a call that nobody opened"]
    broken = [why for rule in RULES if (why := rule(life, event, decision)) is not None]
    _learn(life, event, decision)
    return broken


def _about_no_record(life: _Life | None, event: Event | None, decision: Decision) -> list[str]:
    broken = []
    if decision.verdict is not Verdict.REJECT or decision.dispatch is not None or decision.status is not None:
        broken.append("a decision about no call did more than reject")
    if decision.reason is Reason.UNKNOWN_CALL and life is not None and not life.closed:
        broken.append("a call that is still open was forgotten")
    known = decision.reason in (Reason.UNKNOWN_CALL, Reason.MALFORMED, Reason.OVERSIZED)
    if known and event is not None and event.call_id and decision.orphaned_effect != _tells_of_effect(event):
        broken.append("an answer to no call that tells of an effect must be flagged, and no other")
    return broken


def _begun(event: Event, decision: Decision, max_body_bytes: int) -> tuple[_Life, list[str]]:
    """A life begins: opened by a ToolCall, or cancelled by a Timeout that came before it."""
    life = _Life(decision.incarnation, decision.live_epoch, decision.status or Status.INFLIGHT, 1, max_body_bytes)
    _note_dispatch(life, decision.dispatch)
    if type(event) is ToolCall:
        life.max_epochs, life.clean_up_wanted = event.max_epochs, event.orphans is Orphans.COMPENSATE
        token = (decision.input.offset, 1)
        good = decision.verdict is Verdict.OPEN and life.status is Status.INFLIGHT and not life.released
        opened = good and _token(decision.dispatch) == token == (decision.incarnation, decision.live_epoch)
        return life, [] if opened else ["a call did not open in epoch 1 of its own offset, with a CALL"]
    good = type(event) is Timeout and event.epoch == 1 and decision.verdict is Verdict.FENCE
    cancelled = good and life.status is Status.CANCELLED and (decision.incarnation, decision.live_epoch) == (None, 2)
    if cancelled and decision.dispatch is None:
        return life, []
    return life, ["a life of a call began with neither its ToolCall nor a timeout before it"]


def _token(dispatch: Dispatch | None) -> tuple[int, int] | None:
    return None if dispatch is None else (dispatch.incarnation, dispatch.epoch)


def _of_this_life(life: _Life, event: Event) -> bool:
    if type(event) is ToolCall:
        return True
    if event.incarnation is None:
        return type(event) is Timeout
    return life.incarnation is not None and event.incarnation in (life.incarnation, -1)


def _tells_of_effect(event: Event) -> bool:
    return type(event) is Result and event.outcome in (Outcome.SUCCESS, Outcome.UNKNOWN)


# ---- the properties: each says what is wrong with a decision about a life, or nothing ----------------------------

Rule = Callable[[_Life, Event, Decision], str | None]


def _no_gap(life: _Life, event: Event, decision: Decision) -> str | None:
    if decision.call_seq != life.call_seq + 1:
        return f"call_seq went from {life.call_seq} to {decision.call_seq}"
    return None if decision.incarnation == life.incarnation else "the incarnation changed within a life"


def _epochs_never_fall(life: _Life, event: Event, decision: Decision) -> str | None:
    if decision.live_epoch < life.live_epoch:
        return f"the live epoch fell from {life.live_epoch} to {decision.live_epoch}"
    if decision.live_epoch > life.live_epoch + 1:
        return f"the live epoch leapt from {life.live_epoch} to {decision.live_epoch}"
    return None


def _fence_before_dispatch(life: _Life, event: Event, decision: Decision) -> str | None:
    dispatch, raised = decision.dispatch, decision.live_epoch > life.live_epoch
    if dispatch is None:
        return "the epoch was raised and nobody was asked to act in it" if raised else None
    if not raised:
        return f"a {dispatch.action} was dispatched with no fence before it: epoch {life.live_epoch} is still live"
    if _token(dispatch) != (decision.incarnation, decision.live_epoch):
        return f"a dispatch carries the token {_token(dispatch)} and not the live one"
    if dispatch.action is Action.CALL and life.released:
        return "a CALL was dispatched after a compensation"
    return None


def _only_the_live_epoch_is_heard(life: _Life, event: Event, decision: Decision) -> str | None:
    if decision.verdict is Verdict.REJECT or type(event) is ToolCall:
        return None if decision.verdict is Verdict.REJECT else "a second ToolCall was not rejected"
    if not _of_this_life(life, event):
        return f"{decision.verdict} for incarnation {event.incarnation}, and the call's is {life.incarnation}"
    if event.epoch != life.live_epoch:
        return f"{decision.verdict} for epoch {event.epoch} while {life.live_epoch} was live"
    return None


def _one_commit(life: _Life, event: Event, decision: Decision) -> str | None:
    told = _commit_told(decision)
    if decision.verdict is not Verdict.COMMIT:
        return None if told == life.commit else f"the commit changed from {life.commit} to {told} without a COMMIT"
    if life.commit is not None:
        return f"epoch {decision.committed_epoch} committed, and epoch {life.commit[0]} had committed already"
    if type(event) is Timeout or type(event) is ToolCall:
        return "something else than an answer committed"
    by = CommittedBy.RESULT if type(event) is Result else CommittedBy.COMPENSATION
    if told != (life.live_epoch, by, event.outcome, decision.seq) or decision.status is not Status.COMMITTED:
        return f"a COMMIT tells {told}, and not what was said in the live epoch"
    if event.outcome not in (Outcome.SUCCESS, Outcome.FAILURE, Outcome.OK):
        return f"the outcome {event.outcome} committed"
    action = Action.CALL if by is CommittedBy.RESULT else Action.COMPENSATE
    if (action, life.live_epoch) not in life.dispatched:
        return f"a {by} committed in an epoch in which no {action} was dispatched"
    if by is CommittedBy.RESULT and decision.payload != event.payload:
        return "a COMMIT tells another payload than the result's"
    return None


def _no_ghost_write(life: _Life, event: Event, decision: Decision) -> str | None:
    committed = decision.verdict is Verdict.COMMIT and type(event) is Result
    if committed and life.released:
        return (
            f"ghost write: {decision.committed_outcome} of epoch {decision.committed_epoch} was committed after a "
            "compensation had been sent"
        )
    dispatch = decision.dispatch
    if life.held and dispatch is not None and dispatch.action is Action.COMPENSATE:
        return f"epoch {dispatch.epoch} takes back the effect that epoch {decision.committed_epoch} has committed"
    return None


def _settles_only_a_clean_up(life: _Life, event: Event, decision: Decision) -> str | None:
    if decision.verdict is not Verdict.SETTLE:
        return None
    asked = (Action.COMPENSATE, life.live_epoch) in life.dispatched
    if (
        asked
        and type(event) is Compensation
        and event.outcome is Outcome.OK
        and life.commit is not None
        and life.live_epoch not in (life.commit[0], life.settled_epoch)
    ):
        return None
    return "something else than a clean-up in flight was settled"


def _orphans_are_flagged(life: _Life, event: Event, decision: Decision) -> str | None:
    if decision.orphaned_effect == _is_orphan(life, event, decision):
        return None
    if decision.orphaned_effect:
        return "an effect was flagged as orphaned that is owned, open, or was flagged before"
    return "an effect that no commit owns was rejected and not flagged"


def _is_orphan(life: _Life, event: Event, decision: Decision) -> bool:
    if type(event) is not Result or not _tells_of_effect(event) or decision.verdict is not Verdict.REJECT:
        return False
    if not _of_this_life(life, event):
        return True
    if life.status is Status.INFLIGHT or life.held:
        return False
    return (event.execution_id, event.outcome) not in life.orphans[-REMEMBERED_ORPHANS:]


def _unsettled_until_undone(life: _Life, event: Event, decision: Decision) -> str | None:
    if decision.unsettled == _is_unsettled(life, event, decision):
        return None
    if decision.unsettled:
        return "the call is unsettled, and nothing asks for it"
    return "an orphaned effect is not known to be undone, and the call is not unsettled"


def _is_unsettled(life: _Life, event: Event, decision: Decision) -> bool:
    if life.clean_up_wanted and _of_this_life(life, event) and _is_orphan(life, event, decision):
        return True
    undone = type(event) is Compensation and decision.verdict in (Verdict.COMMIT, Verdict.SETTLE)
    if undone and life.orphan_epoch is not None and life.live_epoch > life.orphan_epoch:
        return False
    return life.unsettled


def _budget_is_kept(life: _Life, event: Event, decision: Decision) -> str | None:
    exhausted = life.live_epoch >= life.max_epochs
    if decision.live_epoch > life.live_epoch and exhausted and not _is_operators(event):
        return f"epoch {decision.live_epoch} was raised, of {life.max_epochs}, and no operator asked for it"
    if decision.verdict is Verdict.ESCALATE and not exhausted:
        return "a call was escalated that has epochs left"
    given_up = exhausted and decision.unsettled and not life.unsettled and life.commit is None
    if given_up and decision.status is not Status.ESCALATED:
        return "no epoch is left for a clean-up, and nobody is asked"
    return None


def _is_operators(event: Event) -> bool:
    return type(event) is Timeout and event.cause is Cause.OPERATOR


def _keys_repeat(life: _Life, event: Event, decision: Decision) -> str | None:
    dispatch = decision.dispatch
    if dispatch is None or dispatch.action is not Action.COMPENSATE or life.compensation_key is None:
        return None
    new_effect = _is_unsettled(life, event, decision) and _is_orphan(life, event, decision)
    new_effect |= life.orphan_epoch is not None and life.orphan_epoch >= life.key_first_epoch
    if (dispatch.idempotency_key != life.compensation_key) == new_effect:
        return None
    return f"the compensation key went from {life.compensation_key} to {dispatch.idempotency_key}"


def _double_compensation_is_named(life: _Life, event: Event, decision: Decision) -> str | None:
    double = _is_double(life, event)
    if (decision.reason is Reason.DOUBLE_COMPENSATION) == double:
        return None
    return "a second execution under one compensation key was not named" if double else "nothing was compensated twice"


def _is_double(life: _Life, event: Event) -> bool:
    first = life.first_ok_execution
    return _is_ok_under_key(life, event) and first is not None and event_execution(event) != first


def _is_ok_under_key(life: _Life, event: Event) -> bool:
    if type(event) is not Compensation or event.outcome is not Outcome.OK or life.compensation_key is None:
        return False
    if not event.execution_id or len(event.payload or b"") > life.max_body_bytes or not _of_this_life(life, event):
        return False
    return event.epoch is not None and life.key_first_epoch <= event.epoch <= life.live_epoch


def event_execution(event: Event) -> str | None:
    """The execution that an answer names; None for what is no answer."""
    return event.execution_id if type(event) is Result or type(event) is Compensation else None


RULES: tuple[Rule, ...] = (
    _no_gap,
    _epochs_never_fall,
    _fence_before_dispatch,
    _only_the_live_epoch_is_heard,
    _one_commit,
    _no_ghost_write,
    _settles_only_a_clean_up,
    _orphans_are_flagged,
    _unsettled_until_undone,
    _budget_is_kept,
    _keys_repeat,
    _double_compensation_is_named,
)
"""The properties of a decision about a life, in the order in which failures are told."""


# ---- what the onlooker learns ------------------------------------------------------------------------------------


def _learn(life: _Life, event: Event, decision: Decision) -> None:
    if _of_this_life(life, event) and _is_orphan(life, event, decision):
        assert type(event) is Result
        life.orphans.append((event.execution_id, event.outcome))
        if life.clean_up_wanted:
            life.orphan_epoch = life.live_epoch
    if life.first_ok_execution is None and _is_ok_under_key(life, event):
        life.first_ok_execution = event_execution(event)
    if decision.verdict is Verdict.SETTLE:
        life.settled_epoch = decision.live_epoch
    life.live_epoch, life.call_seq = decision.live_epoch, decision.call_seq
    life.status = decision.status or life.status
    life.unsettled = decision.unsettled
    life.commit = _commit_told(decision) or life.commit
    _note_dispatch(life, decision.dispatch)


def _commit_told(decision: Decision) -> Commit | None:
    epoch, by, outcome = decision.committed_epoch, decision.committed_by, decision.committed_outcome
    seq = decision.commit_seq
    if epoch is None or by is None or outcome is None or seq is None:
        return None
    return epoch, by, outcome, seq


def _note_dispatch(life: _Life, dispatch: Dispatch | None) -> None:
    if dispatch is None:
        return
    life.dispatched.add((dispatch.action, dispatch.epoch))
    if dispatch.action is Action.COMPENSATE and dispatch.idempotency_key != life.compensation_key:
        life.compensation_key = dispatch.idempotency_key
        life.key_first_epoch = dispatch.epoch
        life.first_ok_execution = None
