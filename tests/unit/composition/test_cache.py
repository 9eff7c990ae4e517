# SPDX-License-Identifier: Apache-2.0
"""The arguments and properties of FileStreamProgramCache; how it behaves as a mapping is in tests/contract."""

from __future__ import annotations

import os
import pickle

import pytest

from lockcache import FileStreamProgramCache, InMemoryProgramCache, UnsafeCacheDirError
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.codec import XATTR, Record, pack
from tests.unit.forked import in_child
from tests.unit.material import on_disk


@pytest.mark.parametrize(
    "name, value, error",
    [
        *(("lock_timeout_seconds", value, ValueError) for value in (-1, float("nan"), float("inf"), 1e300)),
        *(("lock_timeout_seconds", value, TypeError) for value in ("5", None, True, [5])),
        *((name, value, TypeError) for name in ("fsync", "record_files") for value in ("no", 1, None)),
        *(("read_only", value, TypeError) for value in (None, 1, "yes", "Auto")),
    ],
)
def test_an_option_that_cannot_be_is_an_error_that_names_it(cache_path, name, value, error):
    with pytest.raises(error, match=name):
        FileStreamProgramCache(cache_path, **{name: value})
    assert not cache_path.exists()


def test_options_are_taken_by_name_only(cache_path):
    with pytest.raises(TypeError):
        FileStreamProgramCache(cache_path, 1000)
    with pytest.raises(TypeError):
        InMemoryProgramCache(1000)


def test_it_shows_its_path_and_the_cap_in_force(cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=5000) as cache:
        assert (cache.path, cache.max_size_bytes) == (str(cache_path), 5000)
        assert str(cache_path) in repr(cache)


def test_a_pickled_cache_keeps_every_option(cache_path):
    with FileStreamProgramCache(
        cache_path, max_size_bytes=5000, lock_timeout_seconds=1.5, fsync=True, record_files=True
    ) as cache:
        twin = pickle.loads(pickle.dumps(cache))
        expected = {"path": str(cache_path), "lock_timeout_seconds": 1.5, "fsync": True, "record_files": True}
        expected |= {"verified_only": False, "compile_once": False, "lease_timeout_seconds": None, "group": False}
        expected |= {"signing_key_file": False, "seed": None, "read_only": "auto"}
        assert twin._arguments == cache._arguments == expected
        assert twin.max_size_bytes == 5000
        twin.close()


def test_unpickling_checks_the_directory_like_opening(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        blob = pickle.dumps(cache)
    cache_path.chmod(0o777)
    with pytest.raises(UnsafeCacheDirError):
        pickle.loads(blob)


@pytest.mark.root
def test_a_directory_that_may_only_be_read_serves_hits_and_refuses_deletes(cache_path, tmp_path):
    """As somebody else: root, as whom such tests run, may write everywhere."""
    with FileStreamProgramCache(cache_path, max_size_bytes=5000) as cache:
        cache["k"] = b"code"
    for folder, _, files in os.walk(cache_path):
        os.chmod(folder, 0o755)
        for file in files:
            os.chmod(os.path.join(folder, file), 0o644)
    for parent in [tmp_path, *tmp_path.parents][:-2]:
        os.chmod(parent, os.stat(parent).st_mode | 0o011)

    def as_nobody():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        with FileStreamProgramCache(cache_path, max_size_bytes=100) as cache:
            for use in (lambda: cache.__delitem__("k"), cache.clear, cache.recount):
                with pytest.raises(PermissionError, match="only reads the directory"):
                    use()
            stats = cache.stats()
            return cache["k"], cache.get("absent"), len(cache), stats.bytes, stats.entries, cache.max_size_bytes

    assert in_child(as_nobody) == (b"code", None, 1, 4, 1, 5000)


@pytest.mark.skipif(os.getuid() != 0, reason="another user is acted for only as root")
def test_a_process_that_acts_for_another_user_is_served_as_that_one(cache_path):
    def with_root_as_the_effective_user_only():
        os.setresuid(65534, 0, 0)
        with FileStreamProgramCache(cache_path, max_size_bytes=5000) as cache:
            cache["k"] = b"first"
            cache["k"] = b"code"
            cache["other"] = b"x" * 5001
            reads = cache.get("absent"), cache.get("k"), cache.get("absent"), cache.get("k"), cache.get("other")
            return reads, cache.stats().dropped_writes, cache.stats().bytes

    reads, dropped_writes, accounted_bytes = in_child(with_root_as_the_effective_user_only)
    assert reads == (None, b"code", None, b"code", None)
    assert (dropped_writes, accounted_bytes) == (1, on_disk(cache_path).bytes)


def test_a_subclass_may_make_its_get_of_what_it_finds_by_key(cache_path):
    class WithItsOwnGet(FileStreamProgramCache):
        def get(self, key, default=b"its own"):
            try:
                return self[key]
            except KeyError:
                return default

    with WithItsOwnGet(cache_path) as cache:
        cache["k"] = b"code"
        assert (cache.get("k"), cache.get("absent"), cache["k"]) == (b"code", b"its own", b"code")
        with pytest.raises(KeyError):
            cache["absent"]


class Subclass(FileStreamProgramCache):
    """At module level, where pickle finds it."""


def test_a_pickled_subclass_comes_back_as_that_subclass(cache_path):
    assert type(pickle.loads(pickle.dumps(Subclass(cache_path)))) is Subclass


def test_unpickling_does_not_undo_a_cap_that_was_set_since(cache_path):
    early = pickle.dumps(FileStreamProgramCache(cache_path, max_size_bytes=1000))
    FileStreamProgramCache(cache_path, max_size_bytes=2000)
    assert pickle.loads(early).max_size_bytes == 2000


def test_metadata_of_a_codec_that_is_not_known_here_makes_the_entry_a_miss_and_the_code_stays_readable(cache_path):
    cache = FileStreamProgramCache(cache_path)
    name = entry_name(b"k")
    cache["k"] = b"code"
    path = cache_path / "entries" / name[:2] / name[2:]
    os.setxattr(path, XATTR, pack(name, b"code", Record(4, 1, 0, b'{"from the": "future"}')))
    assert cache.get_entry("k") is None
    assert cache["k"] == b"code"
