"""What a broken disk or a shared file system answers, injected: a miss or a dropped write, never an exception."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import usage
from lockcache.filestream.disk.layout import Layout
from tests.crash.measure import assert_one_recount_mends_all
from tests.crash.traced import run_traced
from tests.thinning import EXHAUSTIVE, all_but, diagonals

KEY, OLD, NEW = b"key", b"old" * 3000, b"new" * 4000

READER = """
import sys
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
for _ in range(3):
    found = cache.get(b"key")
    assert found in (None, b"old" * 3000), found
    entry = cache.get_entry(b"key")
    assert entry is None or entry.code == b"old" * 3000
assert cache.get(b"other") == b"other"
stats = cache.stats()
assert stats.hits + stats.misses == 7
"""

# Once in the middle (the first call of the kind is whatever Python does first), or from then on.
WRITER = """
import sys, warnings
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
for serial in range(3):
    dropped = cache.stats().dropped_writes
    cache[b"key"] = b"new" * 4000
    was_dropped = cache.stats().dropped_writes > dropped
    found = cache.get(b"key")
    assert found in (None, b"new" * 4000), (serial, was_dropped, found[:9])
    assert was_dropped or found is not None
"""


def _entry(root: Path) -> str:
    name = hashlib.sha256(KEY).hexdigest()
    return f"{root}/entries/{name[:2]}/{name[2:]}"


def _filled(root: Path) -> None:
    with FileStreamProgramCache(root) as cache:
        cache[KEY] = OLD
        cache[b"other"] = b"other"


@pytest.mark.parametrize(
    "call, error",
    diagonals(
        ["openat", "read", "fgetxattr", "utimensat"], ["ESTALE", "EIO", "ENOTCONN", "EBADF", "EPERM", "EACCES"], 4
    ),
)
def test_a_read_that_meets_an_error_is_a_hit_or_a_miss(cache_path: Path, call: str, error: str) -> None:
    _filled(cache_path)
    for when in ("1", "1+"):
        assert (
            run_traced(READER, cache_path, inject=f"{call}:error={error}:when={when}", paths=(_entry(cache_path),)) == 0
        )


WRITES = [
    pytest.param(call, error, when, marks=() if when == "1+" and number == 0 else EXHAUSTIVE)
    for call, errors in {
        "rename": ["EIO", "ESTALE", "ENOSPC", "EDQUOT"],
        "fsetxattr": ["EIO", "ENOSPC", "EOPNOTSUPP", "ESTALE"],
        "pwrite64": ["EIO", "ESTALE"],
        "pread64": ["EIO", "ESTALE"],
        "flock": ["ENOLCK", "EIO", "ESTALE", "EOPNOTSUPP"],
        "utimensat": ["EIO", "EPERM"],
        "unlink": ["EIO", "ESTALE"],
    }.items()
    for number, error in enumerate(errors)
    for when in ("1", "2", "1+")
]  # fmt: skip


COMPILER = """
import sys, threading
from lockcache import Entry, FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1], lease_timeout_seconds=0.5)
runs = []
def compute():
    runs.append(1)
    return Entry(b"code" * 1000)
threads = [threading.Thread(target=lambda: results.append(cache.get_or_compute("key", compute))) for _ in range(3)]
results = []
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == [b"code" * 1000] * 3, results
assert 1 <= len(runs) <= 3
assert cache.get("key") == b"code" * 1000
assert cache.get_or_compute("key", compute) == b"code" * 1000
"""


@pytest.mark.parametrize("when", all_but(["1+"], ["1", "2", "1+"]))
@pytest.mark.parametrize(
    "call, error",
    [
        ("openat", "EIO"),
        pytest.param("openat", "EROFS", marks=EXHAUSTIVE),
        ("flock", "ENOLCK"),
        pytest.param("flock", "EIO", marks=EXHAUSTIVE),
        ("ftruncate", "ENOSPC"),
        ("write", "ENOSPC"),
        pytest.param("write", "EIO", marks=EXHAUSTIVE),
        ("pread64", "EIO"),
        ("read", "EIO"),
        ("unlink", "EIO"),
        ("newfstatat", "ESTALE"),
    ],
)
def test_where_a_lease_cannot_be_had_or_given_back_everybody_gets_the_code_and_nobody_fails(
    cache_path: Path, call: str, error: str, when: str
) -> None:
    FileStreamProgramCache(cache_path).close()
    lease = Layout(str(cache_path)).lease(hashlib.sha256(KEY).hexdigest(), 0)
    inject = f"{call}:error={error}:when={when}"
    assert run_traced(COMPILER, cache_path, inject=inject, paths=(lease,)) == 0
    with FileStreamProgramCache(cache_path) as cache:
        assert cache.get_or_compute(b"another", lambda: b"other") == b"other"
        assert cache[KEY] == b"code" * 1000


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


@pytest.mark.parametrize("call, error, when", WRITES)
def test_a_write_that_meets_an_error_is_stored_or_dropped(cache_path: Path, call: str, error: str, when: str) -> None:
    _filled(cache_path)
    # The loader of shared libraries calls pread64 too.
    paths = (f"{cache_path}/lockcache/usage",) if call == "pread64" else ()
    assert run_traced(WRITER, cache_path, inject=f"{call}:error={error}:when={when}", paths=paths) == 0
    cache = FileStreamProgramCache(cache_path, lock_timeout_seconds=2)
    assert cache.get(KEY) in (None, NEW)
    # What helps against a full disk is evicting; nothing else costs anybody else's entry.
    assert cache.get(b"other") in ((b"other", None) if error in ("ENOSPC", "EDQUOT") else (b"other",))
    assert_one_recount_mends_all(cache)
    cache.close()


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
        broken.setattr(usage, "_lstat", fail)
        during = cache.stats()
    assert (during.bytes, during.entries) == (before.bytes, before.entries)
    assert during.entries == 2
