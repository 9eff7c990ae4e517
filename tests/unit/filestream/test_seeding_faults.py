# SPDX-License-Identifier: Apache-2.0
"""A seed where something is wrong: what a death left, what is in the way, what others hold, and damaged policies."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.policy import Policy, Seed
from lockcache.filestream.seeding import attaching, copying
from tests.threads import running
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.filestream.seeds import KEYS, OLDER
from tests.unit.material import open_directory


@pytest.fixture
def cache(seeded: FileStreamProgramCache) -> FileStreamProgramCache:
    return seeded


def test_what_takes_no_room_evicts_nothing_and_is_read_once(cache_path: Path, tmp_path: Path) -> None:
    content = bundle_of({b"%d" % number: os.urandom(10_000) for number in range(40)})
    damaged = write(tmp_path / "damaged.lcb", content[:-100] + b"x" * 36 + content[-64:])
    with FileStreamProgramCache(cache_path, max_size_bytes=1_000_000) as cache:
        for number in range(200):
            cache[b"own %d" % number] = os.urandom(9_000)
        held = cache.stats()
        for _ in range(3):
            FileStreamProgramCache(cache_path, seed=damaged).close()
        assert (cache.stats().bytes, cache.stats().entries) == (held.bytes, held.entries)
    assert open_directory(cache_path).policy.current().seed.is_detached  # it is not tried again before it is another


def test_where_what_is_in_use_leaves_no_room_there_is_no_seed(cache_path: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "large.lcb", bundle_of({b"%d" % number: os.urandom(10_000) for number in range(40)}))
    with FileStreamProgramCache(cache_path, max_size_bytes=1_000_000) as cache:
        for number in range(8):
            cache.put_files(b"%d" % number, {"x": os.urandom(50_000)})
        held = [cache.view_files(b"%d" % number) for number in range(8)]
        assert all(held)
        FileStreamProgramCache(cache_path, seed=path).close()
        taken = sum(file.stat().st_size for file in cache_path.rglob("*") if file.is_file())
        assert taken <= 1_000_000
        assert not os.path.lexists(Layout(str(cache_path)).seed)


def test_policy_and_seed_are_written_at_once_and_neither_is_lost(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()

    def set_all(is_cap: bool) -> None:
        directory = open_directory(cache_path)
        for number in range(1, 101):
            if is_cap:
                directory.policy.replace(Policy(number * 1000, by_operator=True))
            else:
                directory.policy.replace_seed(Seed(f"/seed/{number}", number, "1.2"))

    with running(set_all, [(True,), (False,)]):
        pass
    policy = open_directory(cache_path).policy.current()
    assert (policy.max_size_bytes, policy.by_operator) == (100_000, True)
    assert policy.seed == Seed("/seed/100", 100, "1.2")


def test_a_path_that_another_member_wrote_is_not_followed(cache_path: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("secret" * 100)
    private.chmod(0o600)
    other = write(tmp_path / "private.lcb", bundle_of(OLDER))
    FileStreamProgramCache(cache_path, group=True).close()
    for path in (private, other):
        for by_operator in (False, True):
            directory = CacheDirectory(str(cache_path), 5.0, group=True)
            directory.policy.replace_seed(Seed(str(path), 5, "", by_operator))
            for given in (None, tmp_path / "mine.lcb"):
                FileStreamProgramCache(cache_path, group=True, seed=given).close()
                assert not os.path.lexists(Layout(str(cache_path)).seed)
    with FileStreamProgramCache(cache_path, group=True, seed=private) as cache:
        assert cache.get(KEYS[0]) is None
    assert not [file for file in cache_path.rglob("*") if file.is_file() and b"secret" in file.read_bytes()]
    directory = CacheDirectory(str(cache_path), 5.0, group=True)
    directory.policy.replace_seed(None)
    with FileStreamProgramCache(cache_path, group=True, seed=other) as cache:
        assert cache[KEYS[0]] == OLDER[KEYS[0]]
        del cache[KEYS[0]]
        assert cache.get(KEYS[0]) is None


def test_a_process_that_waits_no_longer_for_the_copy_reads_it_once_it_is_there(
    cache_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_copy, impatient = copying._copy, []

    def copy(*arguments: Any) -> object:
        impatient.append(FileStreamProgramCache(cache_path, seed=bundle))
        assert impatient[0].get(KEYS[0]) is None
        return real_copy(*arguments)

    monkeypatch.setattr(attaching, "_LONGEST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(copying, "_copy", copy)
    with FileStreamProgramCache(cache_path, seed=bundle):
        assert impatient[0][KEYS[0]] == OLDER[KEYS[0]]


def test_a_copy_that_begins_while_a_process_waits_for_the_lock_is_read_too(
    cache_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy names the seed only after the process that waits has read the policy."""
    real_lock, real_replace, impatient = attaching.seed_lock, attaching.replace_copy, []

    def replace_copy(directory: CacheDirectory, source_fd: int, size_bytes: int, wanted: Seed) -> object:
        def lock_of_what_is_named_by_now(*arguments: Any) -> object:
            directory.policy.replace_seed(replace(wanted, bytes=1, version=""))
            return real_lock(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(attaching, "seed_lock", lock_of_what_is_named_by_now)
            impatient.append(FileStreamProgramCache(cache_path, seed=bundle))
        return real_replace(directory, source_fd, size_bytes, wanted)

    monkeypatch.setattr(attaching, "_LONGEST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(attaching, "replace_copy", replace_copy)
    with FileStreamProgramCache(cache_path, seed=bundle):
        assert impatient[0][KEYS[0]] == OLDER[KEYS[0]]
