"""Counters of all programs that share a directory, hits, misses and the like: one small page that they add to.

Keeps invariant 7 (never take the job down) and the cost of a hit: nothing here is on the path of a hit or a miss,
nothing raises, nothing waits but at a process's end, and then not long. An object counts for itself as it always did,
and adds what came since the last time: on ``stats()`` and ``close()``, when it is collected, at the interpreter's exit,
and with a put once ten seconds have passed. So a program that runs for days and only hits is seen when it ends, or
calls ``stats()``.

Kept true across fork: a child begins with nothing to add, so that what its parent counted is added by the parent alone.
Children of :mod:`multiprocessing` end by ``os._exit``, which runs no exit handlers but multiprocessing's own, so it is
also among those. Not promised: what a killed process, or one that ends by ``os._exit`` itself, had not added yet; nor
exact numbers where locks exclude nobody (invariant 6, locks coordinate). Nothing but people and dashboards may rely on
these numbers.

The page, little-endian: ``LCcount`` and a version byte, then as int64 the fields of :class:`Counters` in their order,
then zeros up to 128 bytes. A file that is something else is removed (its name is reserved), one of a newer version
left.
"""

from __future__ import annotations

import os
import random
import stat
import struct
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from filelock import lock_descriptor

from lockcache.filestream.accounting.misses import Miss, add_misses_locked
from lockcache.filestream.accounting.summary import Summary, Totals
from lockcache.filestream.disk import (
    READ,
    UPDATE,
    Hold,
    Layout,
    Mark,
    open_below,
    open_or_create,
    read_small,
    refuse_symlink,
    replace_file,
    unlink_below,
)
from lockcache.fork import after_fork_in_child

_MAGIC: Final = b"LCcount"
_VERSION: Final = 1
_PAGE_BYTES: Final = 128
_LARGEST: Final = 2**63 - 1

# A put is 60 us and more, one report 15: a thousandth of a busy writer's time, and as fresh as a dashboard needs.
_INTERVAL_NS: Final = 10 * 10**9

# A report holds the lock for some 10 us. Sized for a job of a thousand ranks that end together.
_PATIENCE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 0.002

# Of one report: some 10 us each, while others wait for the page.
_MOST_NOTED: Final = 16


