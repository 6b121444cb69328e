"""The events of the explorer: what may be said of a call, by the honest at any time and by the hostile."""

from collections.abc import Iterator

from epochfence.protocol.events import Compensation, Event, Result, Timeout, ToolCall
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Cause, Outcome
from epochfence.simulation.world import Answer, Settings

CALL_ID = "7"
HELD = b"seat 12 held"
ANOTHER = b"seat 13 held"
WRONG_INCARNATION = 999_999
_TOO_LONG = bytes(262_145)

_SPEAKERS = {
    Cause.DEADLINE: "planner",
    Cause.CANCELLED: "planner",
    Cause.WATCHDOG: "watchdog",
    Cause.OPERATOR: "operator",
}


def tool_call(settings: Settings, call_id: str = CALL_ID) -> ToolCall:
    """The call that is explored."""
    return ToolCall(
        event_id="s",
        call_id=call_id,
        tool="reserve",
        arguments=b"seat 12",
        idempotency_key="k" if settings.runs_again else "",
        timeout_ms=1000,
        policy=settings.policy,
        orphans=settings.orphans,
        max_epochs=settings.epochs,
        runner="gateway",
        source="planner",
        occurred_at_ms=0,
    )


def answer_event(call: ToolCall, answer: Answer) -> Event:
    """An answer as the event that carries it."""
    name = answer.execution_id
    if answer.from_tool:
        payload = HELD if answer.outcome is Outcome.SUCCESS else None
        return Result("r", call.call_id, answer.epoch, 0, name, answer.outcome, payload, "gateway", 0)
    return Compensation("c", call.call_id, answer.epoch, 0, name, answer.outcome, None, "compensator", 0)


def honest(call: ToolCall, record: CallRecord | None, settings: Settings) -> Iterator[Event]:
    """The ToolCall, as often as its planner crashes, and Timeouts of any cause and of any epoch that was dispatched.

    A Timeout of an older epoch is one that was sent long ago. The operator's are bounded, for they know no budget.
    """
    yield call
    if record is None:
        yield _timeout(call, 1, Cause.CANCELLED)  # it crosses its call
        return
    for epoch in range(1, record.live_epoch + 1):
        for cause in (Cause.DEADLINE, Cause.CANCELLED, Cause.WATCHDOG):
            yield _timeout(call, epoch, cause)
        if record.live_epoch < settings.epochs + settings.operator_epochs:
            yield _timeout(call, epoch, Cause.OPERATOR)


def _timeout(call: ToolCall, epoch: int | None, cause: Cause, incarnation: int | None = None) -> Timeout:
    return Timeout("t", call.call_id, epoch, incarnation, cause, _SPEAKERS[cause], 0)


def hostile(call: ToolCall, record: CallRecord | None) -> Iterator[Event]:
    """Anything that anybody could say: any epoch or none, the wrong life, words that the speaker may not use."""
    live = 1 if record is None else record.live_epoch
    if record is not None:
        # Other arguments under the same call_id. (Whoever opens a call may ask for what he likes.)
        yield ToolCall(
            "s", call.call_id, call.tool, b"seat 13", "j", 1000, call.policy, call.orphans, 8, "gateway", "hostile", 0
        )
    for epoch in (None, 0, *range(1, live + 2)):
        yield Timeout("t", call.call_id, epoch, 0, Cause.DEADLINE, "hostile", 0)
        for incarnation in (0, WRONG_INCARNATION):
            for outcome in (Outcome.SUCCESS, Outcome.FAILURE, Outcome.UNKNOWN):
                for payload in (HELD, ANOTHER, None, _TOO_LONG):
                    yield Result("h", call.call_id, epoch, incarnation, "h", outcome, payload, "hostile", 0)
            for outcome in (Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN):
                yield Compensation("h", call.call_id, epoch, incarnation, "h", outcome, None, "hostile", 0)
    yield Timeout("t", call.call_id, live, WRONG_INCARNATION, Cause.OPERATOR, "hostile", 0)
