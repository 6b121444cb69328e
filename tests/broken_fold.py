"""A processor with a bug: its fold breaks an invariant on one call.

As a module it is `epochfence run` whose check of each step says no to the call named, and to no other:

    python -m tests.broken_fold CALL_ID --slot NAME ...
"""

import sys
from typing import Any

from epochfence.protocol.invariants import InvariantError


def main() -> None:
    from epochfence.cli.main import main as epochfence
    from epochfence.protocol import invariants, partition

    _, call_id, *options = sys.argv
    check_step = invariants.check_step

    def broken(before: Any, after: Any, decision: Any) -> None:
        check_step(before, after, decision)
        if decision.call_id == call_id:
            raise InvariantError(f"a bug that a test has put here (call {call_id!r})")

    partition.check_step = broken  # type: ignore[attr-defined]
    sys.argv = ["epochfence", "run", *options]
    epochfence()


if __name__ == "__main__":
    main()
