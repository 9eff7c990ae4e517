# SPDX-License-Identifier: Apache-2.0
"""Rows: of the moments at which one process is preempted by another, those are run that differ."""

from __future__ import annotations

from lockcache_stress.schedules.calls import Call, accesses
from lockcache_stress.schedules.process import Process
from lockcache_stress.schedules.rows import rows_of
from lockcache_stress.schedules.running import Decision, Ran


def run(*calls: tuple[int, str, str], processes: int = 2) -> Ran:
    made = [Call(name, (path,)) for _, name, path in calls]
    found = Ran(choices=[number for number, _, _ in calls])
    found.calls = [
        (number, call, accesses(call, counts_room=False)) for (number, *_), call in zip(calls, made, strict=False)
    ]
    found.processes = [Process(None) for _ in range(processes)]  # type: ignore[arg-type]
    return found


_BASE = run((0, "stat", "a"), (0, "unlink", "b"), (0, "stat", "c"), (0, "unlink", "d"))


def decisions(ran: Ran, preemptions: int = 2) -> list[Decision]:
    return [Decision(at, used, 0, 1, preemptions) for at, (_, _, used) in enumerate(ran.calls) if at]


def visited(answer: Ran) -> list[int]:
    (row,) = rows_of(_BASE, decisions(_BASE), 2)
    found = []
    while (following := row.next()) is not None:
        prefix, decision = following
        assert prefix == bytes([0] * decision.at + [1])
        found.append(decision.at)
        row.note(decision, answer, is_right=True)
    return found


def test_the_latest_is_first_and_those_before_it_only_where_they_differ():
    meets_nothing = run(*[(0, "stat", "x")] * 3, (1, "unlink", "y"))
    assert visited(meets_nothing) == [3]
    answer = run((0, "stat", "a"), (1, "unlink", "c"), (1, "stat", "b"), (0, "stat", "z"))
    # What the other process does is read behind the moment of each: at 3 it is nothing.
    assert visited(answer) == [3]


def test_a_call_that_meets_what_the_other_made_is_between_two_orders():
    for path, expected in (("c", [3, 2]), ("b", [3, 1]), ("a", [3])):
        answer = run(*[(1, "unlink", path)] * 4)
        assert visited(answer) == expected


def test_a_wrong_run_says_nothing_of_others():
    (row,) = rows_of(_BASE, decisions(_BASE), 2)
    for at in (3, 2, 1):
        following = row.next()
        assert following is not None
        assert following[1].at == at
        row.note(following[1], run((1, "stat", "x")), is_right=False)


def test_with_three_processes_each_moment_is_run():
    (row,) = rows_of(_BASE, decisions(_BASE), 2)
    row.next()
    row.note(decisions(_BASE)[-1], run(*[(1, "stat", "x")] * 4, processes=3), is_right=True)
    following = row.next()
    assert following is not None
    assert following[1].at == 2


def test_where_a_death_can_follow_and_behind_a_step_of_another_each_is_a_row():
    assert len(list(rows_of(_BASE, decisions(_BASE, preemptions=1), 3))) == 3
    assert len(list(rows_of(_BASE, decisions(_BASE, preemptions=1), 2))) == 1
    turns = run((0, "stat", "a"), (0, "unlink", "b"), (1, "stat", "c"), (0, "unlink", "d"))
    assert len(list(rows_of(turns, decisions(turns), 2))) == 2
