# SPDX-License-Identifier: Apache-2.0
"""The entries whose keys differ in the fewest parts from one key's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.entry import find_records
from lockcache.filestream.inspect.describe import find_entry, read_statement
from lockcache.filestream.inspect.nearest import Search, Subject, consider_all, consider_seed, find_nearest

PARTS = {"compiler": "NVRTC 13.5", "option arch": "sm_90", "code": "c" * 80, "define A": "1"}
FIRST, FAR, LAST = (entry_name(key) for key in (b"first", b"far", b"last"))


@pytest.fixture(params=[False, True], ids=["attribute", "record-files"])
def layout(cache_path: Path, request: pytest.FixtureRequest) -> Layout:
    changes = {"first": {}, "far": {"compiler": "NVRTC 13.4", "define A": "2"}, "last": {"option arch": "sm_100"}}
    with FileStreamProgramCache(cache_path, record_files=request.param) as cache:
        for key, changed in changes.items():
            state(key.encode(), {**PARTS, **changed}, "saxpy")
            cache[key] = b"code"
    return Layout(str(cache_path))


class Seed:
    """Serves one entry of a directory, and one whose record cannot be read."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def names(self) -> Iterable[str]:
        return [FIRST, FAR]

    def record(self, name: str) -> tuple[bytes, int] | None:
        return (b"".join(find_records(self._layout, self._layout.entry(name), name)), 4) if name == FIRST else None


def test_what_was_stored_before_and_shares_most_parts_is_nearest(layout: Layout) -> None:
    found = find_entry(layout, LAST)
    assert found is not None
    last = read_statement(layout, found)
    assert last.parts is not None
    [nearest] = find_nearest(layout, [Subject(LAST, last.parts, last.created_ns or 0)], 2)
    assert ([each.name for each in nearest.neighbours], nearest.looked_at) == ([FIRST, FAR], 3)
    assert [len(each.differences) for each in nearest.neighbours] == [1, 3]
    search = Search(LAST, last.parts, 2)
    assert sum(1 for _ in consider_all(layout, [search])) == 3
    assert [each.name for each in search.found(layout, last.created_ns or 0)] == [FIRST, FAR]
    assert search.found(layout, 0) == []
    assert [each.name for each in search.found(layout, 0, or_later=True)] == [FIRST, FAR]


@pytest.mark.parametrize("layout", [True], indirect=True, ids=["record-files"])
def test_an_entry_of_the_seed_is_compared_by_its_record(layout: Layout, tmp_path: Path) -> None:
    found = find_entry(layout, LAST)
    assert found is not None
    parts = read_statement(layout, found).parts
    assert parts is not None
    search, seed = Search(LAST, parts), Seed(layout)
    assert list(consider_seed([search], seed)) == [True, False]
    [neighbour] = search.found(Layout(str(tmp_path / "empty")), 2**62, seed=seed)
    assert (neighbour.name, neighbour.is_seeded) == (FIRST, True)


def test_the_same_source_is_kept_before_more_parts_of_another() -> None:
    pieces = [json.dumps([name, value, value], separators=(",", ":"))[1:-1].encode() for name, value in PARTS.items()]
    search = Search(LAST, [(name, value, value) for name, value in PARTS.items()])
    for number in range(20):
        search.consider(f"{number:064x}", [pieces[0], pieces[1], pieces[3]])
    search.consider(FIRST, [pieces[2]])
    search.consider(FAR, [b"another"])
    assert FIRST in [name for _, name in search._best]
    assert FAR not in [name for _, name in search._best]
