"""Everything outside the processor, for the explorer: the tool gateway, the compensator, and the world they act on.

`moves` says what these can do next, given only what they have read back from the log and what they remember. They keep
the promises that docs/protocol.md names, but for one that may be broken on purpose, so that it can be seen whether the
protocol needs it. A participant that crashes is one that does not move: a dispatch may lag for ever, and be delivered
again. The resource remembers the highest fence token only where the compensator is final.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from epochfence.protocol.vocabulary import Orphans, Outcome, Policy


class Promise(StrEnum):
    """What a participant promises, by the name that `--break` takes."""

    FINAL = "final"
    FAILURE_HONEST = "failure-honest"
    STARTED_ONCE = "started-once"
    KEY_HONOURED = "key-honoured"
    ANSWERED = "answered"
    ANSWERED_LAST = "answered-last"
    EXECUTION_ID = "execution-id"
    OK_HONEST = "ok-honest"
    NO_BLIND_INVERSE = "no-blind-inverse"
    IDEMPOTENT_SKIP = "idempotent-skip"


WHAT_IS_PROMISED = {
    Promise.FINAL: "after a compensation the resource refuses a later execution of the call (it remembers the token)",
    Promise.FAILURE_HONEST: "FAILURE is said only where no execution under the token had or can still have an effect",
    Promise.STARTED_ONCE: "a dispatch is started at most once per token, unless the tool is declared idempotent",
    Promise.KEY_HONOURED: "a tool that is declared idempotent makes its executions under one key one effect",
    Promise.ANSWERED: "an execution that was started is answered, if need be with UNKNOWN",
    Promise.ANSWERED_LAST: "it is answered when it is over: nothing of it lands after its answer",
    Promise.EXECUTION_ID: "each execution has an execution_id of its own",
    Promise.OK_HONEST: "a compensator's OK means that the effect is absent",
    Promise.NO_BLIND_INVERSE: "a compensator looks for the effect, and undoes nothing where there is none",
    Promise.IDEMPOTENT_SKIP: "the skip of a key that is done repeats the execution_id that it was done under",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What is explored: how the call was asked for, who takes part, and the bounds."""

    policy: Policy = Policy.COMPENSATE
    orphans: Orphans = Orphans.REPORT
    idempotent: bool = False
    """The tool is declared idempotent: its dispatch may be started more than once. REPLAY is for such tools alone."""
    epochs: int = 3
    """max_epochs of the call."""
    duplicates: int = 1
    """How many answers are delivered a second time."""
    deliveries: int = 2
    """How often a dispatch may be delivered to who acts on it."""
    operator_epochs: int = 1
    """How many epochs an operator may raise beyond max_epochs."""
    hostile: int = 0
    """How many events come from somebody who keeps no promise at all."""
    broken: Promise | None = None

    def keeps(self, promise: Promise) -> bool:
        """Whether the promise is relied on here, and kept."""
        return promise is not self.broken and promise in self.relied_on()

    def relied_on(self) -> tuple[Promise, ...]:
        """The promises that the protocol relies on with these settings.

        REPORT is for final compensators; there an execution may die unreported. COMPENSATE is for all others.
        """
        final = self.orphans is Orphans.REPORT
        left_out = {Promise.ANSWERED, Promise.ANSWERED_LAST} if final else {Promise.FINAL}
        left_out.add(Promise.STARTED_ONCE if self.runs_again else Promise.KEY_HONOURED)
        if final or not self.runs_again:
            # One execution a token has one name whatever it is; a late one is only worth a report where OK is final.
            left_out.add(Promise.EXECUTION_ID)
        return tuple(promise for promise in Promise if promise not in left_out)

    @property
    def runs_again(self) -> bool:
        """Whether a call may be run more than once: because its tool is idempotent, or by a REPLAY."""
        return self.idempotent or self.policy is Policy.REPLAY


class Run(IntEnum):
    """Where one execution of a CALL dispatch stands."""

    RUNNING = 1
    LANDED = 2
    """Its effect is in the world, and it is not answered yet."""
    OVER = 3
    """It is over and had no effect."""
    HAD_EFFECT = 4
    """It is over and had one."""
    GIVEN_UP = 5
    """The gateway has answered UNKNOWN for it, and it may still land."""


class Executions(NamedTuple):
    """A CALL dispatch as the gateway has it."""

    epoch: int
    failed: bool
    """FAILURE was said of this token, so it may not be started any more."""
    runs: tuple[Run, ...]


