# SPDX-License-Identifier: Apache-2.0
"""Schedules: real operations in real processes, in every order with few preemptions; planted faults are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockcache_stress.schedules.plans import PAIRS, TRIPLES
from lockcache_stress.schedules.planted import PLANTED
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
    assert violation["wrong"][0].split(" step")[0] in ran.stdout


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
