# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress hosts``: verdicts on what a guest counted, and the files that they are left in."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from lockcache_stress.commands.hosts import _Making
from lockcache_stress.hosts.running import HostsOptions
from lockcache_stress.hosts.verdicts import TRIALS, parse_result
from lockcache_stress.report import Files

TRAFFIC: dict[str, Any] = {
    "hits": 40,
    "puts": 30,
    "dropped": 1,
    "recorded": 70,
    "torn": 0,
    "foreign": 0,
    "stale": 0,
    "illegal_histories": 0,
    "deaths": [],
    "accounted_bytes": 9000,
    "disk_bytes": 9000,
    "repaired_shards": [],
}
START: dict[str, Any] = {
    "nodes": 2,
    "ranks_per_node": 8,
    "kernels": 8,
    "requests": {"open": 50, "kernels": 200, "close": 50},
    "seconds": 1.0,
    "computes": 0,
    "dropped": 0,
    "wrong": 0,
}
#: What each trial gives where all is as it must be.
GOOD: dict[str, dict[str, Any]] = {
    "calls": {
        "each": {
            "open": 8,
            "cold hit": 6,
            "hit again": 0,
            "put": 13,
            "put, its lock open": 12,
            "put with a cap": 14,
            "get_or_compute that computes": 27.5,
            "close": 8,
            "a waiter's second": 4,
        },
        "kinds": {"cold hit": {"OPEN_NOATTR": 1.0}},
    },
    "fleet": {
        "shared, first start": {**START, "computes": 8},
        "shared, next start": START,
        "filled": 300,
    },
    "seed": {"bundle_bytes": 40_000, "hits": 640, "wanted_hits": 640, "reads": 10, "other_requests": 4},
    "visible": {
        "the shard is new": [
            {"late_seconds": 2.0, "reads": 20, "unverified": 0},
            {"late_seconds": None, "reads": 1, "unverified": 0},
        ]
    },
    "opened": {"in turn": 1, "at once": 1, "entries": 12, "wanted_entries": 12, "repaired_shards": []},
    "copied": {"before": 2, "entries": 1, "after": 0},
    "replaced": {
        "nobody": {"old": 0, "reads": 3, "until_seconds": 0.0},
        "removed while nobody": {"old": 0, "reads": 3, "until_seconds": 0.0},
    },
    "herd": {
        "keys": 8,
        "processes": 16,
        **{
            order: {"computes": 8, "wrong": 0, "dropped": 0}
            for order in ("equal order", "random order", "looked up before")
        },
    },
    "kill": {
        "takeover": {"waited": True, "taken_over": True, "seconds": 0.5},
        "staged": {"left": 1, "young": 1, "after_a_minute": 0},
    },
    "bytes": {"one key": TRAFFIC, "many keys": TRAFFIC},
    "cap": {
        "run 1": {**TRAFFIC, "peak_bytes": 16_000, "cap_bytes": 16_000, "samples": 9, "least_stored_bytes": 16_001},
        "the page is lost": {
            **TRAFFIC,
            "peak_bytes": 16_000,
            "cap_bytes": 16_000,
            "samples": 9,
            "least_stored_bytes": 16_001,
            "accounted_bytes": 9001,
            "repaired_shards": ["shard 00: 1 bytes in 0 accounted for, 0 in 0 there"],
            "page_is_lost": True,
        },
    },
    "cut": {
        "cut_seconds": 22.0,
        "computed": {"what": "compute", "has_code": True, "computed": True},
        "wrote": {"what": "write", "gave": 3},
    },
    "restart": {"traffic": TRAFFIC},
    "neighbour": {
        "traded": {
            "hits": 9,
            "wrong": 0,
            "put_bytes": 900,
            "disk_bytes": 400,
            "cap_bytes": 400,
            "daemon_lives": True,
        }
    },
}
#: One number of each kind that breaks a promise: trial, where it stands, and the number.
BAD: list[tuple[str, tuple[Any, ...], Any]] = [
    ("calls", ("each", "open"), 9),
    ("calls", ("each", "put, its lock open"), 12.3),
    ("fleet", ("shared, first start", "computes"), 9),
    ("fleet", ("shared, next start", "wrong"), 1),
    ("seed", ("hits",), 639),
    ("visible", ("the shard is new", 1, "unverified"), 1),
    ("opened", ("at once",), 2),
    ("opened", ("entries",), 11),
    ("opened", ("repaired_shards",), ["shard 00: 1 bytes in 1 accounted for, 0 in 0 there"]),
    ("copied", ("before",), 0),
    ("copied", ("after",), 1),
    ("copied", ("entries",), 2),
    ("replaced", ("nobody", "old"), 1),
    ("replaced", ("removed while nobody", "old"), 1),
    ("herd", ("random order", "computes"), 9),
    ("kill", ("takeover", "taken_over"), False),
    ("kill", ("staged", "after_a_minute"), 1),
    ("bytes", ("many keys", "torn"), 1),
    ("cap", ("run 1", "peak_bytes"), 16_001),
    ("cap", ("run 1", "accounted_bytes"), 8999),
    ("cap", ("run 1", "repaired_shards"), ["shard 00: 1 bytes in 1 accounted for, 0 in 0 there"]),
    ("cap", ("run 1", "least_stored_bytes"), 16_000),
    ("cut", ("computed", "has_code"), False),
    ("cut", ("computed", "raised"), "OSError: [Errno 5]"),
    ("restart", ("traffic", "illegal_histories"), 1),
    ("neighbour", ("traded", "wrong"), 1),
    ("neighbour", ("traded", "disk_bytes"), 401),
]


