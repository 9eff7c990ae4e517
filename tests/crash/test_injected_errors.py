# SPDX-License-Identifier: Apache-2.0
"""Errors of a broken disk or a shared file system, injected: a miss or a dropped write, never an exception."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import state

KEY, OLD, NEW = b"key", b"old" * 3000, b"new" * 4000


def _entry(root: Path) -> str:
    name = hashlib.sha256(KEY).hexdigest()
    return f"{root}/entries/{name[:2]}/{name[2:]}"


def _filled(root: Path) -> None:
    with FileStreamProgramCache(root) as cache:
        cache[KEY] = OLD
        cache[b"other"] = b"other"


# Descriptors for Python itself, two to open the cache, and one more: nothing of a put works.
STARVED = """
import os, resource, sys
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
cache.update([(b"%d" % n, b"x" * 100) for n in range(20)])
cache[b"key"] = b"old"
free = os.dup(2)
os.close(free)
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, limit[1]))
assert cache.get(b"key") is None, "no descriptor, no hit"
cache[b"key"] = b"new"
cache.close()
assert cache.get(b"key") in (None, b"new")
assert cache.stats().dropped_writes == 1
"""


def test_a_process_without_a_free_descriptor_misses_and_drops_and_nobody_reads_the_older_value(
    cache_path: Path,
) -> None:
    subprocess.run([sys.executable, "-c", STARVED, str(cache_path)], check=True, timeout=60)
    cache = FileStreamProgramCache(cache_path)
    assert cache.get(b"key") is None
    cache[b"key"] = b"newest"
    assert cache[b"key"] == b"newest"


MANY_SHARDS = """
import resource, sys
from lockcache import FileStreamProgramCache
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, limit[1]))
cache = FileStreamProgramCache(sys.argv[1])
for n in range(2000):
    cache[b"%d" % n] = b"x" * 100
assert cache.stats().dropped_writes == 0
assert len(cache) == 2000
open("/dev/null").close()
"""


@pytest.mark.long
def test_a_process_that_may_open_few_files_can_still_write_to_every_shard_and_has_some_left(cache_path: Path) -> None:
    subprocess.run([sys.executable, "-c", MANY_SHARDS, str(cache_path)], check=True, timeout=60)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_what_is_to_be_removed_is_not_taken_for_absent_because_the_disk_gives_no_answer(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    _filled(cache_path)
    cache = FileStreamProgramCache(cache_path)
    access, lstat, rename = os.access, os.lstat, os.rename

    def fail(path: str, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as broken:
        broken.setattr(
            os, "access", lambda path, *how, **more: path != _entry(cache_path) and access(path, *how, **more)
        )
        broken.setattr(os, "lstat", lambda path: fail(path) if path == _entry(cache_path) else lstat(path))
        broken.setattr(os, "rename", fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            del cache[KEY]
        cache[KEY] = NEW
    assert rename is os.rename
    assert "an older value may still be read" in caplog.text
    assert cache.get(KEY) in (None, OLD)


def test_a_dropped_write_removes_the_older_value_though_the_disk_denied_for_once_that_it_is_there(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(cache_path)
    cache = FileStreamProgramCache(cache_path)
    access = os.access

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(
            os, "access", lambda path, *how, **more: path != _entry(cache_path) and access(path, *how, **more)
        )
        broken.setattr(os, "rename", fail)
        cache[KEY] = NEW
    assert cache.stats().dropped_writes == 1
    assert cache.get(KEY) is None


def test_stats_of_a_disk_that_gives_no_answer_are_the_last_that_it_gave(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(cache_path)
    cache = FileStreamProgramCache(cache_path)
    before = cache.stats()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        for name in ("open", "lstat", "stat", "scandir", "pread"):
            broken.setattr(os, name, fail)
        broken.setattr(state, "_lstat", fail)
        during = cache.stats()
    assert (during.bytes, during.entries) == (before.bytes, before.entries)
    assert during.entries == 2
