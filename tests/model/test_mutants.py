"""The production code with one thing wrong, again and again: somebody notices each time, and who is to is written down.

`python -m tests.mutants` prints who else does.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from epochfence.protocol.fold import fold
from epochfence.protocol.invariants import InvariantError
from epochfence.protocol.vocabulary import Orphans
from epochfence.simulation.explored import trace_lines
from epochfence.simulation.explorer import Explorer
from epochfence.simulation.simulate import simulate
from epochfence.simulation.traces import Trace, from_file
from epochfence.simulation.world import Settings
from tests.mutants.catalogue import ALL, ENGINE, FOLD
from tests.mutants.detectors import DETECTORS, noticed
from tests.mutants.swap import Mutant, in_place


@pytest.mark.parametrize("name", DETECTORS)
def test_nobody_cries_wolf(name: str) -> None:
    assert noticed(name) is None


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    with in_place(mutant):
        told = noticed(mutant.caught_by)
    assert told is not None
    assert "cannot be found again" not in told  # the explorer's own bug is no counterexample


def what_is_wrong(trace: Trace) -> str | None:
    """The first property that a trace breaks, or the fold's own invariant, which stops a partition before that."""
    try:
        failures = simulate(trace).failures
    except InvariantError as error:
        return str(error)
    return failures[0].why if failures else None


@pytest.mark.parametrize("name", ["a stale epoch is heard", "no fence on a timeout", "a duplicate commits again"])
def test_a_counterexample_in_the_log_is_a_trace_that_goes_red(name: str) -> None:
    with in_place(next(mutant for mutant in FOLD if mutant.name == name)):
        found = Explorer(Settings(orphans=Orphans.COMPENSATE, deliveries=1)).run().counterexample
        assert found is not None
        trace = from_file("counterexample", trace_lines(found))
        red = what_is_wrong(trace)
    assert red is not None
    assert what_is_wrong(trace) is None


def test_a_mutant_is_taken_back() -> None:
    before = fold.__code__
    with in_place(next(mutant for mutant in FOLD if "copy_record" in mutant.old)):
        assert fold.__code__ is not before
    assert fold.__code__ is before


def test_names_tell_mutants_apart() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL)
    assert len({(mutant.module, mutant.old, mutant.new) for mutant in ALL}) == len(ALL)
    assert len(FOLD) >= 25
    assert len(ENGINE) >= 25


def test_the_page_counts_as_the_catalogue_does() -> None:
    page = (Path(__file__).parents[2] / "docs" / "proof.md").read_text("utf-8")
    told = {name: int(count) for name, count in re.findall(r"^\| `(\w+)`: .* \| (\d+) \|$", page, re.MULTILINE)}
    assert told == Counter(mutant.caught_by for mutant in ALL)
    assert f"\n{len(ALL)} times." in page
