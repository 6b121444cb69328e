"""What a proof says: what it counted, what it found wrong, and each claim that the log bears out or does not."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

MAX_FINDINGS = 1_000
"""More are counted and not kept: a log that is damaged throughout must not fill the memory of who looks at it."""


class FindingKind(StrEnum):
    """What is wrong."""

    NOT_A_DECISION = "NOT_A_DECISION"
    """A record of `decisions` that does not decode, or lies under another key than its call_id."""
    SEQ_GAP = "SEQ_GAP"
    """A decision is missing, doubled or out of order."""
    CALL_SEQ_GAP = "CALL_SEQ_GAP"
    """A decision about one call is missing, doubled or out of order."""
    UNDECIDED_INPUT = "UNDECIDED_INPUT"
    """An input record has no decision. At the end of a log that is still being decided, that is lag."""
    DOUBLE_DECISION = "DOUBLE_DECISION"
    """An input record has a second decision, or one out of its order."""
    MISSING_INPUT = "MISSING_INPUT"
    """A decision answers a record that is not there, or not at that time."""
    DECISIONS_CHAIN = "DECISIONS_CHAIN"
    """The chain over the decisions breaks: one was lost, added, moved or edited."""
    INPUTS_CHAIN = "INPUTS_CHAIN"
    """The chain over the inputs breaks: one was rewritten after it was decided."""
    CHECKPOINT = "CHECKPOINT"
    """A checkpoint contradicts the decisions before it, or the topics."""
    TORN_TRANSACTION = "TORN_TRANSACTION"
    """The last decision carries no checkpoint."""
    REFOLD = "REFOLD"
    """The fold decides otherwise than the log says. Told once for each call: what follows from it is not told."""
    SECOND_COMMIT = "SECOND_COMMIT"
    """Two epochs of one incarnation committed, or a commit changed."""
    STALE_ACCEPTED = "STALE_ACCEPTED"
    """An answer whose fence token is not the live one was not rejected, or was without a reason."""
    UNRELEASED_ACCEPTED = "UNRELEASED_ACCEPTED"
    """An answer was accepted that no decision had released."""
    ANSWERED_EARLY = "ANSWERED_EARLY"
    """An answer was accepted that was written before the decision that released it was committed: its sender did not
    wait for a decision (or brokers' clocks disagree). The log does not contradict itself."""
    TABLE = "TABLE"
    """`epoch-table` is not what the fold makes of the decisions, or stands where no decision does."""


class Finding(NamedTuple):
    """One thing that is wrong, and where. The detail never repeats a payload or an argument."""

    kind: FindingKind
    topic: str
    partition: int
    offset: int | None
    call_id: str | None
    detail: str
    seq: int | None = None
    """Of the decision; None where the finding is about none."""
    field: str | None = None
    """What differs, and both values. Of a body only its length is told."""
    logged: str | None = None
    computed: str | None = None

    def __str__(self) -> str:
        at = "" if self.offset is None else f"@{self.offset}"
        seq = "" if self.seq is None else f"seq {self.seq}"
        call = "" if self.call_id is None else f"call {self.call_id!r}"
        about = f" ({', '.join(filter(None, (call, seq)))})" if seq or call else ""
        return f"{self.kind} {self.topic}[{self.partition}]{at}{about}: {self.detail}"


class Claim(NamedTuple):
    """A sentence that the log bears out as long as nothing of these kinds was found."""

    text: str
    broken_by: frozenset[FindingKind]


_K = FindingKind
CLAIMS = (
    Claim(
        "each input record has exactly one decision",
        frozenset({_K.UNDECIDED_INPUT, _K.DOUBLE_DECISION, _K.MISSING_INPUT, _K.NOT_A_DECISION}),
    ),
    Claim(
        "seq has no gap, nor has call_seq within a call",
        frozenset({_K.SEQ_GAP, _K.CALL_SEQ_GAP, _K.TORN_TRANSACTION}),
    ),
    Claim(
        "the chain over decisions and inputs holds, recomputed from their bytes",
        frozenset({_K.DECISIONS_CHAIN, _K.INPUTS_CHAIN, _K.CHECKPOINT}),
    ),
    Claim("the fold, run again over the inputs, repeats every decision", frozenset({_K.REFOLD})),
    Claim("no call has two commits", frozenset({_K.SECOND_COMMIT})),
    Claim("every answer from an epoch that was not live is rejected, with a reason", frozenset({_K.STALE_ACCEPTED})),
    Claim(
        "every accepted answer was released by a decision committed before it",
        frozenset({_K.UNRELEASED_ACCEPTED, _K.ANSWERED_EARLY}),
    ),
    Claim("the epoch table is what the fold makes of the decisions", frozenset({_K.TABLE})),
)
"""Every kind of finding breaks one of them."""


NEED_INPUTS = frozenset(
    {
        _K.MISSING_INPUT,
        _K.INPUTS_CHAIN,
        _K.REFOLD,
        _K.STALE_ACCEPTED,
        _K.UNRELEASED_ACCEPTED,
        _K.ANSWERED_EARLY,
        _K.TABLE,
    }
)
"""Where inputs were deleted, these cannot be looked for."""


class ChainHead(NamedTuple):
    """Where the chain of a partition stands: keep it elsewhere, and nobody can rewrite the topic unseen."""

    partition: int
    seq: int
    decisions: str
    inputs: str


COUNTED = (
    "decisions",
    "inputs",
    "transactions",
    "calls",
    "commits",
    "rejections",
    "late_answers",
    "orphaned_effects",
    "dispatches",
)


@dataclass
class Proof:
    """What the topics under one prefix prove."""

    prefix: str
    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTED, 0)))
    findings: list[Finding] = field(default_factory=list)
    """The first MAX_FINDINGS of them."""
    contradiction: Finding | None = None
    """The first that is the log's own fault, not that of a sender who did not wait."""
    findings_by_kind: Counter[FindingKind] = field(default_factory=Counter)
    """All of them, counted."""
    heads: list[ChainHead] = field(default_factory=list)
    """One for each partition that has a decision."""
    refolded: int = 0
    """Decisions that the fold was run again for."""
    table_calls: int = 0
    """Records of the epoch table that were compared with the fold's."""
    undecided: int = 0
    """Input records above the last checkpoint: lag, where the log is not at rest."""
    departures: int = 0
    """Decisions about a record that is older, by the broker's clock, than one that was decided before it."""
    largest_departure_ms: int = 0
    unverified: list[str] = field(default_factory=list)
    """What could not be verified, a sentence each."""
    partly: set[FindingKind] = field(default_factory=set)
    """Kinds of damage that could not be looked for everywhere."""

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings_by_kind

    @property
    def complete(self) -> bool:
        """Whether all of it could be verified."""
        return not self.unverified

    def add(self, finding: Finding) -> None:
        """Something is wrong."""
        self.findings_by_kind[finding.kind] += 1
        if self.contradiction is None and finding.kind is not FindingKind.ANSWERED_EARLY:
            self.contradiction = finding
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    def bears_out(self, claim: Claim) -> bool:
        """Whether the log bears the claim out."""
        return not claim.broken_by & self.findings_by_kind.keys()

    def verdict_on(self, claim: Claim) -> Literal["yes", "part", "NO"]:
        """`part`: as far as it could be verified."""
        if not self.bears_out(claim):
            return "NO"
        return "part" if claim.broken_by & self.partly else "yes"

    def to_json(self) -> dict[str, Any]:
        """The proof as JSON data."""
        return {
            "prefix": self.prefix,
            "holds": self.holds,
            "contradicts_itself": self.contradiction is not None,
            "complete": self.complete,
            "unverified": self.unverified,
            "counts": dict(self.counts),
            "refolded": self.refolded,
            "table_calls": self.table_calls,
            "undecided": self.undecided,
            "out_of_broker_order": {"decisions": self.departures, "largest_ms": self.largest_departure_ms},
            "claims": [
                {"claim": c.text, "holds": self.bears_out(c), "wholly": self.verdict_on(c) != "part"} for c in CLAIMS
            ],
            "findings": [{**finding._asdict(), "kind": str(finding.kind)} for finding in self.findings],
            "findings_by_kind": {str(kind): count for kind, count in self.findings_by_kind.items()},
            "chain": [head._asdict() for head in self.heads],
        }