class Asked(NamedTuple):
    """A COMPENSATE dispatch as the compensator has it."""

    epoch: int
    key: int
    delivered: int


class Outside(NamedTuple):
    """The world and what its participants remember."""

    effects: int
    """How many effects of the call there are; -1 where something was undone that was not there."""
    highest_token: int
    """The newest epoch that the resource saw, 0 where it does not remember tokens."""
    calls: tuple[Executions, ...]
    compensations: tuple[Asked, ...]
    keys_done: tuple[int, ...]
    duplicates: int
    """Deliveries of an answer a second time that are left."""
    hostile: int
    """Hostile events that are left."""

    @property
    def at_rest(self) -> bool:
        """No execution can still land or be answered. (A dispatch that was never started may lag for ever.)"""
        moving = (Run.RUNNING, Run.LANDED, Run.GIVEN_UP)
        return not any(run in moving for call in self.calls for run in call.runs)


class Answer(NamedTuple):
    """An answer on its way: a Result or a Compensation."""

    from_tool: bool
    epoch: int
    execution_id: str
    outcome: Outcome


class Move(NamedTuple):
    """A step of a participant."""

    actor: str
    what: str
    after: Outside
    answers: tuple[Answer, ...]


def start(settings: Settings) -> Outside:
    """Before anything happened."""
    return Outside(0, 0, (), (), (), settings.duplicates, settings.hostile)


def moves(outside: Outside, settings: Settings) -> Iterator[Move]:
    """What the gateway and the compensator can do next."""
    for call in outside.calls:
        yield from _gateway(outside, call, settings)
    for asked in outside.compensations:
        if asked.delivered < settings.deliveries:
            yield from _compensator(outside, asked, settings)


# ---- the gateway and its tool -----------------------------------------------------------------------------------


def _gateway(outside: Outside, call: Executions, settings: Settings) -> Iterator[Move]:
    again = settings.idempotent or settings.broken is Promise.STARTED_ONCE
    if not call.failed and len(call.runs) < (settings.deliveries if again else 1):
        started = call._replace(runs=(*call.runs, Run.RUNNING))
        yield Move("gateway", f"starts the call of epoch {call.epoch}", _with_call(outside, started), ())
    for number, run in enumerate(call.runs):
        if run is Run.RUNNING:
            yield from _running(outside, call, number, settings)
        elif run is Run.LANDED:
            yield from _landed(outside, call, number, settings)
        elif run is Run.GIVEN_UP:
            yield _ended(outside, call, number, "dies without an effect")
            if not _is_refused(outside, call, settings):
                after = _ended(outside, call, number, "lands, and nobody is told", Run.HAD_EFFECT)
                yield after._replace(after=_effect_lands(after.after, call.epoch, settings))


def _running(outside: Outside, call: Executions, number: int, settings: Settings) -> Iterator[Move]:
    unreported, unfinished = _may_go_silent(settings)
    if not _is_refused(outside, call, settings):
        landed = _ended(outside, call, number, "has its effect", Run.LANDED)
        yield landed._replace(after=_effect_lands(landed.after, call.epoch, settings))
    others = call.runs[:number] + call.runs[number + 1 :]
    if all(run is Run.OVER for run in others) or not settings.keeps(Promise.FAILURE_HONEST):
        yield _ended(outside, call._replace(failed=True), number, "fails", Run.OVER, settings, Outcome.FAILURE)
    yield _ended(outside, call, number, "ends without an effect", Run.OVER, settings, Outcome.UNKNOWN)
    if unreported:
        yield _ended(outside, call, number, "dies without an effect, unreported")
    if unfinished:
        yield _ended(outside, call, number, "is given up while it runs", Run.GIVEN_UP, settings, Outcome.UNKNOWN)


def _landed(outside: Outside, call: Executions, number: int, settings: Settings) -> Iterator[Move]:
    had = Run.HAD_EFFECT
    yield _ended(outside, call, number, "is answered", had, settings, Outcome.SUCCESS)
    yield _ended(outside, call, number, "is answered by a gateway that forgot", had, settings, Outcome.UNKNOWN)
    if settings.duplicates:
        both = (Outcome.SUCCESS, Outcome.UNKNOWN)
        yield _ended(outside, call, number, "is answered, and again by a gateway that forgot", had, settings, *both)
    if settings.broken is Promise.FAILURE_HONEST:
        yield _ended(outside, call, number, "is told as a failure", had, settings, Outcome.FAILURE)
    if _may_go_silent(settings)[0]:
        yield _ended(outside, call, number, "dies after its effect, unreported", had)


