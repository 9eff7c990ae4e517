# SPDX-License-Identifier: Apache-2.0
"""Scrubbing pyptx's directories: what lockcache's adapter stored is verified, what pyptx wrote is left alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.repair.verify import Verdict
from lockcache.layouts import pyptx as entries
from lockcache.layouts.pyptx import PyptxEntries, PyptxGuest
from lockcache_daemon.scrub import scrub as scrubbing
from lockcache_daemon.scrub.scrub import Scrub
from lockcache_daemon.settings.rules import Rules
from tests.crash.damage import DAMAGES
from tests.daemon.daemon_process import run_daemon
from tests.daemon.pyptx_crowd import entry_of, store
from tests.unit.integrations.pyptx_format import write_entry

COUNT = 20


@pytest.fixture
def files(cache_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PyptxGuest]:
    monkeypatch.setattr(scrubbing, "_DUTY", 10**9)
    monkeypatch.setattr(entries, "_SETTLED_SECONDS", 0.0)
    store(cache_path, range(COUNT))
    files = PyptxGuest(str(cache_path), 0.02)
    files.prepare()
    yield files
    files.close()


def run_a_round(files: PyptxGuest, found: Callable[[Verdict], object] = lambda verdict: None) -> dict[str, int]:
    scrub = Scrub(PyptxEntries(files), 10**12, Rules(interval_seconds=0.05), found)
    while not scrub.tick(lambda: False):
        pass
    scrub.close()
    return scrub.total.states


def a_file(files: PyptxGuest, suffix: str) -> Path:
    return sorted(Path(files.root).glob(f"*.{suffix}"))[0]


def test_entries_of_ours_are_whole_and_of_pyptx_unverified(files: PyptxGuest) -> None:
    write_entry(Path(files.root), entry_of(COUNT))
    assert run_a_round(files) == {"whole": COUNT, "unverified": 1}
    assert len(files.names()) == COUNT + 1


@pytest.mark.parametrize("suffix", ["ptx", "cubin"])
@pytest.mark.parametrize("damage", ["last bit flipped", "truncated to half", "truncated to nothing"])
def test_a_corrupt_entry_goes_with_all_of_its_files(files: PyptxGuest, damage: str, suffix: str) -> None:
    path = a_file(files, suffix)
    DAMAGES[damage](path)
    found: list[Verdict] = []
    states = run_a_round(files, found.append)
    assert states == {"whole": COUNT - 1, "corrupt": 1}
    assert [verdict.name for verdict in found] == [path.stem]
    assert not list(Path(files.root).glob(f"{path.stem}.*"))


def test_a_file_that_became_a_hole_of_a_terabyte_is_damage(files: PyptxGuest) -> None:
    os.truncate(a_file(files, "ptx"), 1 << 40)
    assert run_a_round(files) == {"whole": COUNT - 1, "corrupt": 1}


def test_looking_is_no_use(files: PyptxGuest) -> None:
    for path in Path(files.root).glob("*.*"):
        os.utime(path, (1000, 1000))
    run_a_round(files)
    assert {path.stat().st_atime for path in Path(files.root).glob("*.*")} == {1000}


def test_what_was_only_just_written_is_passed_over(files: PyptxGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_SETTLED_SECONDS", 60.0)
    DAMAGES["last bit flipped"](a_file(files, "ptx"))
    assert run_a_round(files) == {"passed over": COUNT}


def test_what_its_writer_has_locked_is_passed_over(files: PyptxGuest) -> None:
    path = a_file(files, "ptx")
    DAMAGES["last bit flipped"](path)
    busy = ProcessLock(f"{files.layout.locks}/{path.name[0]}", 1.0)
    with busy:
        assert run_a_round(files) == {"whole": COUNT - 1, "passed over": 1}
    busy.close()
    assert run_a_round(files) == {"whole": COUNT - 1, "corrupt": 1}


@pytest.mark.slow
def test_once_with_scrub_verifies_a_directory_of_pyptx_too(cache_path: Path) -> None:
    store(cache_path, range(COUNT))
    done = run_daemon("--max-size", "1G", "--once", "--scrub", cache_path)
    assert done.returncode == 0
    assert f"verified {COUNT} entries" in done.stdout
