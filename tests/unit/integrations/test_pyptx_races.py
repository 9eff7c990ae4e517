# SPDX-License-Identifier: Apache-2.0
"""Races between two steps of a reader of a pyptx directory: each order is forced, none is waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockcache.integrations.pyptx import CacheEntry, CubinCache
from lockcache.integrations.pyptx_directory import files as pyptx_files
from tests.unit.integrations.pyptx_format import ENTRY, KEY, PTX, file, folder, write_entry

NEWER = replace(ENTRY, ptx_source="newer", cubin_bytes=b"newer")


@pytest.fixture
def before_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], object]], None]:
    """Has something done after a reader read a json file and before it reads PTX and cubin, given the number so far."""

    def have_done(act: Callable[[int], object]) -> None:
        real, looks = pyptx_files.load_with, iter(range(100))

        def load_with(*arguments: Any) -> Any:
            act(next(looks))
            return real(*arguments)

        monkeypatch.setattr(pyptx_files, "load_with", load_with)

    return have_done


def test_a_reader_that_meets_a_writer_looks_again_and_gets_the_newer_entry(
    cache: CubinCache, fresh: Callable[[], CubinCache], before_the_rest_is_read: Callable[..., None]
) -> None:
    cache.put(ENTRY)
    before_the_rest_is_read(lambda number: cache.put(NEWER) if number == 0 else None)
    reader = fresh()
    assert reader.get(KEY) == NEWER
    assert (reader.stats().hits, reader.stats().corrupt_entries) == (1, 0)


def test_a_reader_that_meets_a_writer_each_time_misses_and_calls_nothing_damaged(
    cache: CubinCache, fresh: Callable[[], CubinCache], before_the_rest_is_read: Callable[..., None]
) -> None:
    cache.put(ENTRY)
    before_the_rest_is_read(lambda number: cache.put(replace(NEWER, ptx_source=f"{number}")))
    reader = fresh()
    assert reader.get(KEY) is None
    assert (reader.stats().misses, reader.stats().corrupt_entries) == (1, 0)


def test_a_reader_of_an_entry_of_pyptxs_does_not_take_another_reader_for_its_writer(
    foreign: Path, fresh: Callable[[], CubinCache], before_the_rest_is_read: Callable[..., None]
) -> None:
    theirs = replace(ENTRY, ptx_source="theirs", metadata={})
    write_entry(foreign, theirs)
    before_the_rest_is_read(lambda _: os.utime(file(foreign, "json")))  # what each hit states
    assert fresh().get(KEY) == theirs


def test_an_entry_that_is_evicted_once_it_is_read_is_still_a_hit(
    cache: CubinCache, fresh: Callable[[], CubinCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put(ENTRY)
    real = pyptx_files.load_with

    def read_then_evict(*arguments: Any) -> Any:
        loaded = real(*arguments)
        cache.clear(disk=True)
        return loaded

    monkeypatch.setattr(pyptx_files, "load_with", read_then_evict)
    reader = fresh()
    assert reader.get(KEY) == ENTRY
    assert reader.stats().entries == 0


def test_what_this_process_puts_while_it_reads_is_not_forgotten_for_what_it_read(
    cache: CubinCache, fresh: Callable[[], CubinCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put(ENTRY)
    reader, real = fresh(), pyptx_files.load_with

    def read_then_put(*arguments: Any) -> Any:
        loaded = real(*arguments)
        reader.put(NEWER)
        return loaded

    monkeypatch.setattr(pyptx_files, "load_with", read_then_put)
    assert reader.get(KEY) == ENTRY
    monkeypatch.undo()
    assert reader.get(KEY) is NEWER


@pytest.mark.parametrize("entry", [NEWER, replace(ENTRY, cubin_bytes=None)])
def test_a_directory_in_the_place_of_a_file_makes_a_put_stay_in_memory_and_stays(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache], entry: CacheEntry
) -> None:
    cache.put(ENTRY)
    folder(file(directory, "json"))
    cache.put(entry)
    assert cache.get(KEY) is entry
    assert (cache.stats().dropped_writes, fresh().get(KEY)) == (1, None)
    assert file(directory, "json").is_dir()
    assert file(directory, "ptx").read_bytes() == PTX.encode()
    assert list((directory / "lockcache" / "staged").iterdir()) == []
