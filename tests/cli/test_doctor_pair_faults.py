# SPDX-License-Identifier: Apache-2.0
"""The doctor of two hosts, over two mounts of one directory that show one fault each: it notices that and no other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.doctor import DEGRADED, NOTE, verdicts
from tests.cli.doctor_pair import certified, start_half
from tests.matrix_sampling import all_but

FAULTS = {
    "none": ({}, ""),
    "locks exclude nobody": ({"locks": DEGRADED}, "both hosts hold the same exclusive lock"),
    "locks outlive their holder": (
        {"locks": DEGRADED},
        "of a killed process is not free for the other host after 2.0 s",
    ),
    "creation excludes nobody": ({"exclusive creation": DEGRADED}, "of 96 files 96 were made by both hosts"),
    "missing names are remembered": (
        {"new names": NOTE},
        "not within 2.0 s, but at once when its folder is opened",
    ),
    "old files are remembered": (
        {"replaced files": NOTE},
        "not within 2.0 s, but at once when its folder is opened",
    ),
    "removed files are remembered": ({"removed files": NOTE}, "not within 2.0 s, but at once when its folder is"),
    "rename copies": ({"rename": DEGRADED}, "torn or mixed"),
    "pages are remembered": ({"open pages": NOTE}, "under a lock: not within 2.0 s; opened for each use: "),
    "open files are remembered": ({"open pages": NOTE}, "under a lock: not within 2.0 s; opened for each use: "),
}


# Two doctors on two file systems in Python take twenty seconds; of one doctor two faults are tried in `make test`.
@pytest.mark.root
@pytest.mark.parametrize("fault", all_but([], FAULTS))
def test_each_fault_between_two_hosts_is_noticed_and_no_other(
    fault: str, mount_faulty: Callable[..., Path], tmp_path: Path
) -> None:
    expected, said = FAULTS[fault]
    mounts = [mount_faulty(fault, server="faulty_client.py", backing=tmp_path / "server") for _ in range(2)]
    code, checks = certified(*(start_half(mount, "--json") for mount in mounts))
    worse = {name: verdict for name, verdict in expected.items() if verdict != NOTE}
    assert verdicts(checks) == worse, {name: checks[name]["found"] for name in verdicts(checks)}
    assert code == (1 if worse else 0)
    assert {name: checks[name]["verdict"] for name in expected} == expected
    assert said in checks[next(iter(expected), "two hosts")]["found"]
    assert checks["two hosts"]["verdict"] == checks["wake-ups"]["verdict"] == NOTE
    assert os.listdir(tmp_path / "server") == []


@pytest.mark.root
@pytest.mark.long
def test_attributes_that_one_host_lacks_are_degraded_and_that_both_lack_are_not(
    mount_faulty: Callable[..., Path], tmp_path: Path
) -> None:
    has, lacks, lacks_too = (
        mount_faulty(*faults, server="faulty_client.py", backing=tmp_path / "server")
        for faults in ([], ["no attributes"], ["no attributes"])
    )
    code, checks = certified(start_half(has, "--json"), start_half(lacks, "--json"))
    assert (code, verdicts(checks)) == (1, {"attributes": DEGRADED})
    code, checks = certified(start_half(lacks_too, "--json"), start_half(lacks, "--json"))
    assert (code, checks["attributes"]["verdict"]) == (0, NOTE)
