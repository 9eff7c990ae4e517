# SPDX-License-Identifier: Apache-2.0
"""A directory as a whole, looked at without a lock, next to writers, and without making anything."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting.state import Slot
from lockcache.filestream.disk.layout import SHARDS, Layout, entry_name
from lockcache.filestream.inspect import measure


@pytest.fixture
def layout(cache_path: Path) -> Layout:
    with FileStreamProgramCache(cache_path) as cache:
        cache["a"] = b"x" * 100
        cache["b"] = b"y" * 50
    return Layout(str(cache_path))


def test_what_is_accounted_for_is_what_is_measured(layout: Layout) -> None:
    assert measure.accounted(layout) == measure.measured(layout)
    assert measure.find_drift(layout) == (0, 0, 0, 0)


def test_an_entry_that_nobody_accounted_for_is_drift(layout: Layout) -> None:
    os.truncate(layout.entry(entry_name(b"a")), 130)
    os.unlink(layout.entry(entry_name(b"b")))
    assert measure.find_drift(layout) == (50 - 30, 1, 2, 0)


def test_a_shard_that_is_written_all_the_while_is_busy_and_no_drift(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = int(entry_name(b"a")[:2], 16)
    numbers = itertools.count(1000)

    def writing(layout: Layout) -> list[Slot]:
        slots = survey_accounted(layout)
        assert slots is not None
        slots[shard] = Slot(next(numbers), 1)
        return slots

    survey_accounted = measure.accounted
    monkeypatch.setattr(measure, "accounted", writing)
    assert measure.find_drift(layout) == (0, 0, 0, 1)


@pytest.mark.parametrize("plant", ["nothing", "short", "fifo", "directory", "symlink"])
def test_a_page_that_is_none_is_no_accounting_and_nothing_is_made(layout: Layout, plant: str, tmp_path: Path) -> None:
    page = Path(layout.state)
    (tmp_path / "page").write_bytes(page.read_bytes())
    page.unlink()
    {
        "nothing": lambda: None,
        "short": lambda: page.write_bytes(b"x"),
        "fifo": lambda: os.mkfifo(page),
        "directory": page.mkdir,
        "symlink": lambda: page.symlink_to(tmp_path / "page"),
    }[plant]()
    before = sorted(Path(layout.root).rglob("*"))
    assert measure.accounted(layout) is None
    calls: list[None] = []
    assert sum(slot.bytes for slot in measure.measured(layout, calls.append)) == 150
    assert len(calls) == SHARDS
    assert sorted(Path(layout.root).rglob("*")) == before


def test_writes_under_way_are_told_by_their_names(layout: Layout) -> None:
    Path(layout.tmp, "ab.700.0123456789abcdef.1.1.1").touch()
    assert measure.staged(layout) == (700, 1)


def test_what_is_beside_the_entries_is_listed_once_and_not_for_each_shard(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda path, *a, **k: (opened.append(path), real(path, *a, **k))[1])
    assert measure.find_drift(layout) == (0, 0, 0, 0)
    assert [opened.count(path) for path in (layout.tmp, layout.quarantine, layout.state)] == [1, 1, 2]
    measure.measured(layout)
    assert [opened.count(path) for path in (layout.tmp, layout.quarantine)] == [2, 2]
