# SPDX-License-Identifier: Apache-2.0
"""The older entry while it is replaced: where it is read from, and what becomes of it when the writer never ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockcache.integrations.pyptx import CacheEntry, CubinCache
from lockcache.integrations.pyptx_directory.backup import keep_locked
from lockcache.integrations.pyptx_directory.files import PyptxFiles
from tests.unit.integrations.pyptx_format import ENTRY, KEY, NAME, file, flip

NEWER = replace(ENTRY, ptx_source="newer", cubin_bytes=b"newer")


OTHER = CacheEntry(replace(KEY, arch="sm_80"), "other", None)


@pytest.fixture
def staged(directory: Path) -> Path:
    return directory / "lockcache" / "staged"


@pytest.fixture
def begin(cache: CubinCache, directory: Path) -> Callable[[CacheEntry], None]:
    """Has an entry stored, and a writer do the first half of replacing it, which is where it dies."""

    def begin(entry: CacheEntry = ENTRY) -> None:
        cache.put(entry)
        files = PyptxFiles(str(directory))
        keep_locked(files._main, files._kept, NAME)
        for suffix in ("json", "cubin", "ptx"):
            file(directory, suffix).unlink(missing_ok=True)
        file(directory, "cubin").write_bytes(b"of the next")

    return begin


@pytest.mark.parametrize("entry", [ENTRY, replace(ENTRY, cubin_bytes=None)])
def test_an_entry_that_is_being_replaced_is_read(
    begin: Callable[..., None], fresh: Callable[[], CubinCache], entry: CacheEntry
) -> None:
    begin(entry)
    reader = fresh()
    assert [reader.get(KEY), reader.get(KEY)] == [entry, entry]  # from the disk, then from memory
    assert (reader.stats().hits, reader.stats().corrupt_entries) == (2, 0)


def test_memory_is_not_served_in_place_of_a_newer_entry_that_is_being_replaced(
    begin: Callable[..., None], fresh: Callable[[], CubinCache]
) -> None:
    reader = fresh()
    reader.put(replace(ENTRY, ptx_source="oldest"))
    begin()
    assert reader.get(KEY) == ENTRY


def test_one_that_is_kept_and_damaged_is_a_miss(
    begin: Callable[..., None], staged: Path, fresh: Callable[[], CubinCache]
) -> None:
    begin()
    flip(staged / f"{NAME}.ptx.kept")
    reader = fresh()
    assert reader.get(KEY) is None
    assert reader.stats().corrupt_entries == 1


def test_what_was_kept_a_moment_ago_is_left_to_its_writer(
    begin: Callable[..., None], staged: Path, fresh: Callable[[], CubinCache]
) -> None:
    begin()
    fresh().put(OTHER)
    assert len(list(staged.iterdir())) == 3
    assert fresh().get(KEY) == ENTRY


@pytest.mark.parametrize("remove", ["clear", "evict", "discard"])
def test_what_is_removed_is_gone_in_both_places(
    cache: CubinCache, directory: Path, staged: Path, fresh: Callable[[], CubinCache], remove: str
) -> None:
    cache.put(ENTRY)
    files = PyptxFiles(str(directory))
    keep_locked(files._main, files._kept, NAME)
    if remove == "clear":
        cache.clear(disk=True)
    elif remove == "evict":
        assert files.evict(next(iter(files.scan())))
    else:
        files.discard(NAME)
    assert fresh().get(KEY) is None
    assert list(staged.iterdir()) == []


def test_without_hard_links_an_entry_is_replaced_all_the_same(
    cache: CubinCache, staged: Path, fresh: Callable[[], CubinCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake: no file system that lacks them can be had without root and its tools."""

    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    cache.put(ENTRY)
    monkeypatch.setattr(os, "link", link)
    cache.put(NEWER)
    assert fresh().get(KEY) == NEWER
    assert cache.stats().dropped_writes == 0
    assert list(staged.iterdir()) == []
