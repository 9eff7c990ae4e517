# SPDX-License-Identifier: Apache-2.0
"""Death on entry to a system call, as the kernel sees it: real interpreters under strace, killed at the n-th call.

The forked children of :mod:`tests.crash.test_death_at_every_step` die between calls of Python's ``os``. Here nothing is
patched, and what the interpreter does by itself counts too.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.crash.measure import assert_accounting_is_not_too_low, assert_one_recount_repairs_all
from tests.crash.strace import run_traced

OLD, NEW = b"old" * 3000, b"new" * 4000
PROGRAM = """
import sys
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
cache[b"key"] = b"new" * 4000
"""

# With a warm cache of compiled modules only our own code makes these calls.
STEPS = [(call, nth) for call, most in {
    "flock": 5, "pwrite64": 2, "fsetxattr": 1, "utimensat": 1, "rename": 1, "unlink": 2,
}.items() for nth in range(1, most + 1)]  # fmt: skip


@pytest.mark.parametrize("call, nth", STEPS)
def test_a_writer_killed_on_entry_to_a_system_call_leaves_the_older_value_or_the_newer(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int
) -> None:
    # A cap that both values do not fit into: the put evicts as well. By last use it evicts two of the others; by value
    # the older value alone, if that is older than a second by then.
    monkeypatch.setenv("LOCKCACHE_POLICY", "lru")
    others = {b"other %d" % n: bytes(3000) for n in range(3)}
    with FileStreamProgramCache(cache_path, max_size_bytes=22_000) as cache:
        cache.update(others)
        cache[b"key"] = OLD
    code = run_traced(PROGRAM, cache_path, inject=f"{call}:signal=KILL:when={nth}")
    assert code == -signal.SIGKILL, "there is such a call"
    assert_accounting_is_not_too_low(cache_path)
    cache = FileStreamProgramCache(cache_path, lock_timeout_seconds=2)
    assert cache.get(b"key") in (OLD, NEW, None)
    assert all(cache.get(key) in (value, None) for key, value in others.items())
    cache[b"key"] = b"newest"
    assert cache[b"key"] == b"newest"
    assert_one_recount_repairs_all(cache)
    cache.close()
