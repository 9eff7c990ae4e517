# SPDX-License-Identifier: Apache-2.0
"""Attaching a seed: when a bundle is copied below a directory, copied again, and removed.

The first process that opens the directory copies the file, from wherever it is, while the others wait for it; from then
on all read that copy, and none asks the file's own file system. Once a minute, one process that opens the directory
checks whether the file was replaced, and copies it again if so. An operator's seed takes precedence over a program's,
and of programs the last one's counts. In a directory that a group shares, no process follows a path that another member
may have written: only processes that name the file themselves make the copy.

Keeps invariant 3 (hard cap): a bundle is refused where its copy would be more than half of the cap, and where what is
evicted is not enough. Attaching a seed adds the entries that the directory lacks; a seed that ``clear`` took away comes
back once its file is another. Keeps invariant 7 (never take the job down): for a program a seed that cannot be had is a
line in the log, and is not tried again for a minute, whichever process opens the directory.

Only on local file systems: on others the copy would be as far away as the bundle itself, and marks in it would reach
other hosts late.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

from lockcache.errors import ArchiveError, LockTimeoutError, in_words
from lockcache.filestream.bundle import refuse_unsafe
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import READ, ProcessLock, opened
from lockcache.filestream.eviction import Evicted
from lockcache.filestream.policy import Policy, Seed, most_seed_bytes
from lockcache.filestream.seed_marks import has_seed, is_in_order, stands
from lockcache.filestream.seeding.copying import detached, replace_copy, settle, take_away
from lockcache.filestream.seeding.freshness import FreshnessCheck, is_stuck, was_checked, was_refused

__all__ = [
    "attach_seed",
    "detach_before_cap",
    "detach_if_too_large",
    "detach_seed",
    "replace_policy",
    "seed_if_possible",
]

_log = logging.getLogger("lockcache")

# For how long a program waits for another process's copy, before it goes on without a seed.
_LONGEST_WAIT_SECONDS: Final = 15.0
# The same if there is a copy, which can be read meanwhile, or that process may hang.
_WAIT_FOR_NEWER_SECONDS: Final = 1.0


class Seeding(NamedTuple):
    """The outcome of attaching a seed for a program."""

    evicted: Evicted = Evicted()
    #: Whether another process was still at it when this one stopped waiting: there may be a seed later on.
    is_awaited: bool = False


def seed_if_possible(directory: CacheDirectory, path: str, cap: int | None, *, is_signed: bool) -> Seeding:
    """Attach the bundle at ``path`` (empty: the one that the policy names) to the directory. Raises nothing.

    ``cap``: the one that the program states. ``is_signed``: whether only signed entries are served, so that it may be
    anybody's.
    """
    root, policy = directory.layout.root, directory.policy.current()
    seed = policy.seed
    if not path and seed is None:
        return Seeding()
    if cap is None or policy.by_operator:
        cap = policy.max_size_bytes
    if seed is not None and path != seed.path and (seed.by_operator or not path):
        if path:
            _log.warning("%s: seed=%s is not applied, an operator set it to %s", root, path, seed.path)
        if directory.is_shared:
            return Seeding()
        path = seed.path
    try:
        return Seeding(attach_seed(directory, path, cap, is_signed=is_signed))
    except LockTimeoutError as error:
        level = logging.DEBUG if stands(directory.layout) else logging.WARNING
        _log.log(level, "%s: a seed is not waited for: %s", root, in_words(error))
        return Seeding(is_awaited=True)
    except FileNotFoundError as error:
        _log.info("%s: there is no seed yet: %s", root, in_words(error))
    except (OSError, ArchiveError) as error:
        outcome = "the seed that it has stays" if stands(directory.layout) else "no seed is read"
        _log.warning("%s: %s: %s", root, outcome, in_words(error))
    return Seeding()


def attach_seed(
    directory: CacheDirectory, path: str, cap: int | None, *, is_signed: bool, by_operator: bool = False
) -> Evicted:
    """Attach the bundle at ``path`` to the directory: copy it unless that was done. Returns what was evicted for it.

    ``by_operator``: it takes precedence over programs' seeds, and is attached again if ``clear`` took it away.

    Raises :class:`OSError` (:class:`UnsafeCacheDirError` for a file that others could have changed) and
    :class:`ArchiveError`; then the seed is what it was.
    """
    layout = directory.layout
    if layout.is_network:
        what = "a seed is copied to a directory on a local disk, and this one is on a network file system"
        raise OSError(errno.EXDEV, what, layout.root)
    check = FreshnessCheck(path, cap, is_signed)
    if not by_operator and _is_settled(directory, check):
        return Evicted()
    # Not 0 where a process seems to hang: one that died leaves the same state, and another may be at work by now.
    is_short = not by_operator and (stands(layout) or is_stuck(layout))
    with seed_lock(directory, _WAIT_FOR_NEWER_SECONDS if is_short else _LONGEST_WAIT_SECONDS):
        if not by_operator and _is_settled(directory, check):
            return Evicted()  # another process copied it while we waited
        settle(directory)  # also where the file is gone by now
        return _attach_opened(directory, check, by_operator=by_operator)


def detach_before_cap(directory: CacheDirectory, cap: int | None) -> None:
    """Take the seed away if the cap that a program states is too small for it. Raises nothing.

    For an operator's cap, or none that is stated, the one that the directory has.
    """
    policy = directory.policy.current()
    detach_if_too_large(directory, policy.max_size_bytes if cap is None or policy.by_operator else cap)


def replace_policy(directory: CacheDirectory, policy: Policy) -> None:
    """Publish a policy like :meth:`.StatedPolicy.replace`, after taking away a seed that its cap is too small for.

    In this order: else a writer that comes in between evicts all entries for the seed. Raises :class:`OSError`.
    """
    detach_if_too_large(directory, policy.max_size_bytes)
    directory.policy.replace(policy)


def detach_if_too_large(directory: CacheDirectory, cap: int | None) -> None:
    """Take the seed away where a new cap is too small for it: no eviction could. Raises nothing."""
    seed = directory.policy.current().seed
    if seed is None or not _is_too_large(seed, cap):
        return
    root = directory.layout.root
    try:
        # While it is being replaced both copies are counted, and the process that replaces it checks the cap.
        with seed_lock(directory, directory.lock_timeout_seconds if seed.version else 0.0):
            settle(directory)
            seed = directory.policy.current().seed
            if seed is None or not _is_too_large(seed, cap):
                return
            take_away(directory)
        _log.warning("%s: its seed of %s bytes is taken away: it is more than half of the cap", root, seed.bytes)
    except LockTimeoutError as error:
        _log.debug("%s: its seed is being replaced: %s", root, error)
    except OSError as error:
        _log.warning("%s: its seed is more than half of the cap, and cannot be taken away: %s", root, in_words(error))


def detach_seed(directory: CacheDirectory) -> None:
    """Take the seed away: no process reads it from then on.

    It is not attached again until the file is another, or an operator says so. Raises :class:`OSError`.
    """
    if directory.policy.current().seed is None and not has_seed(directory.layout):
        return
    with seed_lock(directory, directory.lock_timeout_seconds):
        take_away(directory)


@contextlib.contextmanager
def seed_lock(directory: CacheDirectory, seconds: float) -> Iterator[None]:
    """Hold the lock for making or removing a copy, which no reader takes. Raises :class:`OSError`."""
    lock = ProcessLock(directory.layout.seed_lock, seconds, layout=directory.layout)
    hold = lock.hold(seconds)
    try:
        yield
    finally:
        hold.release()
        lock.close()


def _is_too_large(seed: Seed, cap: int | None) -> bool:
    return cap is not None and not seed.is_detached and seed.bytes > most_seed_bytes(cap)


def _is_settled(directory: CacheDirectory, check: FreshnessCheck) -> bool:
    """Returns whether a process of this host has looked at the bundle within the last minute."""
    layout, seed = directory.layout, directory.policy.current().seed
    if was_refused(layout, check):
        _log.info("%s: no seed is read: %s was refused less than a minute ago", layout.root, check.path)
        return True
    is_stated = seed is not None and seed.path == check.path and bool(seed.version)
    return is_stated and was_checked(layout, check) and (seed is None or seed.is_detached or has_seed(layout))


def _attach_opened(directory: CacheDirectory, check: FreshnessCheck, *, by_operator: bool) -> Evicted:
    """Look at the file, and attach it. Requires: the seed's lock, and that it is settled what a death left."""
    layout, is_attached = directory.layout, False
    try:
        check.begin(layout)  # before the file is opened, which may hang
        with opened(check.path, READ & ~os.O_NOFOLLOW) as fd:
            evicted = _attach_locked(directory, fd, check, by_operator=by_operator)
        seed = directory.policy.current().seed
        is_attached = seed is not None and seed.path == check.path
    except FileNotFoundError:
        seed = directory.policy.current().seed
        if seed is not None and seed.path == check.path and stands(layout):
            check.end(layout, is_attached=True)
        raise
    except LockTimeoutError:
        raise  # says nothing of the file, which the next process looks at
    except (OSError, ArchiveError):
        check.end(layout, is_attached=False)
        raise
    check.end(layout, is_attached=is_attached)
    return evicted


