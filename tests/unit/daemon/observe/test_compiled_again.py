# SPDX-License-Identifier: Apache-2.0
"""Misses of programs that had been stored before are counted: each once, and in bounded memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.disk.layout import Layout
from lockcache_daemon.observe import compiled_again
from lockcache_daemon.observe.compiled_again import CompiledAgain
from tests.unit.material import entry_path


def compiled(path: Path, *keys: bytes) -> None:
    """A program that stores kernels under these keys, one after the other, and ends."""
    with FileStreamProgramCache(path) as cache:
        for key in keys:
            state(key, {"compiler": "nvrtc 13.5", "source": key.decode()}, "kernel")
            cache[key] = b"code"


@pytest.fixture
def counting(cache_path: Path) -> CompiledAgain:
    compiled(cache_path, b"first")
    return CompiledAgain(Layout(str(cache_path)))


def counted(counting: CompiledAgain) -> int:
    """Returns the count of all that was reported by now."""
    counting._look_due = 0.0
    counting.tick()
    return counting.count


def test_a_new_program_does_not_count_and_one_that_was_evicted_counts_once(
    counting: CompiledAgain, cache_path: Path
) -> None:
    assert counted(counting) == 0
    compiled(cache_path, b"new")
    assert counted(counting) == 0
    with FileStreamProgramCache(cache_path) as cache:
        del cache[b"new"]
    compiled(cache_path, b"new")
    assert counted(counting) == 1
    assert counted(counting) == 1


def test_an_entry_that_lost_its_record_was_stored_before(counting: CompiledAgain, cache_path: Path) -> None:
    os.removexattr(entry_path(cache_path, b"first"), "user.lockcache")
    compiled(cache_path, b"first")
    assert counted(counting) == 1


def test_misses_are_read_only_when_they_are_due(counting: CompiledAgain, cache_path: Path) -> None:
    counting.tick()
    os.removexattr(entry_path(cache_path, b"first"), "user.lockcache")
    compiled(cache_path, b"first")
    counting.tick()
    assert counting.count == 0


def test_names_are_remembered_up_to_a_bound(
    counting: CompiledAgain, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_again, "_MOST_NAMES", 3)
    for number in range(5):
        compiled(cache_path, b"%d" % number)
        counted(counting)
    assert len(counting._names) == 3
