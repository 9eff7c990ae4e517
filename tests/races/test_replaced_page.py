# SPDX-License-Identifier: Apache-2.0
"""A state page that is made again between a look at it and the lock: changes are accounted for on the new one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import StatePage
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.eviction import evict_to_limit
from lockcache.filestream.eviction.remove import remove_orphan_views
from lockcache.filestream.repair import empty_quarantine
from lockcache.filestream.repair.verify import verify_entry
from tests.races.steps import alongside, stop_before
from tests.state_pages import state_of
from tests.unit.material import on_disk

Cache = FileStreamProgramCache
NAME = entry_name(b"k")


def _damage(cache: Cache) -> None:
    path = cache._directory.layout.entry(NAME)
    with open(path, "r+b") as file:
        file.write(b"!")


def _quarantine(cache: Cache) -> None:
    _damage(cache)
    verify_entry(cache._directory, NAME, repair=True)


def _leave_view(cache: Cache) -> None:
    cache.put_files(b"k", {"a": b"a" * 5000})
    view = cache.view_files(b"k")
    assert view is not None
    del view
    os.unlink(cache._directory.layout.entry(NAME))


def _nothing(cache: Cache) -> None:
    pass


CHANGES: dict[str, tuple[Callable[[Cache], None], Callable[[Cache], object]]] = {
    "put": (_nothing, lambda cache: cache.__setitem__(b"k", b"y" * 20_000)),
    "del": (_nothing, lambda cache: cache.__delitem__(b"k")),
    "clear": (_nothing, lambda cache: cache.clear()),
    "eviction": (_nothing, lambda cache: evict_to_limit(cache._directory, 1)),
    "repair": (_damage, lambda cache: verify_entry(cache._directory, NAME, repair=True)),
    "quarantine": (_quarantine, lambda cache: empty_quarantine(cache._directory, waits=True)),
    "recount": (_nothing, lambda cache: cache.recount()),
    "orphan views": (_leave_view, lambda cache: remove_orphan_views(cache._directory)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_accounted_for_on_the_page_that_is_in_force_under_its_lock(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    prepare, act = CHANGES[change]
    one = FileStreamProgramCache(cache_path)
    one[b"k"] = b"x" * 9000
    prepare(one)
    shard = f"/{NAME[:2]}"
    stop = stop_before(monkeypatch, ProcessLock, "try_hold", lambda lock: lock.path.endswith(shard))
    with alongside(act, one) as acting:
        stop.wait_until_reached()
        state_of(cache_path).unlink()
        FileStreamProgramCache(cache_path).close()  # which makes the page again
        stop.go_on()
    acting.result()
    fresh = FileStreamProgramCache(cache_path)
    assert fresh.stats().bytes == on_disk(cache_path)[0]
    assert fresh.recount() == []


def test_on_a_network_file_system_a_write_that_saw_no_cap_is_counted_by_the_first_one(cache_path, monkeypatch):
    """Such a write reads the page once, before it reserves, and does not look for a cap again."""
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "lustre")
    with Cache(cache_path) as writer:
        writer["older"] = b"x" * 20_000
        stop = stop_before(monkeypatch, StatePage, "add_locked", lambda page, shard, bytes_, *_: bytes_ > 20_000)
        with alongside(writer.__setitem__, "k", b"y" * 30_000):
            stop.wait_until_reached()
            with Cache(cache_path, max_size_bytes=40_000, lock_timeout_seconds=0.1) as other:
                assert (other.get("older"), other.stats().bytes) == (None, 30_000)
            stop.go_on()
        assert writer["k"] == b"y" * 30_000
        assert (writer.stats().bytes, writer.stats().entries) == on_disk(cache_path) == (30_000, 1)
        assert writer.recount() == []
