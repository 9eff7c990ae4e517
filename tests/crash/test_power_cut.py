"""The cap and the accounting behind a power cut, by shutting a mounted ext4 down without a flush.

That nothing torn is served and nothing synced is lost is in ``tests/stress/test_power_cut.py``.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from lockcache import FileStreamProgramCache
from lockcache_stress.trouble.mounts import copy_sparse
from tests.crash.measure import assert_one_recount_mends_all
from tests.processes.crowd import run_all
from tests.processes.proof import Proof, prove
from tests.thinning import all_but

pytestmark = pytest.mark.root

# Of ext4, xfs and f2fs: stop all I/O now, write nothing back. _IOR('X', 125, __u32), flag 2.
_FS_IOC_SHUTDOWN: Final = 0x8004587D
_NO_FLUSH: Final = struct.pack("I", 2)

PUTS = 300
WRITER = """
import sys, time
sys.path.insert(0, sys.argv[3])
from lockcache import FileStreamProgramCache
from tests.processes.proof import value_for
cache = FileStreamProgramCache(sys.argv[1], record_files=sys.argv[2] == "files")
for serial in range(1, 10**6):
    key = b"%d" % (serial % 40)
    cache[key] = value_for(key, 1, serial, 5000 + serial)
    print(serial, flush=True)
"""


def _write_and_cut(disk: Path, records: str) -> dict[bytes, int]:
    """What the writer knew to be stored, by key, when the power went."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", WRITER, str(disk / "cache"), records, root]
    returned: dict[bytes, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
        assert writer.stdout is not None
        for serial in map(int, writer.stdout):
            if serial <= PUTS:  # what it says later it may have said after the cut
                returned[b"%d" % (serial % 40)] = serial
            if serial == PUTS:
                fd = os.open(disk, os.O_RDONLY)
                fcntl.ioctl(fd, _FS_IOC_SHUTDOWN, _NO_FLUSH)
                os.close(fd)
                writer.kill()
    return returned


def _mount_again(disk: Path) -> None:
    image, copy = disk.with_suffix(".img"), disk.with_suffix(".copy")
    subprocess.run(["umount", disk], check=True)
    # A copy: who made a mount namespace meanwhile (another test) has the dead file system mounted in it still, and the
    # image itself would be that one again.
    copy_sparse(str(image), str(copy))
    subprocess.run(["mount", "-o", "loop", copy, disk], check=True)


def _open_with_cap(path: str) -> None:
    FileStreamProgramCache(path, max_size_bytes=10**6).close()


@pytest.mark.parametrize("records", all_but(["attributes"], ["attributes", "files"]))
def test_after_a_power_cut_nothing_torn_is_served_and_the_cap_is_in_force_or_can_be_set_again(
    mount_image: Callable[..., Path], records: str
) -> None:
    disk = mount_image("ext4", 64)
    # In a process of its own, which like all others does not survive the cut.
    run_all("fork", _open_with_cap, [(str(disk / "cache"),)])
    returned = _write_and_cut(disk, records)
    _mount_again(disk)
    cache = FileStreamProgramCache(disk / "cache", max_size_bytes=10**6)
    assert cache.max_size_bytes == 10**6
    for key in returned:
        found = cache.get(key)
        assert found is None or prove(key, found) <= Proof(1, 10**6)
    cache.recount()
    for serial in range(50):
        cache[b"%d" % serial] = bytes(50_000)
    assert cache.stats().bytes <= 10**6
    assert_one_recount_mends_all(cache)
    assert sum(file.stat().st_size for file in (disk / "cache/entries").glob("??/*")) <= 10**6
