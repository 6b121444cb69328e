"""Each control goes red on a built-in trace that it is wrong about, and only the properties say so."""

from __future__ import annotations

import pytest

from epochfence.simulation.controls import WHAT_IS_WRONG, Control
from epochfence.simulation.simulate import simulate
from epochfence.simulation.traces import named

RED = [
    (Control.NO_FENCE, "late_success_after_compensate", "ghost write: SUCCESS of epoch 1"),
    (Control.EARLY_COMPENSATION, "timeout_then_compensate", "a dispatch carries the token (0, 1) and not the live one"),
    (Control.MISSING_EPOCH, "success_without_an_epoch", "COMMIT for epoch None while 1 was live"),
    (Control.ONE_KEY, "orphan_is_cleaned_up", "the compensation key went from 7@0:compensate to 7@0:compensate"),
    (Control.FORGET_UNSETTLED, "orphan_is_cleaned_up", "is not known to be undone, and the call is not unsettled"),
]


@pytest.mark.parametrize(("control", "trace", "why"), RED, ids=[str(red[0]) for red in RED])
def test_a_control_goes_red(control: Control, trace: str, why: str) -> None:
    assert not simulate(named(trace)).failures
    assert any(why in failure.why for failure in simulate(named(trace), control).failures)


@pytest.mark.parametrize("control", Control)
def test_a_control_is_right_where_nothing_goes_wrong(control: Control) -> None:
    assert not simulate(named("happy_success"), control).failures


def test_every_control_is_told_and_shown() -> None:
    assert set(WHAT_IS_WRONG) == set(Control) == {control for control, _, _ in RED}
