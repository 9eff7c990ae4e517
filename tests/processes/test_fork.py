"""Fork with a cache open, busy and locked: the child starts with nobody's locks, and contends like any process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from tests.processes.crowd import HANG_SECONDS
from tests.processes.proof import Proof, prove, value_for
from tests.threads import running


def _in_child(act: Callable[[], bool]) -> Callable[[], bool]:
    """Forks at once; the function that comes back waits for what ``act`` returned there."""
    child = os.fork()
    if not child:
        code = 2
        try:
            code = 0 if act() else 1
        finally:
            os._exit(code)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_parent_and_forked_children_hammer_one_shard_with_one_inherited_cache_and_the_accounting_stays_exact(
    cache_path: Path,
) -> None:
    cache = FileStreamProgramCache(cache_path, lock_timeout_seconds=HANG_SECONDS)
    keys = [key for key in (b"%d" % n for n in range(3000)) if entry_name(key)[:2] == "00"][:8]
    cache[keys[0]] = b"opened"

    def write(writer: int) -> bool:
        for serial in range(150):
            key = keys[serial % len(keys)]
            cache[key] = value_for(key, writer, serial, 100 + 37 * writer + serial)
            found = cache.get(key)
            if found is not None:
                prove(key, found)
        return cache.stats().dropped_writes == 0

    waits = [_in_child(lambda writer=writer: write(writer)) for writer in range(1, 4)]  # type: ignore[misc]
    assert write(0)
    outcomes = [wait() for wait in waits]
    assert all(outcomes)
    assert cache.stats().bytes == sum(file.stat().st_size for file in (cache_path / "entries").glob("??/*"))
    assert cache.recount() == []


def test_children_forked_while_threads_write_can_all_write_and_no_reservation_is_left(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=300_000, lock_timeout_seconds=HANG_SECONDS)
    stop = threading.Event()
    written = threading.Semaphore(0)

    def work(writer: int) -> None:
        serial = 0
        while not stop.is_set():
            key = b"%d" % (serial % 50)
            cache[key] = value_for(key, writer, serial, 9000)
            serial += 1
            written.release()

    with running(work, [(writer,) for writer in range(3)], until=stop):
        for child in range(12):
            written.acquire(timeout=HANG_SECONDS)
            key = b"child %d" % child

            def put(key: bytes = key, child: int = child) -> bool:
                cache[key] = value_for(key, 100 + child, 0, 5000)
                found = cache.get(key)
                return cache.stats().dropped_writes == 0 and (
                    found is None or prove(key, found) == Proof(100 + child, 0)
                )

            assert _in_child(put)()
    assert list((cache_path / "tmp").iterdir()) == []
    assert cache.recount() == []


# A process of its own, in which psutil was not imported yet. The import takes until the fork, or, where a fork waits
# for it, a second.
FORKS_IN_AN_IMPORT = """
import os, signal, sys, threading
from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import mounts
mounts._TABLE = "/no/table"  # as on macOS
begun, forked = threading.Event(), threading.Event()
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "psutil":
            begun.set()
            forked.wait(1)
cache = FileStreamProgramCache(sys.argv[1])
cache[b"parent"] = b"1"
sys.modules.pop("psutil", None)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=mounts.mount_of, args=("/",))  # as the first write of a process does
thread.start()
assert begun.wait(60)
child = os.fork()
if not child:
    signal.alarm(20)  # which ends it, if it hangs
    cache[b"child"] = b"2"
    os._exit(cache[b"child"] != b"2")
forked.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
"""


def test_a_child_forked_while_a_thread_imports_what_a_write_needs_does_not_wait_for_that_thread(
    cache_path: Path,
) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS_IN_AN_IMPORT, str(cache_path)], check=True, timeout=60)
    cache = FileStreamProgramCache(cache_path)
    assert (cache[b"parent"], cache[b"child"]) == (b"1", b"2")
