# SPDX-License-Identifier: Apache-2.0
"""Two processes and what they see of each other: locks, renames, exclusive creation, new names.

Tries, on files of its own, what invariants 1 (a hit is whole), 2 (last write wins) and 3 (hard cap), and compile-once,
rest on. Not promised: what processes on two machines see of each other; that takes two machines.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from lockcache.doctor.checks_process import Child
from lockcache.doctor.findings import DEGRADED, GOOD, UNUSABLE, Finding, Subject
from lockcache.doctor.second_process import create_each
from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import ProcessLock

#: Asking the peer. It shares the fate of the process that asks: a worker that waits for it is itself given up in time.
_PEER_SECONDS: Final = 60.0
_ROUNDS: Final = 20
_RACES: Final = 200
_FREED_SECONDS: Final = 2.0

_EXCLUDE_NOBODY: Final = "two processes hold the same exclusive lock"
# The loss without working locks, and the advice: also if another host is not excluded.
WITHOUT_LOCKS: Final = (
    "entries stay whole, but the cap is only approximate, and the same kernel may be compiled by several processes"
)
STUCK_LOCKS: Final = "each write waits for such a lock until its timeout, and is dropped; what is there can be read"
DROPPED_WRITES: Final = "every write is dropped: what is there can be read, and nothing is added"
MOUNT_WITH_LOCKS: Final = "mount with flock (Lustre: -o flock), or use a directory on a local disk"
SHARED_LOCKS: Final = (
    "mount with locks that all nodes share (NFS without nolock and local_lock, Lustre with flock), or run "
    "lockcache-daemon on one node, which repairs the accounting"
)
MEETING_FILES: Final = "staged writes and leases of two processes may meet in one file: misses, and double compilations"
LOCAL_DIRECTORY: Final = "use a file system with POSIX rename: a local disk, NFS, Lustre, CephFS"


def locks(subject: Subject) -> list[Finding]:
    """Check whether a lock excludes another process, and is free once it is released or its holder is killed."""
    path = os.path.join(subject.probe, "lock")
    mine = ProcessLock(path, 0.0)
    peer = _Peer()
    try:
        problem = _lock_twice(mine, peer, path)
        freed_ms = _kill_holder(mine, peer) if problem is None else 0.0
    except LockTimeoutError as error:
        return [Finding("locks", UNUSABLE, str(error), DROPPED_WRITES, MOUNT_WITH_LOCKS)]
    finally:
        mine.close()
        peer.end()
    if freed_ms is None:
        problem = f"the lock of a killed process is not free after {_FREED_SECONDS:.0f} s"
    if problem == _EXCLUDE_NOBODY:
        return [Finding("locks", DEGRADED, problem, WITHOUT_LOCKS, SHARED_LOCKS)]
    if problem is not None:
        advice = "repair the lock server, or use a directory on a local disk"
        return [Finding("locks", DEGRADED, problem, STUCK_LOCKS, advice)]
    found = f"exclusive; released {freed_ms:.0f} ms after the holder is killed"
    return [Finding("locks", GOOD, found, measured={"freed_ms": freed_ms})]


def _lock_twice(mine: ProcessLock, peer: _Peer, path: str) -> str | None:
    """Returns what is wrong with locks; ``None`` if nothing is, and then the peer holds the lock."""
    if not mine.try_acquire():
        return "a lock that nobody holds cannot be taken"
    theirs = peer.ask("lock", path)
    mine.release()
    if isinstance(theirs, str):
        raise LockTimeoutError(theirs, path)
    if not theirs and peer.ask("lock", path) is not True:
        return "a lock that was released stays taken"
    if theirs or mine.try_acquire():
        return _EXCLUDE_NOBODY
    return None


def _kill_holder(mine: ProcessLock, peer: _Peer) -> float | None:
    """Returns the milliseconds until the lock of a killed peer is free; ``None`` if it stays locked."""
    peer.end()
    start = time.monotonic()
    while not mine.try_acquire():
        if time.monotonic() - start > _FREED_SECONDS:
            return None
        time.sleep(0.001)
    mine.release()
    return round((time.monotonic() - start) * 1000, 3)


def rename(subject: Subject) -> list[Finding]:
    """Check whether a file that is replaced while it is read stays whole for its reader, and is new for the next."""
    path, staged = os.path.join(subject.probe, "renamed"), os.path.join(subject.probe, "staged")
    peer = _Peer()
    try:
        _write(path, b"0" * 8192)
        torn, stale = [], []
        for number in range(1, _ROUNDS + 1):
            before, after = bytes([48 + (number - 1) % 10]) * 8192, bytes([48 + number % 10]) * 8192
            peer.ask("open", path)
            _write(staged, after)
            os.rename(staged, path)
            if (old := peer.ask("read open", path)) != before.decode():
                torn.append(_short(old))
            if (new := peer.ask("read", path)) != after.decode():
                stale.append(_short(new))
    finally:
        peer.close()
    if stale:
        found = f"after {len(stale)} of {_ROUNDS} renames another process read: {stale[0]}"
        return [
            Finding("rename", UNUSABLE, found, "a write may be followed by a read of the older value", LOCAL_DIRECTORY)
        ]
    if torn:
        found = f"in {len(torn)} of {_ROUNDS} renames a process that had the old file open read: {torn[0]}"
        means = "reads during writes are misses, and programs compile again"
        return [Finding("rename", DEGRADED, found, means, LOCAL_DIRECTORY)]
    return [
        Finding(
            "rename",
            GOOD,
            f"{_ROUNDS} renames over an open file: open readers keep the old content, new ones see the new",
        )
    ]


def exclusive_creation(subject: Subject) -> list[Finding]:
    """Check whether exactly one of two processes that create the same file at once succeeds."""
    folder = os.path.join(subject.probe, "exclusive")
    os.mkdir(folder, 0o700)
    paths = [os.path.join(folder, str(number)) for number in range(_RACES)]
    peer = _Peer()
    try:
        peer.ask("is there", folder)  # started: now both begin at once
        peer.send("create each", paths)
        mine = create_each(paths)
        theirs = peer.answer()
    finally:
        peer.close()
    wrong = [pair for pair in zip(mine, theirs, strict=True) if pair.count("made") != 1]
    other = sorted({outcome for pair in zip(mine, theirs, strict=True) for outcome in pair} - {"made", "EEXIST"})
    if wrong:
        who = "both" if "made" in wrong[0] else "neither"
        found = f"{len(wrong)} of {_RACES} files were made by {who} of two processes"
        return [Finding("exclusive creation", DEGRADED, found, MEETING_FILES, LOCAL_DIRECTORY)]
    if other:
        found = f"a file that is there answers {', '.join(other)} instead of EEXIST"
        return [Finding("exclusive creation", DEGRADED, found, "concurrent writes may be dropped", LOCAL_DIRECTORY)]
    return [Finding("exclusive creation", GOOD, f"{_RACES} races of two processes, one winner each")]


def new_names(subject: Subject) -> list[Finding]:
    """Check whether another process that has just seen a name missing sees it once the file is made."""
    path = os.path.join(subject.probe, "new")
    peer = _Peer()
    try:
        peer.ask("is there", path)
        _write(path, b"x")
        start = time.monotonic()
        seen = peer.ask("is there", path)
        while not seen and time.monotonic() - start < _FREED_SECONDS:
            seen = peer.ask("is there", path)
    finally:
        peer.close()
    if seen:
        waited_ms = (time.monotonic() - start) * 1000
        found = f"a new file becomes visible after {waited_ms:.0f} ms, even where a lookup had failed before"
        return [Finding("new names", GOOD, found, measured={"seen_ms": round(waited_ms, 3)})]
    means = "a process that waits for another's compilation waits longer, or compiles again"
    found = f"a name seen missing stays missing for more than {_FREED_SECONDS:.0f} s"
    return [Finding("new names", DEGRADED, found, means, "mount with lookupcache=none or lookupcache=positive (NFS)")]


class _Peer:
    """The second process."""

    def __init__(self) -> None:
        self._child = Child("lockcache.doctor.second_process", own_group=False)

    def ask(self, do: str, path: Any) -> Any:
        self.send(do, path)
        return self.answer()

    def send(self, do: str, path: Any) -> None:
        self._child.send({"do": do, "path": path})

    def answer(self) -> Any:
        return self._child.answer(_PEER_SECONDS)

    def close(self) -> None:
        self._child.close()

    def end(self) -> None:
        self._child.end()


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _short(text: str) -> str:
    return text if len(text) < 200 else f"other bytes ({text[:8]!r}...)"
