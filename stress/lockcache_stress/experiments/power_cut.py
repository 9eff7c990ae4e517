# SPDX-License-Identifier: Apache-2.0
"""Power cuts: the power fails while writers write, the journal is replayed, every entry is read.

A file system in an image is shut down without a flush (``FS_IOC_SHUTDOWN``): data that had not reached the disk is
lost, as after a power cut. Then it is mounted again. Or a FUSE file system that forgets all that was not synced, names
too, is killed. Proves that no value that is torn or foreign is ever served, and that with ``fsync=True`` no write is
lost that had returned before the cut. Each writer is a process of its own and the
only writer of its keys: ``python -m lockcache_stress.experiments.power_cut CACHE FSYNC NUMBER LOG``.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from lockcache import FileStreamProgramCache
from lockcache_stress.errors import UnusableError
from lockcache_stress.judge import Stamp, make_value, parse_value
from lockcache_stress.processes import die_with_parent, wait_until
from lockcache_stress.trouble import (
    copy_sparse,
    mount_forgetful_disk,
    mounted_image,
    needs_mounts,
    run_quietly,
    sync_below,
    why_no_fuse,
)

# The request by which ext4 and xfs stop all I/O at once and write nothing back: _IOR('X', 125, __u32), with flag 2.
_SHUTDOWN: Final = 0x8004587D
_NO_FLUSH: Final = struct.pack("I", 2)
# The sizes of images, in MiB.
_SIZES: Final = {"ext4": 64, "xfs": 320}
_FORGETFUL: Final = "fuse"
#: The file systems whose power can be cut.
KINDS: Final = (*_SIZES, _FORGETFUL)
_START_SECONDS: Final = 60.0

_KEYS: Final = 20
_TOKEN: Final = b"powercut"
# A write: its key, its serial, and the time at which it had returned (ns, monotonic).
_LOGGED: Final = struct.Struct("<IIq")
_BYTES: Final = 5000


@dataclass
class Cut:
    """One cut, and what was found after it."""

    kind: str
    fsync: bool
    writers: int
    #: The number of writes that had returned when the power was cut.
    writes: int = 0
    #: The number of keys that still have an entry.
    served: int = 0
    #: The number of entries that the digest refused, which shows that the cut damaged entries.
    hollow: int = 0
    torn: int = 0
    #: The number of keys whose last write that returned is gone, or replaced by an older value.
    lost: int = 0

    @property
    def ok(self) -> bool:
        """Whether no promise was broken."""
        return self.writes > 0 and not self.torn and not (self.fsync and self.lost)


def why_no_power_cut(kind: str) -> str | None:
    """Returns why a file system of this kind cannot be had here; ``None`` if it can. Tries a mount."""
    if kind == _FORGETFUL:
        return why_no_fuse()
    reason = needs_mounts(f"mkfs.{kind}")
    if reason is not None:
        return reason
    try:
        with _new_disk(kind):
            return None
    except UnusableError as error:
        return str(error)


def cut_once(kind: str, *, fsync: bool, writers: int, seconds: float) -> Cut:
    """Write for so long on a new file system of this kind, cut, mount it again and read everything."""
    found = Cut(kind, fsync, writers)
    if kind == _FORGETFUL:
        _cut_forgetful(found, seconds)
        return found
    with _new_disk(kind) as (parent, disk, image):
        last = _write_and_cut(disk, parent, found, seconds, partial(_shut_down, disk))
        run_quietly("umount", disk)
        # A copy, because a mount namespace that was made meanwhile (by a container) still has the dead file system
        # mounted, and mounting the image itself would give that file system again.
        copy_sparse(image, f"{image}.after")
        run_quietly("mount", "-o", "loop", f"{image}.after", disk)
        _read(os.path.join(disk, "cache"), last, found)
    return found


def _cut_forgetful(found: Cut, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="lockcache-stress-") as parent:
        with mount_forgetful_disk(os.path.join(parent, "disk")) as disk:
            FileStreamProgramCache(os.path.join(disk.path, "cache")).close()
            sync_below(disk.path)  # the directory has been there for long
            # Its calls are slow: until each key is replaced, a cut says little.
            last = _write_and_cut(disk.path, parent, found, seconds, disk.cut, writes=_KEYS + 1)
        disk.make_after()
        _read(os.path.join(disk.after, "cache"), last, found)


@contextmanager
def _new_disk(kind: str) -> Iterator[tuple[str, str, str]]:
    """Yields a folder, a new file system that is mounted in it, and its image."""
    with tempfile.TemporaryDirectory(prefix="lockcache-stress-") as parent:
        disk = os.path.join(parent, "disk")
        os.mkdir(disk)
        with mounted_image(disk, kind, _SIZES[kind]) as image:
            yield parent, disk, image


def _write_and_cut(
    disk: str, parent: str, found: Cut, seconds: float, cut: Callable[[], object], *, writes: int = 1
) -> dict[tuple[int, int], int]:
    """Returns the last serial of each writer and key that had been stored when the power was cut.

    ``writes``: of each writer at least, before the time begins.
    """
    logs = [os.path.join(parent, f"writer-{number}") for number in range(found.writers)]
    command = [sys.executable, "-m", __name__, os.path.join(disk, "cache"), str(int(found.fsync))]
    running = [
        subprocess.Popen([*command, str(number), log], stderr=subprocess.DEVNULL) for number, log in enumerate(logs)
    ]
    try:
        if not wait_until(lambda: all(_count(log) >= writes for log in logs), _START_SECONDS):
            raise UnusableError("the writers did not start")
        time.sleep(seconds)
        cut_ns = time.monotonic_ns()
        cut()
    finally:
        for process in running:
            process.kill()
            process.wait()
    return _returned(logs, cut_ns, found)


def _count(log: str) -> int:
    return os.path.getsize(log) // _LOGGED.size if os.path.exists(log) else 0


def _shut_down(disk: str) -> None:
    _commit_journal(disk)
    fd = os.open(disk, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _SHUTDOWN, _NO_FLUSH)
    finally:
        os.close(fd)


def _commit_journal(disk: str) -> None:
    """Sync another file, after which the names and sizes of all files are on the disk, but not their bytes."""
    with open(os.path.join(disk, "other"), "wb") as file:
        file.write(b"other")
        file.flush()
        os.fsync(file.fileno())


def _returned(logs: Sequence[str], cut_ns: int, found: Cut) -> dict[tuple[int, int], int]:
    last = {}
    for number, log in enumerate(logs):
        with open(log, "rb") as file:
            blob = file.read()
        for key, serial, ended_ns in _LOGGED.iter_unpack(blob[: len(blob) - len(blob) % _LOGGED.size]):
            if ended_ns < cut_ns:
                last[number, key] = serial
                found.writes += 1
    return last


def _read(path: str, last: dict[tuple[int, int], int], found: Cut) -> None:
    with FileStreamProgramCache(path) as cache:
        for number in range(found.writers):
            for key in range(_KEYS):
                code = cache.get(_key_of(number, key))
                proof = None if code is None else parse_value(code)
                found.served += code is not None
                found.torn += code is not None and (proof is None or (proof.token, proof.key) != (_TOKEN, key))
                stood = 0 if proof is None else proof.stamp.serial
                found.lost += stood < last.get((number, key), 0)
        found.hollow = cache.stats().corrupt_entries
        cache.recount()
        cache[b"after"] = b"after"
        found.torn += cache.get(b"after") != b"after"


def _key_of(writer: int, key: int) -> bytes:
    """Returns the cache key of a writer's key number."""
    return b"%d/%d" % (writer, key)


def main() -> None:
    """Run a writer that writes until it is killed.

    Each write goes to a log on another disk, with the time at which the cache returned.
    """
    die_with_parent()
    cache_path, fsync, number, log = sys.argv[1:]
    writer, dropped = int(number), 0
    cache = FileStreamProgramCache(cache_path, fsync=fsync == "1")
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    serial = 0
    while True:
        serial += 1
        key = serial % _KEYS
        cache[_key_of(writer, key)] = make_value(_TOKEN, key, Stamp(writer, 0, serial, 0), _BYTES + serial % 3000)
        ended_ns = time.monotonic_ns()
        if cache.stats().dropped_writes == dropped:
            os.write(fd, _LOGGED.pack(key, serial, ended_ns))
        dropped = cache.stats().dropped_writes


if __name__ == "__main__":
    main()
