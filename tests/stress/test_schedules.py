# SPDX-License-Identifier: Apache-2.0
"""Schedules: real operations in real processes, in every order with few preemptions; planted faults are found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache_stress.schedules.explore import Experiment, Explorer
from lockcache_stress.schedules.operations import OPERATIONS, Actor, Operation
from lockcache_stress.schedules.plans import PAIRS, TRIPLES, workplace
from lockcache_stress.schedules.planted import PLANTED
from lockcache_stress.schedules.running import Ran
from tests.matrix_sampling import all_but
from tests.stress.support import stress, stress_json

_SAMPLE = ["put+put", "evict+replace", "lease+give-up", "policy+evict", "recount+put", "record+get"]


@pytest.mark.slow
def test_every_order_of_a_put_and_a_get_keeps_all_promises(run_path: Path) -> None:
    found = stress_json("schedules", "put+get", "--seconds", "90", "--jobs", "1", run_path=run_path)
    (pair,) = found["experiments"]
    assert pair["whole"]
    assert pair["violations"] == []
    assert pair["schedules"] > 20
    assert pair["deaths"] > 10


def _outcome(ran: Ran) -> Any:
    """Returns what a run comes to: the entries, the lengths of files, the page, and what each operation found."""
    looked = ran.looked[max(ran.looked)] if ran.looked else None
    events = [event for process in ran.processes for event in process.events]
    found = tuple((each["kind"], each["key"], each["value"], each["end"] is None) for each in events)
    disk = None if looked is None else (tuple(sorted(looked.files.values())), looked.image[4096:])
    return tuple(ran.last.items()), disk, found


def _outcomes(names: tuple[str, ...], preemptions: int, *, reduces: bool) -> tuple[set[Any], int]:
    outcomes = set()

    def note(ran: Ran) -> list[str]:
        outcomes.add(_outcome(ran))
        return []

    with workplace() as root:
        explorer = Explorer(Experiment(names, preemptions, reduces=reduces), root, note)
        found = explorer.explore(time.monotonic() + 240)
    assert found.is_whole
    assert not found.violations
    return outcomes, found.schedules


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "names, preemptions",
    [(("put", "get"), 3), (("recount", "remove"), 2), (("replace", "remove"), 2), (("put", "evict"), 1)],
)
def test_orders_that_are_left_out_come_to_nothing_new(names: tuple[str, ...], preemptions: int) -> None:
    some, few = _outcomes(names, preemptions, reduces=True)
    every, many = _outcomes(names, preemptions, reduces=False)
    assert some == every
    assert few < many


def _is_there(actor: Actor, name: str) -> bool:
    try:
        os.stat(f"{actor.root}/{name}")
    except FileNotFoundError:
        return False
    return True


def _make(actor: Actor, name: str, if_there: str) -> bool:
    is_there = _is_there(actor, if_there)
    if is_there:
        os.mkdir(f"{actor.root}/{name}")
    return is_there


def _first(actor: Actor) -> bool:
    os.mkdir(f"{actor.root}/a")
    return _is_there(actor, "c")


def _second(actor: Actor) -> bool:
    is_there = _make(actor, "b", "a")
    time.sleep(1.0)
    return is_there


def _third(actor: Actor) -> bool:
    return _make(actor, "c", "b")


def _look_at_the_clock(actor: Actor) -> bool:
    _is_there(actor, "a")
    began = time.monotonic()
    _is_there(actor, "b")
    return time.monotonic() > began


def _sleep(actor: Actor) -> bool:
    time.sleep(1.0)
    return True


_used: list[int] = []


def _change_with_use(actor: Actor) -> bool:
    _used.append(1)
    return _is_there(actor, "a" if len(_used) == 1 else "b") or _is_there(actor, "c")


def _add(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[Actor], bool]) -> tuple[str, ...]:
    for act in acts:

        def noted(actor: Actor, act: Callable[[Actor], bool] = act) -> None:
            event = actor.stepper.begin("seen", "")
            actor.stepper.end(event, str(act(actor)))

        monkeypatch.setitem(OPERATIONS, act.__name__, Operation("", noted))
    return tuple(act.__name__ for act in acts)


# Calls that commute, and a sleep between them: what a clock says, and a third process, are all that tells the orders.
@pytest.mark.slow
@pytest.mark.parametrize("acts", [(_look_at_the_clock, _sleep), (_first, _second, _third)])
def test_a_sleep_is_met_by_every_call(
    acts: tuple[Callable[[Actor], bool], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = _add(monkeypatch, *acts)
    assert _outcomes(names, 1, reduces=True)[0] == _outcomes(names, 1, reduces=False)[0]


def test_a_process_that_does_something_else_when_it_is_used_again_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    names = _add(monkeypatch, _change_with_use, _third, _first)
    with workplace() as root:
        found = Explorer(Experiment(names, 1), root).explore(time.monotonic() + 240)
    assert any("not repeatable" in wrong for each in found.violations for wrong in each.wrong)


@pytest.mark.slow
@pytest.mark.parametrize("names", [("put", "remove"), ("evict", "policy"), ("lease", "give-up"), ("attach", "reap")])
def test_a_process_that_is_used_again_makes_the_same_calls(names: tuple[str, ...]) -> None:
    with workplace() as root:
        explorer = Explorer(Experiment(names), root)
        runs = [explorer.run(schedule)[0] for schedule in (b"", b"\0\0\0\0\0\1", b"", b"\3", b"")]
        explorer.close()
    assert [[str(call) for _, call, _ in runs[at].calls] for at in (2, 4)] == 2 * [
        [str(c) for _, c, _ in runs[0].calls]
    ]
    assert [process.pid for process in runs[2].processes] == [process.pid for process in runs[0].processes]
    assert runs[4].processes[0].pid == runs[0].processes[0].pid
    assert runs[4].processes[1].pid != runs[0].processes[1].pid  # it was killed


def test_what_alters_its_process_has_another_one_each_time() -> None:
    assert {name for name, each in OPERATIONS.items() if each.alters} == {"stepped", "slow-wide"}
    with workplace() as root:
        explorer = Explorer(Experiment(("put", "stepped")), root)
        pids = {explorer.run(b"")[0].processes[1].pid for _ in range(3)}
        explorer.close()
    assert len(pids) == 3


def test_a_write_whose_cap_is_lowered_for_longer_than_anybody_waits_is_given_up() -> None:
    with workplace() as root:
        assert Explorer(Experiment(("slow-wide", "narrow"), 0), root).replay([])[1] == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_slice_of_the_pairs_keeps_all_promises(run_path: Path) -> None:
    words = ("schedules", *_SAMPLE, "--preemptions", "1", "--seconds", "500")
    found = stress_json(*words, run_path=run_path, timeout=580)
    assert found["whole"] == len(_SAMPLE)
    assert found["ok"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", all_but(["policy-once", "sum-first"], PLANTED))
def test_a_planted_fault_is_found_and_its_schedule_shows_it_again(name: str, run_path: Path) -> None:
    found = stress_json("schedules", "--plant", name, "--jobs", "1", run_path=run_path, timeout=280)
    (violation, *_) = _violations(found)
    assert any(PLANTED[name].found_as in wrong for wrong in violation["wrong"])
    schedule = ",".join(map(str, violation["schedule"]))
    ran = stress("schedules", "--plant", name, "--replay", schedule, run_path=run_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    said = violation["wrong"][0].split(" step")[0]
    assert said.rstrip("0123456789. s") in ran.stdout  # how long somebody waited may differ by a look


def _violations(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [violation for each in found["experiments"] for violation in each["violations"]]


def test_a_schedule_is_printed_step_by_step(run_path: Path) -> None:
    ran = stress("schedules", "replace+get", "--replay", "1,2,0,4", run_path=run_path)
    assert ran.returncode == 0, ran.stderr
    numbers = [line.split()[1] for line in ran.stdout.splitlines()]
    assert numbers[:6] == ["1", "1", "0", "0", "0", "0"]
    assert any("rename(tmp/" in line for line in ran.stdout.splitlines())


def test_mistakes_are_said_in_a_line(run_path: Path) -> None:
    for words in (["put+nothing"], ["--replay", "0,1"], ["put+get", "--replay", "0,x"], ["put+get", "--replay", "9,1"]):
        ran = stress("schedules", *words, run_path=run_path)
        assert ran.returncode == 2, ran.stdout
        assert len(ran.stderr.strip().splitlines()) == 1


def test_there_are_21_triples_and_every_pair() -> None:
    assert len(set(TRIPLES)) == 21
    assert ("put", "evict") in PAIRS
    assert ("lease", "give-up") in PAIRS


def test_the_page_has_every_planted_fault_with_its_schedule() -> None:
    lines = (Path(__file__).parents[2] / "docs/proof.md").read_text().splitlines()
    stated = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert {name for name in PLANTED if name not in stated} == set()
    assert all("+".join(fault.operations) in stated[name] for name, fault in PLANTED.items())
