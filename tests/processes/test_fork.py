# SPDX-License-Identifier: Apache-2.0
"""Fork while a thread imports what a write needs.

Forks of busy and locked caches are in ``tests/contract/test_copies.py`` and ``tests/unit/disk/test_locks.py``; threads
and forked children on one object, judged by their histories, are the scenario ``mixed``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lockcache import FileStreamProgramCache

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
