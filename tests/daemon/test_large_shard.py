"""A shard of any size: a signal ends the daemon in the middle of it, and nothing is half done."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache.filestream.accounting import NOT_COUNTED, head_of
from lockcache.filestream.accounting.state import Slot
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import Layout
from lockcache.lowlevel import measure_shard
from tests.daemon.daemon_process import HANG_SECONDS, RunningDaemon, until

FILES = 250_000
LAST = 0xFF


@pytest.fixture
def large() -> Iterator[Path]:
    """A directory whose last shard is large, so that who asks only between shards asks no more."""
    root = Path(tempfile.mkdtemp(prefix="lockcache-test-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    shard = root / "entries" / f"{LAST:02x}"
    shard.mkdir(parents=True, mode=0o700)
    shard.parent.chmod(0o700)
    for number in range(FILES):
        os.close(os.open(f"{shard}/{number:062x}", os.O_CREAT | os.O_WRONLY, 0o600))
    yield root
    shutil.rmtree(root)


def end_within_the_shard(root: Path, pid: int) -> None:
    """Send SIGTERM when the daemon has the shard's folder open: it walks it."""

    def walks() -> bool:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    if os.readlink(f"/proc/{pid}/fd/{name}") == f"{root}/entries/{LAST:02x}":
                        return True
        return False

    until(walks)
    os.kill(pid, signal.SIGTERM)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_first_count_and_a_recount_of_a_large_shard_end_at_a_signal(large: Path) -> None:
    daemon = RunningDaemon("--max-size", "1G", large, starts=0)
    with daemon:
        end_within_the_shard(large, daemon.process.pid)
        assert daemon.process.wait(HANG_SECONDS) == 0
    head = head_of(Layout(str(large)))
    assert head is not None
    assert head.folder == NOT_COUNTED, "it was not counted to its end"

    directory = CacheDirectory(str(large), 1.0)
    assert measure_shard(directory.layout, LAST) == Slot(0, FILES)
    with directory.locks[LAST]:
        directory.usage().set_locked(LAST, Slot(7, 7))
    with RunningDaemon("--max-size", "1G", large) as daemon:
        end_within_the_shard(large, daemon.process.pid)
        assert daemon.process.wait(HANG_SECONDS) == 0
        assert daemon.errors() == ""
    assert directory.usage().slot(LAST) == Slot(7, 7)  # nor set right
    with directory.locks[LAST]:
        pass  # and it holds nothing
    directory.close()