def _may_go_silent(settings: Settings) -> tuple[bool, bool]:
    """Whether an execution may die unreported, and whether it may be answered before it is over."""
    final = settings.keeps(Promise.FINAL)
    return final or settings.broken is Promise.ANSWERED, final or settings.broken is Promise.ANSWERED_LAST


def _is_refused(outside: Outside, call: Executions, settings: Settings) -> bool:
    return settings.keeps(Promise.FINAL) and call.epoch < outside.highest_token


def _effect_lands(outside: Outside, epoch: int, settings: Settings) -> Outside:
    one_effect = settings.keeps(Promise.KEY_HONOURED)
    effects = max(outside.effects, min(outside.effects + 1, 1)) if one_effect else outside.effects + 1
    return _seen(outside._replace(effects=effects), epoch, settings)


def _seen(outside: Outside, epoch: int, settings: Settings) -> Outside:
    """The resource saw a token."""
    if not settings.keeps(Promise.FINAL):
        return outside
    return outside._replace(highest_token=max(outside.highest_token, epoch))


def _ended(
    outside: Outside,
    call: Executions,
    number: int,
    what: str,
    run: Run = Run.OVER,
    settings: Settings | None = None,
    *outcomes: Outcome,
) -> Move:
    """An execution goes on to `run`, and is answered where there are outcomes."""
    runs = (*call.runs[:number], run, *call.runs[number + 1 :])
    shared_id = settings is not None and settings.broken is Promise.EXECUTION_ID
    name = "x" if shared_id else f"x{call.epoch}.{number + 1}"
    answers = tuple(Answer(True, call.epoch, name, outcome) for outcome in outcomes)
    after = _with_call(outside, call._replace(runs=runs))
    said = ", ".join(outcomes)
    actor = "gateway" if outcomes else "tool"
    return Move(actor, f"execution x{call.epoch}.{number + 1} {what}" + (f": {said}" if said else ""), after, answers)


def _with_call(outside: Outside, call: Executions) -> Outside:
    calls = tuple(call if other.epoch == call.epoch else other for other in outside.calls)
    return outside._replace(calls=calls)


# ---- the compensator --------------------------------------------------------------------------------------------


def _compensator(outside: Outside, asked: Asked, settings: Settings) -> Iterator[Move]:
    epoch, key = asked.epoch, asked.key
    told = tuple(
        asked._replace(delivered=asked.delivered + 1) if other.epoch == epoch else other
        for other in outside.compensations
    )
    before = outside._replace(compensations=told)
    name = f"c{key}"
    if key in outside.keys_done:
        skipped = f"{name}.{epoch}" if settings.broken is Promise.IDEMPOTENT_SKIP else name
        yield _compensated(f"skips key {key} in epoch {epoch}, it is done: OK", before, epoch, Outcome.OK, skipped)
        return
    undone = _undo(before, epoch, settings)
    done = undone._replace(keys_done=tuple(sorted((*undone.keys_done, key))))
    yield _compensated(f"undoes under key {key} in epoch {epoch}: OK", done, epoch, Outcome.OK, name)
    yield _compensated(f"fails in epoch {epoch}: FAILED", before, epoch, Outcome.FAILED, f"f{epoch}")
    yield _compensated(f"undoes in epoch {epoch} and forgets: UNKNOWN", undone, epoch, Outcome.UNKNOWN, f"u{epoch}")
    yield Move("compensator", f"undoes in epoch {epoch} and dies", undone, ())
    if settings.broken is Promise.OK_HONEST:
        lied = before._replace(keys_done=done.keys_done)
        yield _compensated(f"does nothing in epoch {epoch}: OK", lied, epoch, Outcome.OK, name)


def _undo(outside: Outside, epoch: int, settings: Settings) -> Outside:
    effects = max(outside.effects - 1, -1) if settings.broken is Promise.NO_BLIND_INVERSE else 0
    return _seen(outside._replace(effects=effects), epoch, settings)


def _compensated(what: str, after: Outside, epoch: int, outcome: Outcome, execution_id: str) -> Move:
    return Move("compensator", what, after, (Answer(False, epoch, execution_id, outcome),))
