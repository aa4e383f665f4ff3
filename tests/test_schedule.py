"""When sweeps are due, which follows from the clock alone."""

from __future__ import annotations

from indexd.schedule import FULL_SECONDS_AT_MOST, Schedule


def test_sweeps_become_rarer_while_they_find_nothing_and_frequent_again_when_they_do() -> None:
    schedule = Schedule.starting(1000.0)
    assert schedule.wait(1000.0, polling=False) == 0
    waits = []
    for found in (False, False, False, False, False, True, False):
        now = schedule.full_at
        schedule = schedule.after_full(now, found=found)
        waits.append(schedule.wait(now, polling=False))
    assert waits == [60, 120, 240, 300, 300, 60, 120]
    assert max(waits) == FULL_SECONDS_AT_MOST


def test_roots_without_events_are_swept_each_five_seconds() -> None:
    schedule = Schedule.starting(0.0).after_full(0.0, found=True)
    assert schedule.wait(0.0, polling=False) == 60
    assert schedule.wait(0.0, polling=True) == 5
    schedule = schedule.after_poll(5.0)
    assert schedule.wait(5.0, polling=True) == 5
    assert schedule.wait(5.0, polling=False) == 55


def test_a_clock_that_went_on_during_sleep_makes_a_sweep_due() -> None:
    schedule = Schedule.starting(0.0).after_full(0.0, found=False)
    assert schedule.wait(8 * 3600.0, polling=False) == 0
