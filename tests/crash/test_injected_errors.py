"""What a broken disk or a shared file system answers, injected: a miss or a dropped write, never an exception."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.crash.measure import assert_one_recount_mends_all
from tests.crash.traced import run_traced

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


@pytest.mark.parametrize("error", ["ESTALE", "EIO", "ENOTCONN", "EBADF", "EPERM", "EACCES"])
@pytest.mark.parametrize("call", ["openat", "read", "fgetxattr", "utimensat"])
def test_a_read_that_meets_an_error_is_a_hit_or_a_miss(cache_path: Path, call: str, error: str) -> None:
    _filled(cache_path)
    for when in ("1", "1+"):
        assert (
            run_traced(READER, cache_path, inject=f"{call}:error={error}:when={when}", paths=(_entry(cache_path),)) == 0
        )


WRITES = [
    (call, error, when)
    for call, errors in {
        "rename": ["EIO", "ESTALE", "ENOSPC", "EDQUOT"],
        "fsetxattr": ["EIO", "ENOSPC", "EOPNOTSUPP", "ESTALE"],
        "pwrite64": ["EIO", "ESTALE"],
        "pread64": ["EIO", "ESTALE"],
        "flock": ["ENOLCK", "EIO", "ESTALE", "EOPNOTSUPP"],
        "utimensat": ["EIO", "EPERM"],
        "unlink": ["EIO", "ESTALE"],
    }.items()
    for error in errors
    for when in ("1", "2", "1+")
]  # fmt: skip


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
