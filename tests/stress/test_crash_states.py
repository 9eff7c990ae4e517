# SPDX-License-Identifier: Apache-2.0
"""Power cuts without a power cut: every disk that one may leave of an operation is built, and keeps all promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockcache_stress.crash_states.cases import CASES, PLANTED_CUTS
from lockcache_stress.crash_states.disks import Disk, File, after_cuts, steps_of
from lockcache_stress.crash_states.traced import Change
from tests.matrix_sampling import all_but
from tests.stress.support import stress_json


@pytest.mark.slow
def test_after_every_power_cut_in_a_replacement_all_promises_hold(run_path: Path) -> None:
    found = stress_json("crash-states", "replace", "cap", "--jobs", "2", run_path=run_path)
    assert found["ok"]
    by = {(each["case"], each["promise"], each["fsync"]): each for each in found["cases"]}
    assert len(by) == 8
    assert set(by["replace", "posix", True]["served"]) == {"older", "key-0"}
    assert "nothing" in by["replace", "posix", False]["served"]
    assert by["replace", "posix", False]["states"] > 50


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("replace", "cap")])
def test_after_every_power_cut_all_promises_hold(name: str, run_path: Path) -> None:
    found = stress_json("crash-states", name, run_path=run_path, timeout=880)
    assert found["ok"], _wrong(found)


@pytest.mark.parametrize("name", all_but(["no-digest"], PLANTED_CUTS))
def test_a_planted_fault_is_found(name: str, run_path: Path) -> None:
    found = stress_json("crash-states", "--plant", name, run_path=run_path, code=1)
    assert any("is served where" in each for each in _wrong(found))


def _wrong(found: dict[str, Any]) -> list[str]:
    return [why for each in found["cases"] for why in each["wrong"]]


def _disks(promise: str, *changes: Change, returned: bool = True) -> list[tuple[Any, ...]]:
    disk = Disk({"tmp", "entries"}, {"entries/a": 0}, {0: File(b"older")})
    return [each.visible() for each in after_cuts(disk, steps_of(disk, changes), promise, returned=returned)]


def test_a_journal_keeps_the_order_of_names_and_posix_does_not() -> None:
    changes = Change("open", ("tmp/1",)), Change("open", ("tmp/2",))
    names = [{path for path, *_ in each if path.startswith("tmp/")} for each in _disks("journal", *changes)]
    assert sorted(map(sorted, names)) == [[], ["tmp/1"], ["tmp/1", "tmp/2"]]
    assert {"tmp/2"} in [{path for path, *_ in each if path.startswith("tmp/")} for each in _disks("posix", *changes)]


def test_what_was_synced_is_there_and_a_name_only_with_its_folder() -> None:
    written = Change("open", ("tmp/1",)), Change("write", ("tmp/1",), b"x" * 2000), Change("fsync", ("tmp/1",))
    renamed = Change("rename", ("tmp/1", "entries/a"))
    left = _disks("posix", *written, renamed)
    assert {content for each in left for path, content, _ in each if path == "entries/a"} == {b"older", b"x" * 2000}
    synced = _disks("posix", *written, renamed, Change("fsync", ("entries",)))
    assert {content for each in synced for path, content, _ in each if path == "entries/a"} == {b"x" * 2000}


def test_bytes_that_were_not_synced_may_be_cut_off_or_zeros() -> None:
    changes = Change("open", ("tmp/1",)), Change("write", ("tmp/1",), b"x" * 2000)
    contents = {content for each in _disks("journal", *changes) for path, content, _ in each if path == "tmp/1"}
    assert contents == {b"", b"x" * 512, b"x" * 2000, bytes(2000)}
