# SPDX-License-Identifier: Apache-2.0
"""The doctor on file systems with one fault each: it notices that one and no other, and never hangs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.doctor import DEGRADED, UNTESTED, UNUSABLE, examined, verdicts
from tests.matrix_sampling import all_but

FAULTS = {
    "none": ({}, "passthrough"),
    "locks exclude nobody": ({"locks": DEGRADED}, "two processes hold the same exclusive lock"),
    "no attributes": ({"attributes": DEGRADED}, "none"),
    "times cannot be set": ({"times": DEGRADED, "clock": UNTESTED, "group": UNTESTED}, "cannot be set"),
    "times in steps of two seconds": ({"times": DEGRADED}, "steps of 2 s"),
    "everybody may write": ({"writing": UNUSABLE, "safety": UNUSABLE, "a real cache": UNUSABLE}, "lets others write"),
    "clock an hour ahead": ({"clock": DEGRADED}, "+3600"),
    "rename copies": ({"rename": DEGRADED, "a real cache": UNUSABLE}, "a process that had the old file open read"),
    "fsync fails": ({"fsync": DEGRADED, "a real cache": UNUSABLE}, "Input/output error"),
    "everybody may read": ({"writing": DEGRADED}, "0755"),
    "locks stay taken": ({"locks": DEGRADED}, "was released stays taken"),
    "locks outlive their holder": ({"locks": DEGRADED}, "killed process is not free after 2 s"),
    "others see the file that was replaced": ({"rename": UNUSABLE}, "another process read"),
    "creation excludes nobody": ({"exclusive creation": DEGRADED}, "200 of 200 files were made by both"),
    "EPERM for a name that is there": ({"exclusive creation": DEGRADED}, "EPERM instead of EEXIST"),
    "new names stay missing": ({"new names": DEGRADED}, "missing for more than 2 s"),
    "only the owner sets times": ({"group": DEGRADED}, "Operation not permitted"),
    "times of others do not stick": ({"group": DEGRADED}, "without effect"),
    "files cannot be given away": ({"group": UNTESTED}, "cannot be made here"),
}


@pytest.mark.root
@pytest.mark.parametrize("fault", all_but(["no attributes"], FAULTS))
def test_each_fault_of_a_file_system_is_noticed_and_no_other(fault: str, mount_faulty: Callable[..., Path]) -> None:
    expected, said = FAULTS[fault]
    path = mount_faulty(fault)
    code, checks = examined(path)
    assert verdicts(checks) == expected, {name: checks[name]["found"] for name in verdicts(checks)}
    assert code == (2 if UNUSABLE in expected.values() else 1 if DEGRADED in expected.values() else 0)
    assert said in checks[next(iter(expected), "file system")]["found"]
    assert checks["file system"]["measured"]["kind"] == "fuse"
    assert os.listdir(path) == []
    if fault in ("locks stay taken", "locks outlive their holder"):
        assert "dropped" in checks["locks"]["means"]
        assert "approximate" not in checks["locks"]["means"], "nobody gets in, rather than everybody"


@pytest.mark.root
@pytest.mark.long
def test_a_file_system_that_refuses_to_lock_is_unusable(mount_faulty: Callable[..., Path]) -> None:
    code, checks = examined(mount_faulty("locks refuse"))
    assert code == 2
    assert checks["locks"]["verdict"] == UNUSABLE
    assert checks["a real cache"]["verdict"] == UNUSABLE


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(100)
def test_a_dead_server_is_reported_and_nobody_waits_for_it(mount_faulty: Callable[..., Path]) -> None:
    code, checks = examined(mount_faulty("hangs"), "--timeout", "1s")
    assert code == 2
    hanging = [check for check in checks.values() if "the file system hangs" in check["found"]]
    assert len(hanging) == 2
    assert all(check["verdict"] == UNUSABLE for check in hanging)
