"""Why something was decided, in a sentence: one for each verdict and reason, all of them in one table."""

from epochfence.protocol.decisions import Decision, Dispatch
from epochfence.protocol.vocabulary import Reason, Status, Verdict

_BROKEN_KEY = "the compensator ran twice under one key, so its idempotency is broken."

SENTENCES: dict[tuple[Verdict, Reason], str] = {
    (Verdict.OPEN, Reason.NONE): "Opened: epoch {live} is live, and the tool may be called.",
    (Verdict.FENCE, Reason.NONE): "Fenced: epoch {live} is live now, and every older one is stale.",
    (
        Verdict.FENCE,
        Reason.FENCED_BEFORE_OPEN,
    ): "The timeout came before its call: the call is cancelled and never opens.",
    (Verdict.FENCE, Reason.OUTCOME_UNKNOWN): (
        "Fenced: epoch {epoch} may or may not have had an effect, so epoch {live} is live now."
    ),
    (Verdict.FENCE, Reason.COMPENSATION_FAILED): (
        "Fenced: the compensation of epoch {epoch} did not succeed, so it is tried again in epoch {live}."
    ),
    (Verdict.COMMIT, Reason.NONE): "Committed: the {by} of epoch {committed} is the outcome of the call, {outcome}.",
    (Verdict.COMMIT, Reason.DOUBLE_COMPENSATION): f"Committed by the {{by}} of epoch {{committed}}; but {_BROKEN_KEY}",
    (Verdict.SETTLE, Reason.NONE): "The clean-up of epoch {live} is done; the commit of epoch {committed} stands.",
    (Verdict.SETTLE, Reason.DOUBLE_COMPENSATION): f"The clean-up of epoch {{live}} is done; but {_BROKEN_KEY}",
    (Verdict.ESCALATE, Reason.EPOCHS_EXHAUSTED): "Given up: no epoch is left to try in, so a person has to look.",
    (Verdict.REJECT, Reason.STALE_EPOCH): "Rejected: epoch {epoch} was fenced, epoch {live} is live.",
    (Verdict.REJECT, Reason.FUTURE_EPOCH): (
        "Rejected: epoch {epoch} has not begun, epoch {live} is live; nothing released this."
    ),
    (Verdict.REJECT, Reason.MALFORMED): "Rejected: a field that it needs is missing or out of range.",
    (
        Verdict.REJECT,
        Reason.UNKNOWN_CALL,
    ): "Rejected: no such call is known; it never opened, or is closed and forgotten.",
    (Verdict.REJECT, Reason.DUPLICATE): "Rejected: this was said before, and is already counted.",
    (Verdict.REJECT, Reason.CONFLICT): "Rejected: it contradicts what was said before under this call_id.",
    (
        Verdict.REJECT,
        Reason.ALREADY_COMMITTED,
    ): "Rejected: epoch {committed} has committed, so there is nothing to fence.",
    (Verdict.REJECT, Reason.WRONG_SPEAKER): (
        "Rejected: it is not for this speaker to answer in epoch {live}: a result answers a CALL, a compensation a "
        "COMPENSATE."
    ),
    (Verdict.REJECT, Reason.FENCED_BEFORE_OPEN): "Rejected: the call was cancelled before it could open.",
    (Verdict.REJECT, Reason.CLOSED): "Rejected: the call is cancelled, so there is nothing to end.",
    (Verdict.REJECT, Reason.WRONG_INCARNATION): (
        "Rejected: it is about another life of this call_id; the live incarnation is {incarnation}."
    ),
    (Verdict.REJECT, Reason.DOUBLE_COMPENSATION): f"Rejected; and {_BROKEN_KEY}",
    (Verdict.REJECT, Reason.EXPIRED): "Rejected: the call is too old to be opened; its like may have been forgotten.",
    (
        Verdict.REJECT,
        Reason.MISROUTED,
    ): "Rejected: the record lies in the wrong partition, or under a key that is not its id.",
    (Verdict.REJECT, Reason.UNDECODABLE): "Rejected: its bytes are no event of this topic.",
    (Verdict.REJECT, Reason.OVERSIZED): "Rejected: its body is larger than is allowed.",
}
"""Every pair that the fold and admission can give. In braces: of the decision."""


def sentence(decision: Decision) -> str:
    """What was decided and why. Holds nothing that a sender wrote."""
    template = SENTENCES.get(
        (decision.verdict, decision.reason), "{verdict} {reason}: this version has no words for it."
    )
    told = [
        template.format(
            live=decision.live_epoch,
            epoch=_none(decision.epoch),
            committed=_none(decision.committed_epoch),
            by="result" if decision.committed_by is None else str(decision.committed_by).lower(),
            outcome=_none(decision.committed_outcome),
            incarnation=_none(decision.incarnation),
            verdict=decision.verdict,
            reason=decision.reason,
        )
    ]
    if decision.orphaned_effect:
        told.append("An effect that no commit owns may have landed.")
    if decision.unsettled:
        told.append("The call is unsettled until it is compensated again.")
    if decision.status is Status.ESCALATED and decision.verdict is not Verdict.ESCALATE:
        told.append("It still waits for a person.")
    return " ".join(told)


def released(dispatch: Dispatch) -> str:
    """What a decision released to be sent. The tool's name and the key are the planner's words."""
    arguments = "no arguments" if dispatch.arguments is None else f"{len(dispatch.arguments)} B of arguments"
    runner = "" if dispatch.runner is None else f", to be run by {dispatch.runner}"
    return (
        f"{dispatch.action} {dispatch.tool} under the token ({dispatch.incarnation}, {dispatch.epoch}), attempt "
        f"{dispatch.attempt}, key {dispatch.idempotency_key}, {arguments}{runner}"
    )


def _none(value: object) -> str:
    return "none" if value is None else str(value)