class Counters(NamedTuple):
    """What all programs that reported did, since the page was made. The names are those of ``CacheStats``."""

    hits: int = 0
    misses: int = 0
    puts: int = 0
    #: By programs, to make room; what a daemon evicts it reports itself.
    evictions: int = 0
    dropped_writes: int = 0
    corrupt_entries: int = 0
    #: Among ``hits``.
    unverified_hits: int = 0
    #: How often a program added something, and when it last did, in ns since the epoch. 0: never.
    reports: int = 0
    last_report_ns: int = 0
    #: What compiling took when it was done, in ns, summed over hits: of entries whose record says it.
    saved_ns: int = 0

    @property
    def hit_ratio(self) -> float | None:
        """Hits of all lookups, 0 to 1; ``None`` before the first lookup was reported."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else None


_BODY: Final = struct.Struct(f"<{len(Counters._fields)}q")
_NOTHING: Final = Counters()


def read_counters(layout: Layout) -> Counters:
    """What the page says: zeros if nobody reported yet, or it cannot be read or understood."""
    try:
        with open_below(layout, layout.counters, READ) as fd:
            return _decode(os.pread(fd, _PAGE_BYTES, 0)) or _NOTHING
    except OSError:
        return _NOTHING


def read_since(layout: Layout, now: Counters) -> Counters | None:
    """What came to ``now`` since :func:`reset_counters`, whose time is ``last_report_ns``; ``None`` if nobody did that.

    Nor does it count if the page was made again since, and so says less than it did.
    """
    try:
        base = _decode(read_small(layout, layout.counters_base, _PAGE_BYTES))
    except OSError:
        return None
    if base is None or base == _NOTHING:
        return None
    since = _difference(now, base)._replace(last_report_ns=base.last_report_ns)
    return since if min(since) >= 0 else None


def reset_counters(layout: Layout) -> None:
    """Begin to count again, for people: the page goes on, and what it says now is put next to it, to be subtracted.

    So a metric never falls, and no program's report is lost to a reset. Raises :class:`OSError`.
    """
    base = read_counters(layout)._replace(last_report_ns=time.time_ns())
    replace_file(layout, layout.counters_base, _page(base), fsync=False)


class CountersReport:
    """Adds what one cache object counts to its directory's page. ``counts`` must not keep that object alive.

    Where the directory is only read (``is_read_only``) nothing is added: it counts for the summary of its process.
    """

    __slots__ = (
        "__weakref__",
        "_began",
        "_counts",
        "_due_ns",
        "_is_read_only",
        "_layout",
        "_misses",
        "_reported",
        "_reporting",
        "failures",
    )

    def __init__(self, layout: Layout, counts: Callable[[], Counters], *, is_read_only: bool = False) -> None:
        self._layout = layout
        self._counts = counts
        self._is_read_only = is_read_only
        self._began = self._reported = _NOTHING
        self._due_ns = time.time_ns() + _INTERVAL_NS
        self._reporting: dict[None, Mark] = {}
        #: Reports that could not be made. What they held is part of the next.
        self.failures = 0
        # For the ring. Of a job's first minute the last ones will do.
        self._misses: deque[Miss] = deque(maxlen=_MOST_NOTED)
        after_fork_in_child(self)

    def note(self, miss: Miss) -> None:
        """Have a miss put into the ring with the next report, if it says what its key was made of."""
        if miss.parts and not self._is_read_only:
            self._misses.append(miss)

    def report_if_due(self, now_ns: int) -> None:
        """With a put: ``now_ns`` is the time that it takes anyhow, so this costs it two comparisons."""
        # The second one: the clock was set back.
        if now_ns >= self._due_ns or now_ns < self._due_ns - 2 * _INTERVAL_NS:
            self.report()

    def report(self, patience_seconds: float = 0.0) -> None:
        """Add what is new, unless somebody holds the page for longer than that. Raises nothing."""
        if self._is_read_only:
            return
        # Never waited for: this may run in the garbage collector, in the thread that holds it.
        mine = Hold(self)
        if self._reporting.setdefault(None, mine.mark) is not mine.mark:
            return
        try:
            now = self._counts()
            self._due_ns = time.time_ns() + _INTERVAL_NS
            if now != self._reported:
                if _add(self._layout, _difference(now, self._reported), patience_seconds, self._keep_misses_locked):
                    self._reported = now
                else:
                    self.failures += 1
        except OSError:
            self.failures += 1  # read-only, full, deleted, planted: the program has other things to do
        finally:
            mine.release()

    def _keep_misses_locked(self) -> None:
        """Put the misses into the ring, or drop them. Requires: the lock of the page."""
        misses = [self._misses.popleft() for _ in range(len(self._misses))]
        try:
            if misses:
                add_misses_locked(self._layout, misses)
        except OSError:
            self.failures += 1

    def counted(self) -> Counters:
        """Returns what was counted in this process."""
        return _difference(self._counts(), self._began)

    def report_patiently(self) -> None:
        """As :meth:`report`, for the end: what is not added now never is."""
        self.report(_PATIENCE_SECONDS)

    def give_back(self, mark: Mark) -> None:
        """Take a mark out, if it is in: see :class:`.disk.locks.Lockable`."""
        if self._reporting.get(None) is mark:
            self._reporting.pop(None)

    recover = give_back

    def _after_fork_in_child(self) -> None:
        self._reporting = {}
        self._began = self._reported = self._counts()
        self.failures = 0
        self._misses = deque(maxlen=_MOST_NOTED)
        _arm_children()


def report_at_end(owner: object, report: CountersReport) -> None:
    """Have ``report`` made when ``owner`` is collected, and when this process ends, if that is sooner."""
    weakref.finalize(owner, _end, report)
    _reports.add(report)
    _arm_multiprocessing()
    _summary.arm()


_reports: weakref.WeakSet[CountersReport] = weakref.WeakSet()


class _Ended:
    """What the objects of this process counted that are no more."""

    def __init__(self) -> None:
        self.counted = _NOTHING
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self.counted = _NOTHING


_ended = _Ended()


def _end(report: CountersReport) -> None:
    report.report_patiently()
    if report in _reports:
        _reports.discard(report)
        _ended.counted = _sum(_ended.counted, report.counted())


def _counted_here() -> Totals:
    counted = _ended.counted
    for report in list(_reports):
        counted = _sum(counted, report.counted())
    # Each program that was compiled was handed to a cache once.
    return Totals(counted.hits, counted.puts, counted.dropped_writes, counted.saved_ns)


_summary = Summary(_counted_here)

# In which process multiprocessing was given our exit handler (children do not inherit it), and whether it was asked to
# call us in its children (that they do inherit).
_armed_pid = 0
_is_armed_for_children = False


def _report_all(*_: object) -> None:
    for report in list(_reports):
        report.report_patiently()
    _summary.print_once()


def _arm_multiprocessing() -> None:
    """Be among multiprocessing's exit handlers, if it is loaded: its children run no others."""
    _arm_children()
    if "multiprocessing.util" in sys.modules and _armed_pid != os.getpid():
        _arm()


