"""Prints who notices which mutant: `python -m tests.mutants [WORD...]`, those whose names have one of the words."""

import sys

from tests.mutants.catalogue import ALL
from tests.mutants.detectors import DETECTORS, noticed
from tests.mutants.swap import in_place


def main() -> int:
    """The matrix. The exit code is the number of mutants that nobody notices, at most 100."""
    words = sys.argv[1:]
    missed = 0
    for mutant in ALL:
        if words and not any(word in mutant.name for word in words):
            continue
        with in_place(mutant):
            told = {name: noticed(name) for name in DETECTORS}
        caught = [name for name, what in told.items() if what is not None]
        missed += not caught
        print(f"{mutant.name}: {', '.join(caught) or 'NOBODY'}", flush=True)
        if mutant.caught_by not in caught:
            print(f"    not by {mutant.caught_by}", flush=True)
        elif words:
            print("    " + "\n    ".join(f"{name}: {what}" for name, what in told.items() if what is not None))
    print(f"missed={missed}")
    return min(missed, 100)


if __name__ == "__main__":
    sys.exit(main())
