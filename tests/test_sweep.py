"""Sweeping: what stat says is compared with what is known, at times that follow from the clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexd.sweep import FULL_SECONDS_AT_MOST, Schedule, recent, stamp_of, sweep
from indexd.tail import Stamp

HOUR_NS = 3600 * 1_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{n}.jsonl" for n in range(6)]
    for path in paths:
        path.write_text("{}\n")
    return [str(path) for path in paths]


def known(paths: list[str]) -> dict[str, Stamp]:
    stamps = {path: stamp_of(path) for path in paths}
    return {path: stamp for path, stamp in stamps.items() if stamp}


def test_a_sweep_over_resting_files_finds_nothing(files: list[str]) -> None:
    assert sweep(known(files), files) == set()


def test_a_sweep_finds_what_grew_went_came_or_was_replaced(files: list[str]) -> None:
    grown, gone, come, replaced, set_back, resting = files
    stamps = known(files)
    del stamps[come]
    with open(grown, "a") as file:
        file.write("{}\n")
    os.unlink(gone)
    status = os.stat(replaced)
    Path(replaced + ".tmp").write_text("[]\n")
    os.utime(replaced + ".tmp", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.rename(replaced + ".tmp", replaced)
    with open(set_back, "r+") as file:
        file.write("[]\n")
    os.utime(set_back, ns=(status.st_atime_ns, stamps[set_back].mtime_ns))
    assert sweep(stamps, files) == {grown, gone, come, replaced, set_back}
    assert sweep(stamps, [grown, resting]) == {grown}


def test_a_sweep_does_not_follow_links(files: list[str]) -> None:
    target, link, *_ = files
    os.unlink(link)
    os.symlink(target, link)
    stamps = known(files)
    with open(target, "a") as file:
        file.write("{}\n")
    assert sweep(stamps, [link]) == set()


def test_recent_files_were_modified_in_the_last_hour_or_in_the_future() -> None:
    now = 10 * HOUR_NS
    ages = {"now": 0, "minutes": HOUR_NS // 2, "hours": 2 * HOUR_NS, "future": -HOUR_NS}
    stamps = {name: Stamp(1, 1, 1, now - age, 0) for name, age in ages.items()}
    assert recent(stamps, now) == ["now", "minutes", "future"]


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


def test_recent_files_are_swept_each_five_seconds_only_where_events_do_not_help() -> None:
    schedule = Schedule.starting(0.0).after_full(0.0, found=True)
    assert schedule.wait(0.0, polling=False) == 60
    assert schedule.wait(0.0, polling=True) == 5
    schedule = schedule.after_recent(5.0)
    assert schedule.wait(5.0, polling=True) == 5
    assert schedule.wait(5.0, polling=False) == 55


def test_a_clock_that_went_on_during_sleep_makes_a_sweep_due() -> None:
    schedule = Schedule.starting(0.0).after_full(0.0, found=False)
    assert schedule.wait(8 * 3600.0, polling=False) == 0
