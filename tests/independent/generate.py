"""A seeded generator of adversarial events for `fold`: the same seed gives the same bytes for ever.

It folds what it has made with the reference, so that it knows which epochs are live and can aim at, beside and past
them. Few calls, so that they meet; time that jumps, so that they are forgotten and opened anew.

    python -m tests.independent.generate --seed 1 --lines 3000 > events.jsonl
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.independent.malformed import malformed_line
from tests.independent.records import Call
from tests.independent.reference import ReferencePartition

RETENTION_MS = 2_000
MAX_BODY_BYTES = 262_144
CALL_IDS = [
    "7",
    "8",
    "9",
    "10",
    "11",
    "12",
    "13",
    "14",
    "15",
    "a b",
    "é",
    "\U0001f512",
    '"q"\\',
    "x@0:compensate",
    "n\0x",
    "1" * 256,
]
BAD_CALL_IDS = ["", "\0", "\0checkpoint", "1" * 257, "é" * 129]
TOOLS = ["reserve", "reserve", "reserve", "pay", "\n", ""]
BODIES: list[Any] = [
    "held",
    "held",
    "seat 12",
    "",
    None,
    {"base64": "/w=="},
    {"base64": ""},
    {"base64": "aGVsZA=="},
    "é",
]
CAUSES = ["DEADLINE", "DEADLINE", "WATCHDOG", "CANCELLED", "OPERATOR", "OPERATOR"]


class Generator:
    """Lines of events; `rows` counts which row of the table, or admission rule, decided each."""

    def __init__(self, seed: int, retention_ms: int = RETENTION_MS) -> None:
        self.rng = random.Random(seed)
        self.reference = ReferencePartition(retention_ms=retention_ms)
        self.rows: Counter[int | str] = Counter()
        self.now_ms = 0
        self.sent: list[dict[str, Any]] = []
        self.line_number = 0

    def lines(self, count: int) -> list[bytes]:
        """The next `count` lines, without their newlines."""
        lines: list[bytes] = []
        while len(lines) < count:
            for line in self._next():
                self.reference.decide_line(line)
                self.rows[self.reference.last_row] += 1
                self.line_number += 1
                lines.append(line)
        return lines[:count]

    def _next(self) -> list[bytes]:
        roll = self.rng.random()
        if roll < 0.06:
            return [malformed_line(self.rng)]
        if roll < 0.065:
            return [self._line(event) for event in self._orphan_flood()]
        if roll < 0.075:
            return [self._line(event) for event in self._doubled_clean_up()]
        if roll < 0.15 and self.sent:
            return [self._line({**self.rng.choice(self.sent[-60:]), "timestamp_ms": self._tick()})]
        event = self._event()
        self.sent.append(event)
        return [self._line(event)]

    def _line(self, event: dict[str, Any]) -> bytes:
        items = list(event.items())
        if self.rng.random() < 0.2:
            self.rng.shuffle(items)
        return json.dumps(dict(items), ensure_ascii=self.rng.random() < 0.5).encode("utf-8")

    def _tick(self) -> int:
        roll = self.rng.random()
        if roll < 0.02:
            self._aim_at_forgetting()
        elif roll < 0.03:
            self.now_ms += self.reference.retention_ms + self.rng.choice([-1, 0, 1, 2, 5_000])
        elif roll < 0.5:
            self.now_ms += self.rng.randrange(200)
        late_ms = self.rng.choice([0, 0, 0, 0, 1, 500, 10**6])
        return self.now_ms - late_ms

    def _aim_at_forgetting(self) -> None:
        """To the last millisecond at which a closed call is remembered, or the first at which it is not."""
        closed_ms = [call.closed_at_ms for call in self.reference.calls.values() if call.closed_at_ms is not None]
        if closed_ms:
            aimed_ms = self.rng.choice(closed_ms) + self.reference.retention_ms + self.rng.choice([0, 0, 1])
            self.now_ms = max(self.now_ms, aimed_ms)

    def _event(self) -> dict[str, Any]:
        call_id = self.rng.choice(CALL_IDS) if self.rng.random() < 0.985 else self.rng.choice(BAD_CALL_IDS)
        call = self.reference.calls.get(call_id)
        event = self._kind(call)(call_id, call)
        if self.rng.random() < 0.95:
            event["timestamp_ms"] = self._tick()
        if self.rng.random() < 0.3:
            event["event_id"] = self.rng.choice(["e1", "", "é"])
        if self.rng.random() < 0.1:
            event["source"] = "planner-1"
        return event

    def _kind(self, call: Call | None) -> Callable[[str, Call | None], dict[str, Any]]:
        kinds = [self._tool_call, self._timeout, self._result, self._compensation]
        if call is None:
            return self.rng.choices(kinds, [12, 2, 1, 1])[0]
        if call.status == "CANCELLED":
            return self.rng.choices(kinds, [4, 3, 1, 1])[0]
        if call.kind == "CALL":
            return self.rng.choices(kinds, [1, 4, 5, 1])[0]
        return self.rng.choices(kinds, [1, 4, 4, 4])[0]

    def _tool_call(self, call_id: str, call: Call | None) -> dict[str, Any]:
        rng = self.rng
        if call is not None and call.tool_call is not None and rng.random() < 0.5:
            same = {name: call.tool_call[name] for name in ("tool", "idempotency_key")}
            return {"type": "tool_call", "call_id": call_id, **same, "arguments": _body(call), "timeout_ms": 5}
        event = {"type": "tool_call", "call_id": call_id, "tool": rng.choice(TOOLS), "timeout_ms": 1_000}
        optional: dict[str, list[Any]] = {
            "arguments": BODIES,
            "idempotency_key": ["", "k", "k2"],
            "orphans": ["REPORT", "COMPENSATE"],
            "max_epochs": [2, 3, 3, 4, 5, 8, 8, 100],
            "runner": ["gateway", "planner-1"],
        }
        event |= {name: rng.choice(values) for name, values in optional.items() if rng.random() < 0.8}
        if rng.random() < 0.5:
            event |= {"policy": rng.choice(["REPLAY", "REPLAY", "COMPENSATE"])}
            event |= {"idempotency_key": "k"} if rng.random() < 0.9 else {}
        if rng.random() < 0.2:
            event |= rng.choice(rng.choice(self._out_of_range()))
        return event

    def _out_of_range(self) -> list[list[dict[str, Any]]]:
        """Values beside and on the edges of their ranges, by kind."""
        expired_ms = self.now_ms - self.reference.retention_ms
        return [
            [{"timeout_ms": n} for n in (0, -1, 1, 2_592_000_000, 2_592_000_001, 2**63 - 1, -(2**63))],
            [{"max_epochs": n} for n in (1, 0, -1, 2, 100, 101)],
            [
                {"occurred_at_ms": expired_ms + n}
                for n in (-(2**40), -(2**63) - expired_ms, -100, -100, -1, 0, 1, 50, 200)
            ],
            [{"runner": ""}, {"tool": ""}],
            [{"policy": "REPLAY", "idempotency_key": ""}, {"policy": "REPLAY", "idempotency_key": "k"}],
            [{"arguments": self._large()}],
        ]

    def _large(self) -> Any:
        size = MAX_BODY_BYTES + self.rng.choice([0, 1])
        return self.rng.choice(
            ["x" * size, "é" * (size // 2) + "x", {"base64": base64.b64encode(b"\xff" * size).decode()}]
        )

    def _epoch(self, call: Call | None) -> dict[str, Any]:
        live = call.live_epoch if call is not None else 1
        roll = self.rng.random()
        if roll < 0.72:
            return {"epoch": live}
        if roll < 0.94:
            return {"epoch": max(1, live - self.rng.choice([1, 1, 2, 3])) if roll < 0.86 else live + 1}
        return self.rng.choice([{}, {"epoch": None}, {"epoch": 0}, {"epoch": -1}, {"epoch": 2**63 - 1}, {"epoch": 1}])

    def _incarnation(self, call: Call | None) -> dict[str, Any]:
        roll = self.rng.random()
        if roll < 0.7:
            return {}
        own = call.incarnation if call is not None else None
        if roll < 0.96 and own is not None:
            return {"incarnation": own}
        return {"incarnation": self.rng.choice([0, -1, self.line_number, 2**63 - 1])}

    def _execution(self) -> dict[str, Any]:
        roll = self.rng.random()
        if roll < 0.15:
            return {}
        return {"execution_id": "" if roll < 0.17 else f"x{self.rng.randrange(6)}"}

    def _timeout(self, call_id: str, call: Call | None) -> dict[str, Any]:
        event = {"type": "timeout", "call_id": call_id, **self._epoch(call)}
        if self.rng.random() < 0.4:
            event |= self._incarnation(call)
        elif self.rng.random() < 0.2:
            event |= {"incarnation": None}
        return event | ({"cause": self.rng.choice(CAUSES)} if self.rng.random() < 0.9 else {})

    def _result(self, call_id: str, call: Call | None) -> dict[str, Any]:
        outcome = self.rng.choice(["SUCCESS", "SUCCESS", "FAILURE", "UNKNOWN"])
        event = {"type": "result", "call_id": call_id, "outcome": outcome, **self._epoch(call)}
        return (
            event
            | self._incarnation(call)
            | self._execution()
            | self._payload(nulls=0.05 if outcome == "SUCCESS" else 0.5)
        )

    def _compensation(self, call_id: str, call: Call | None) -> dict[str, Any]:
        outcome = self.rng.choice(["OK", "OK", "FAILED", "UNKNOWN"])
        event = {"type": "compensation", "call_id": call_id, "outcome": outcome, **self._epoch(call)}
        return event | self._incarnation(call) | self._execution() | self._payload(nulls=0.6)

    def _payload(self, nulls: float) -> dict[str, Any]:
        if self.rng.random() < nulls:
            return self.rng.choice([{}, {"payload": None}])
        return {
            "payload": self._large()
            if self.rng.random() < 0.006
            else self.rng.choice([b for b in BODIES if b is not None])
        }

    def _doubled_clean_up(self) -> list[dict[str, Any]]:
        """A clean-up that is raised once more and answered OK in both epochs, by two executions."""
        for call_id, call in self.reference.calls.items():
            if call.clean_up_in_flight:
                live = call.live_epoch
                answer = {"type": "compensation", "call_id": call_id, "outcome": "OK"}
                return [
                    {"type": "timeout", "call_id": call_id, "epoch": live, "cause": "OPERATOR"},
                    {**answer, "epoch": live, "execution_id": "d1"},
                    {**answer, "epoch": live + 1, "execution_id": "d2"},
                ]
        return []

    def _orphan_flood(self) -> list[dict[str, Any]]:
        """More orphans than are remembered, and then the first and the last once more."""
        call_id = self.rng.choice(CALL_IDS)
        names = [f"f{n}" for n in range(self.rng.randrange(30, 36))]
        events = [
            {
                "type": "result",
                "call_id": call_id,
                "epoch": 1,
                "outcome": "SUCCESS",
                "payload": name,
                "execution_id": name,
            }
            for name in names
        ]
        return [*events, events[0], events[1], events[-1]]


def _body(call: Call) -> Any:
    assert call.tool_call is not None
    arguments = call.tool_call["arguments"]
    return None if arguments is None else {"base64": base64.b64encode(arguments).decode("ascii")}


def main() -> int:
    """Prints the lines; the rows they hit go to standard error."""
    parser = argparse.ArgumentParser(description="Adversarial events for fold, as JSON Lines.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, default=1_000)
    parser.add_argument("--retention-ms", type=int, default=RETENTION_MS)
    options = parser.parse_args()
    generator = Generator(options.seed, options.retention_ms)
    for line in generator.lines(options.lines):
        sys.stdout.buffer.write(line + b"\n")
    for row, hits in sorted(generator.rows.items(), key=str):
        print(f"{row}: {hits}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
