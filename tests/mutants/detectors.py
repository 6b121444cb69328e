"""Those who are to notice a mutant: small runs of the tests that everybody else runs at length.

A detector returns what it noticed, or nothing. Each is quiet on the production code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from epochfence.protocol.admission import Parameters
from epochfence.protocol.invariants import InvariantError
from epochfence.protocol.vocabulary import Orphans, Policy
from epochfence.simulation.explored import missing_rows
from epochfence.simulation.explorer import Explorer
from epochfence.simulation.lines import LineFold
from epochfence.simulation.simulate import as_json, simulate
from epochfence.simulation.traces import ALL, named
from epochfence.simulation.world import Settings
from epochfence.wire.jsonl import to_json
from tests import builders as one_call
from tests.independent.generate import RETENTION_MS, Generator
from tests.independent.reference import ReferencePartition
from tests.mutants.swap import Mutant, in_place
from tests.property import test_task_faults as faults
from tests.replay import test_acceptance_cases as acceptance
from tests.unit import test_fold_rows as rows
from tests.unit import test_merge as merges
from tests.unit import test_partition as partitions
from tests.unit import test_recovery as recoveries

Detector = Callable[[], str | None]


def _all_tests_of(module: ModuleType) -> None:
    """Every test of a module of tests, with every row of its table of parameters."""
    for name, test in list(vars(module).items()):
        if not name.startswith("test_"):
            continue
        wanted = inspect.signature(test).parameters
        fresh = {"partition": partitions.Partition(Parameters(retention_ms=partitions.RETENTION_MS))}
        fixtures = {name: value for name, value in fresh.items() if name in wanted}
        (table,) = [mark.args for mark in getattr(test, "pytestmark", [])] or [((), [()])]
        names = table[0].split(",") if isinstance(table[0], str) else table[0]
        for values in table[1]:
            test(**dict(zip(names, values if len(names) != 1 else (values,), strict=True)), **fixtures)


def trace() -> str | None:
    """The built-in traces and their properties, and the shared cases."""
    for built_in in ALL:
        for failure in simulate(built_in).failures:
            return f"{built_in.name}: {failure}"
    return None


def case() -> str | None:
    """The shared cases, field by field."""
    for wanted in acceptance.CASES:
        acceptance.assert_came_out(as_json(simulate(named(wanted["name"])))["fenced"], wanted["decisions"])
    return None


def row() -> str | None:
    """The unit tests of the fold: examples of every row."""
    return _all_tests_of(rows)


SETTINGS = (
    Settings(epochs=2, deliveries=1),
    Settings(orphans=Orphans.COMPENSATE, duplicates=0, deliveries=1),
    Settings(Policy.REPLAY, duplicates=0, deliveries=1),
    Settings(Policy.REPLAY, Orphans.COMPENSATE, epochs=3, duplicates=0, deliveries=1, operator_epochs=0),
    Settings(orphans=Orphans.COMPENSATE, epochs=2, duplicates=0, deliveries=1, hostile=1),
)


def explorer() -> str | None:
    """Every interleaving to a small bound: a counterexample, or a row that nobody reaches any more."""
    for settings in SETTINGS:
        explored = Explorer(settings).run(max_states=60_000)
        if explored.counterexample is not None:
            steps = len(explored.counterexample.steps)
            return f"{explored.counterexample.why}, in {steps} steps"
        missing = [row for row in missing_rows(explored) if row != 13 or settings.operator_epochs]
        if missing:
            return f"rows {missing} are never reached"
    return None


def reference() -> str | None:
    """Random lines, decided as an independent reading of the protocol does."""
    for seed in (1, 2):
        fold, theirs = LineFold(Parameters(retention_ms=RETENTION_MS)), ReferencePartition(retention_ms=RETENTION_MS)
        for number, line in enumerate(Generator(seed).lines(1_500)):
            got, wanted = to_json(fold.decide(line)), theirs.decide_line(line)
            differ = [name for name in got if name not in ("decided_at_ms", "checkpoint") and got[name] != wanted[name]]
            if differ:
                return f"seed {seed}, line {number}: {', '.join(differ)}"
    return None


def partition() -> str | None:
    """The unit tests of a partition: stream time, forgetting, undo."""
    return _all_tests_of(partitions)


def merge() -> str | None:
    """The unit tests of the merge order."""
    return _all_tests_of(merges)


def recovery() -> str | None:
    """The unit tests of a start: what is refused, and what is rebuilt."""
    return _all_tests_of(recoveries)


def stop() -> str | None:
    """A fold that contradicts the protocol stops its partition."""
    bug = Mutant("", "epochfence.protocol.fold", "after.live_epoch += 1", "after.live_epoch += 0", "")
    with in_place(bug):
        try:
            one_call.Log(one_call.call(), one_call.timeout(1))
        except InvariantError:
            return None
    return "a fold with a bug went on"


def engine() -> str | None:
    """The task and its recovery on a log in memory, under aborts, crashes and lost tables; read by a checker."""
    for seed in range(4):
        log = faults.MemoryLog()
        faults.fill(log, seed, 250)
        faults.Life(log, seed).run()
        report = faults.check_log(log.as_checked(), merge_order=True)
        if not report.ok:
            return str(report.findings[0])
    return None


def damage() -> str | None:
    """A log that was damaged is refused."""
    faults.test_a_table_ahead_of_the_decisions_is_refused()
    faults.test_a_torn_transaction_is_refused()
    faults.test_inputs_that_are_gone_are_refused()
    for kind in ("edited", "missing", "doubled", "input rewritten", "input gone"):
        faults.test_damage_that_a_roll_forward_meets_is_refused(kind)
    return None


DETECTORS: dict[str, Detector] = {
    found.__name__: found
    for found in (trace, case, row, explorer, reference, partition, merge, recovery, stop, engine, damage)
}


def noticed(name: str) -> str | None:
    """What a detector noticed; an error that it met, an assertion among them, is one too."""
    try:
        return DETECTORS[name]()
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # whatever a mutant does is told
        told = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {told[0]}"