def _attach_locked(directory: CacheDirectory, source_fd: int, check: FreshnessCheck, *, by_operator: bool) -> Evicted:
    layout, before, path = directory.layout, directory.policy.current().seed, check.path
    status = os.fstat(source_fd)
    refuse_unsafe(path, status, is_signed=check.is_signed)
    stays_operators = before is not None and before.path == path and before.by_operator
    version = f"{status.st_size}.{status.st_mtime_ns}"
    wanted = Seed(path, directory.space.of_bytes(status.st_size), version, by_operator or stays_operators)
    if before is not None and (before.path, before.version) == (path, version):
        if before.is_detached and not by_operator:
            return Evicted()
        if not before.is_detached and stands(layout):
            if before != wanted:
                directory.policy.replace_seed(wanted)
            return Evicted()
    _refuse_unfit(directory, source_fd, wanted, check.cap)
    return replace_copy(directory, source_fd, status.st_size, wanted)


def _refuse_unfit(directory: CacheDirectory, source_fd: int, wanted: Seed, cap: int | None) -> None:
    """Raise :class:`ArchiveError` for a bundle that is too large or damaged, before anything is evicted for it."""
    root, path, before = directory.layout.root, wanted.path, directory.policy.current().seed
    if _is_too_large(wanted, cap):
        what = f"{path} takes {wanted.bytes} bytes, more than half of the cap of {root} ({cap})"
        raise ArchiveError(f"{what}; for a smaller one run: lockcache bundle merge --max-size")
    if not is_in_order(source_fd):  # nor is it shown to a group
        if before is None or before.is_detached:  # it is not tried again while it is the same
            directory.policy.replace_seed(detached(wanted))
        what = f"{path} is not a bundle, is damaged, or is being written"
        raise ArchiveError(f"{what}; for more run: lockcache bundle verify {shlex.quote(path)}")