def result_of(trial: str, numbers: dict[str, Any]) -> str:
    return json.dumps({"trial": trial, "seconds": 1.5, "numbers": numbers})


@pytest.mark.parametrize("trial", TRIALS)
def test_numbers_that_keep_every_promise_are_ok(trial: str) -> None:
    tried = parse_result(result_of(trial, GOOD[trial]))
    assert tried.ok
    assert tried.checks
    assert tried.as_json()["numbers"] == GOOD[trial]


@pytest.mark.parametrize("trial, where, number", BAD)
def test_one_number_that_breaks_a_promise_fails_one_line(trial: str, where: tuple[Any, ...], number: Any) -> None:
    numbers = json.loads(json.dumps(GOOD[trial]))
    place = numbers
    for name in where[:-1]:
        place = place[name]
    place[where[-1]] = number
    assert [check.ok for check in parse_result(result_of(trial, numbers)).checks].count(False) == 1


def test_every_trial_is_judged_and_has_a_run_in_the_guest() -> None:
    from lockcache_stress.hosts.guest.trials import RUNS

    assert list(RUNS) == list(TRIALS)
    assert {trial for trial, _, _ in BAD} == set(TRIALS)


def test_the_files_have_a_suite_for_each_trial_and_its_replay(tmp_path: Path) -> None:
    bad = {"nobody": {"old": 1, "reads": 3, "until_seconds": 0.5}}
    tried = [parse_result(result_of("kill", GOOD["kill"])), parse_result(result_of("replaced", bad))]
    page, results, numbers = (str(tmp_path / name) for name in ("page.html", "results.xml", "numbers.json"))
    making = _Making(tried, HostsOptions(("kill", "replaced"), nfs_version="3", lock_manager=False, seed=7))
    Files(page, results, numbers=numbers).write(making())
    document = ET.parse(results).getroot()
    assert [suite.get("name") for suite in document] == ["kill", "replaced"]
    assert [suite.get("failures") for suite in document] == ["0", "1"]
    assert "1 of 3 reads old" in Path(page).read_text()
    numbers_read = json.loads(Path(numbers).read_text())
    assert not numbers_read["ok"]
    assert numbers_read["file_system"] == "NFS 3 without a lock manager"
    of_juicefs = _Making([], HostsOptions(("herd",), "juicefs", mount_options="entry-cache=0", seed=7)).as_json()
    assert of_juicefs["file_system"] == "JuiceFS, entry-cache=0"
    assert " ".join(of_juicefs["replay"][2:]) == "--juicefs --mount-options entry-cache=0 --scenarios herd --seed 7"
    said = "--nfs-version 3 --no-lock-manager --scenarios kill,replaced --seed 7"
    assert " ".join(numbers_read["replay"][3:]) == said


def test_a_trial_that_raised_has_failed_by_its_last_line() -> None:
    line = json.dumps({"trial": "cap", "seconds": 3, "error": "Traceback\n  somewhere\nValueError: no\n"})
    tried = parse_result(line)
    assert not tried.ok
    assert [check.value for check in tried.checks] == ["ValueError: no"]
