# SPDX-License-Identifier: Apache-2.0
"""The store of another program's directory: a sweep begins with what the walk before it found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache.layouts import GUESTS, triton
from lockcache.lowlevel import Goal
from lockcache_daemon.settings.rules import Rules
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores import ForeignStore, foreign
from tests.daemon.triton_format import fill, key_of, keys_on_disk


@pytest.fixture
def store(cache_path: Path) -> Iterator[ForeignStore]:
    fill(cache_path, range(40))
    stop = StopSignals()
    opened = ForeignStore(GUESTS["triton"], str(cache_path), Rules(settle_seconds=0.001), stop)
    opened.begin()
    yield opened
    opened.close()
    with stop:
        pass  # closes its sockets


def test_the_first_victim_goes_before_anything_is_walked_again(
    store: ForeignStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.files, "scan", None)
    assert store.sweep(Goal(limit_entries=30)).entries == 10


def test_the_least_recently_used_go_where_a_walk_keeps_fewer_than_there_are(
    cache_path: Path, store: ForeignStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "_READING_SECONDS", 0.0)
    monkeypatch.setattr(foreign, "_MOST_KEPT", 7)
    store.begin()
    evicted = [store.sweep(Goal(limit_entries=20)).entries]
    while evicted[-1]:
        store.count_again()
        evicted.append(store.sweep(Goal(limit_entries=20)).entries)
    assert evicted == [7, 7, 6, 0]
    assert keys_on_disk(cache_path) == {key_of(number) for number in range(20, 40)}


def test_evicted_keys_leave_the_disk_while_the_eviction_goes_on(
    cache_path: Path, store: ForeignStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "_READING_SECONDS", 0.0)
    left: list[int] = []
    evict = store.files.evict
    monkeypatch.setattr(
        store.files, "evict", lambda found: left.append(len(list(cache_path.iterdir()))) or evict(found)
    )
    monkeypatch.setattr(store.files, "evicting_threads", 1)
    store.sweep(Goal(limit_entries=0))
    assert left == sorted(left, reverse=True)
    assert left[-1] < left[0]
