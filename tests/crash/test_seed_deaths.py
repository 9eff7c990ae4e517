# SPDX-License-Identifier: Apache-2.0
"""Death in front of every call of a process that attaches, replaces, detaches, promotes or empties a seed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.bundle import promote
from lockcache.filestream.bundle import BundleFile
from lockcache.filestream.disk.layout import Layout
from lockcache_stress.experiments.kill_points import deaths
from tests.crash.measure import empty
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.filestream.seeds import make_due

KEYS = [b"key %d" % number for number in range(5)]
OLDER = {key: b"older " + key for key in KEYS}
NEWER = {key: b"newer " + key for key in KEYS}
CHANGES = ("mkdir", "pwrite", "rename", "unlink", "utime", "write")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write(tmp_path / "kernels.lcb", bundle_of(OLDER))


def _opened(root: Path, bundle: Path | None = None) -> FileStreamProgramCache:
    return FileStreamProgramCache(root, seed=bundle, lock_timeout_seconds=2)


@pytest.mark.long
def test_attaching(cache_path: Path, bundle: Path) -> None:
    def prepare() -> Callable[[], object]:
        empty(cache_path)
        return lambda: _opened(cache_path, bundle)

    died = 0
    for died_at in deaths(prepare, CHANGES):
        died += 1
        with _opened(cache_path) as other:
            assert {other.get(key) for key in KEYS} <= {None, *OLDER.values()}, died_at
        with _opened(cache_path, bundle) as cache:
            assert {key: cache[key] for key in KEYS} == OLDER, died_at
            cache.recount()
            assert cache.stats().entries == 0
        assert os.listdir(cache_path / "tmp") == [], died_at
    assert died > 5


def test_replacing(cache_path: Path, bundle: Path) -> None:
    reader: list[FileStreamProgramCache] = []

    def prepare() -> Callable[[], object]:
        empty(cache_path)
        write(bundle, bundle_of(OLDER))
        cache = _opened(cache_path, bundle)
        cache[KEYS[0]] = b"stored"
        del cache[KEYS[1]]
        reader[:] = [_opened(cache_path)]
        assert reader[0][KEYS[2]] == OLDER[KEYS[2]]
        write(bundle, bundle_of({**NEWER, b"more": b"more"}))
        make_due(cache_path)
        return lambda: _opened(cache_path, bundle)

    for died_at in deaths(prepare, CHANGES):
        for given in (None, bundle):
            if given:
                make_due(cache_path)
            with _opened(cache_path, given) as cache:
                assert cache[KEYS[0]] == b"stored"
                assert cache.get(KEYS[1]) in (None, NEWER[KEYS[1]]), died_at
                assert cache.get(KEYS[2]) in (None, OLDER[KEYS[2]], NEWER[KEYS[2]])
        assert cache[KEYS[2]] == reader[0][KEYS[2]] == NEWER[KEYS[2]], died_at


@pytest.mark.long
def test_removing_what_the_seed_has_too(cache_path: Path, bundle: Path) -> None:
    def prepare() -> Callable[[], object]:
        empty(cache_path)
        cache = _opened(cache_path, bundle)
        cache[KEYS[0]] = b"stored"
        return lambda: cache.__delitem__(KEYS[0])

    for died_at in deaths(prepare):
        with _opened(cache_path, bundle) as cache:
            assert cache.get(KEYS[0]) in (None, b"stored"), died_at
            assert cache[KEYS[1]] == OLDER[KEYS[1]]


def test_clearing(cache_path: Path, bundle: Path) -> None:
    def prepare() -> Callable[[], object]:
        empty(cache_path)
        return _opened(cache_path, bundle).clear

    for died_at in deaths(prepare, CHANGES):
        with _opened(cache_path) as cache:
            assert {cache.get(key) for key in KEYS} <= {None, *OLDER.values()}, died_at
            cache.clear()
            assert len(cache) == 0
        with _opened(cache_path, bundle) as cache:
            assert len(cache) == 0, died_at


@pytest.mark.long
def test_promoting(cache_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "promoted.lcb"
    with FileStreamProgramCache(cache_path) as cache:
        for key in KEYS:
            cache[key] = NEWER[key]

    def prepare() -> Callable[[], object]:
        write(path, bundle_of({KEYS[0]: OLDER[KEYS[0]], b"only there": b"stays"}))
        return lambda: promote(Layout(str(cache_path)), str(path))

    found = set()
    for died_at in deaths(prepare):
        bundle = BundleFile(str(path))
        assert not bundle.damage, died_at
        found.add(bundle.entries)
        promote(Layout(str(cache_path)), str(path))
        bundle = BundleFile(str(path))
        assert bundle.entries == 6, died_at
    assert found == {2, 6}
