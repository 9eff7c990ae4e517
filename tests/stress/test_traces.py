# SPDX-License-Identifier: Apache-2.0
"""Traces: what processes do is a run of the model; with a fault that the model can express, it is not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lockcache_stress.model.parts import LOCK, PAGE, READ, STAGE, UNLOCK, WRITE, Program, Slot
from lockcache_stress.model.protocol import FAULTS, Model
from lockcache_stress.model.traces import END, Disk, Follower, Step
from lockcache_stress.schedules import explore
from lockcache_stress.schedules.explore import Experiment, Explorer
from lockcache_stress.schedules.operations import OPERATIONS
from lockcache_stress.schedules.plans import planted_experiment, workplace
from lockcache_stress.schedules.traced import NOT_A_RUN, PROGRAMS

_NOT_IN_THE_MODEL = {"record", "count", "create", "slow-wide"}


@pytest.fixture
def root() -> Iterator[str]:
    with workplace() as path:
        yield path


@pytest.mark.parametrize("names", [("put", "reap"), ("lease", "give-up"), ("evict", "policy"), ("recount", "remove")])
def test_what_processes_do_is_a_run_of_the_model_also_with_a_death(names: tuple[str, ...], root: str) -> None:
    explorer = Explorer(Experiment(names), root)
    for schedule in ([], [1, 1], [0, 9, 1, 1], [0, 12, 2], [1, 8, 3]):
        assert explorer.replay(schedule)[1] == []
    assert explorer.compared == 5


def test_an_eviction_may_go_on_for_the_next_writes_where_it_has_its_room(root: str) -> None:
    # The model once had each eviction end where the sum was under the cap.
    explorer = Explorer(Experiment(("put", "evict")), root)
    for schedule in ([0, 48, 2], [1, 48, 3]):
        assert explorer.replay(schedule)[1] == []


@pytest.mark.parametrize("fault", FAULTS)
def test_what_they_do_with_a_fault_is_not(fault: str, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "judge", lambda *given: [])  # which may find it first
    experiment = replace(planted_experiment(fault), compares=True)
    found = Explorer(experiment, root).explore(time.monotonic() + 60, stop_at=1)
    assert [violation.wrong[0].split(":")[0] for violation in found.violations] == [NOT_A_RUN]


def test_every_operation_is_in_the_model_but_for_these() -> None:
    assert set(OPERATIONS) - set(PROGRAMS) == _NOT_IN_THE_MODEL


_RESERVED = [Step(0, LOCK), Step(0, READ), Step(0, STAGE), Step(0, PAGE), Step(0, UNLOCK)]


@pytest.mark.parametrize(
    "trace, why",
    [
        ([*_RESERVED, Step(0, READ), Step(0, WRITE)], None),
        ([*_RESERVED, Step(0, WRITE)], "no step write(tmp/STAGED)"),
        ([*_RESERVED, Step(0, READ), Step(0, END)], "no step end"),
        ([*_RESERVED[:3], Step(0, PAGE, disk=Disk((Slot(1, 0),), 2, (0, 0), (1,)))], None),
        ([*_RESERVED[:3], Step(0, PAGE, disk=Disk((Slot(2, 0),), 2, (0, 0), (1,)))], "the disk is"),
        ([*_RESERVED[:3], Step(0, UNLOCK, may_be_none=True)], None),
        ([*_RESERVED[:3], Step(0, UNLOCK)], "no step unlock_descriptor"),
        ([Step(0, LOCK, on=1)], "no step lock_descriptor"),
    ],
)
def test_a_trace_leaves_the_model_where_it_makes_another_step_or_leaves_another_disk(
    trace: list[Step], why: str | None
) -> None:
    broken, _ = Follower(Model((Program("put"),))).follow(trace)
    assert (broken is None) if why is None else (broken is not None and why in broken.why)