def _arm_children() -> None:
    # Between the fork and the child's own code multiprocessing forgets all exit handlers, then calls who asked for it.
    global _is_armed_for_children
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _is_armed_for_children:
        _is_armed_for_children = True
        util.register_after_fork(_reports, _arm)


def _arm(*_: object) -> None:
    global _armed_pid
    _armed_pid = os.getpid()
    # Last of all: other handlers may still use a cache.
    sys.modules["multiprocessing.util"].Finalize(None, _report_all, exitpriority=-1000)


def _add(layout: Layout, delta: Counters, patience_seconds: float, then: Callable[[], None]) -> bool:
    """Add ``delta`` to the page, which is made if it is missing (its directory is not). Whether that was done.

    ``then`` is called under its lock, once the page is written.
    """
    path = layout.counters
    refuse_symlink(layout.own)
    with open_or_create(layout, path, UPDATE) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not _lock(fd, patience_seconds):
            return False
        status, named = os.fstat(fd), os.lstat(path)
        if (status.st_dev, status.st_ino) != (named.st_dev, named.st_ino):
            return False  # deleted underneath, and perhaps made again
        blob = os.pread(fd, _PAGE_BYTES, 0)
        held = _decode(blob)
        if held is None or status.st_nlink != 1:
            # Damaged, or a second name of somebody else's file, which must not be written into.
            if not _is_newer(blob):
                unlink_below(layout, path)
            return False
        os.pwrite(fd, _encode(held, delta), 0)
        then()
        return True


def _lock(fd: int, patience_seconds: float) -> bool:
    deadline = time.monotonic() + patience_seconds
    while not lock_descriptor(fd, blocking=False):
        if time.monotonic() >= deadline:
            return False
        time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))
    return True


def _difference(now: Counters, before: Counters) -> Counters:
    return Counters._make(new - old for new, old in zip(now, before, strict=True))


def _sum(one: Counters, other: Counters) -> Counters:
    return Counters._make(mine + more for mine, more in zip(one, other, strict=True))


def _encode(held: Counters, delta: Counters) -> bytes:
    return _page(_sum(held, delta)._replace(reports=held.reports + 1, last_report_ns=time.time_ns()))


def _page(counters: Counters) -> bytes:
    in_range = (min(max(0, number), _LARGEST) for number in counters)
    return (_MAGIC + bytes([_VERSION]) + _BODY.pack(*in_range)).ljust(_PAGE_BYTES, b"\0")


def _decode(blob: bytes) -> Counters | None:
    """``None`` for what is not a page. An empty one, or what a power cut may leave of it, holds nothing yet."""
    if not blob.strip(b"\0"):
        return _NOTHING
    if len(blob) != _PAGE_BYTES or blob[:8] != _MAGIC + bytes([_VERSION]):
        return None
    return Counters._make(max(0, number) for number in _BODY.unpack_from(blob, 8))


def _is_newer(blob: bytes) -> bool:
    return blob[:7] == _MAGIC and blob[7:8] > bytes([_VERSION])
