"""Keeping one directory under its cap, tick by tick.

Keeps invariant 3 where writers alone cannot: beside programs that do not account, after deaths and under locks that
exclude nobody; and keeps room below the cap, so that writers seldom evict. Keeps invariant 7 for itself: each step of a
tick stands alone, one that fails is said once and tried again at the next tick, and what was deleted is made anew.

Not promised: a bound between two ticks for writers that do not account.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from lockcache.errors import LockTimeoutError, PolicyError
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.eviction import Evicted, sweep
from lockcache.filestream.goal import Goal
from lockcache.filestream.layout import SHARDS
from lockcache.filestream.recovery import reap, recount
from lockcache_daemon.attempts import Attempts
from lockcache_daemon.cap import Cap
from lockcache_daemon.counting import Counting
from lockcache_daemon.instance import Instance
from lockcache_daemon.pace import Pace
from lockcache_daemon.policing import repair_policy
from lockcache_daemon.report import Report, Summary, Sweep
from lockcache_daemon.rules import Rules
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.status import Status

__all__ = ["Keeper"]

# Short, because a signal has to be heard within a second also while some writer hangs with a lock.
_LOCK_TIMEOUT_SECONDS: Final = 0.25

# After a sweep that found nothing to evict (all is reserved, or the accounting is far too high) the next may take
# this share of the time, or it would walk the directory at every tick.
_FRUITLESS_DUTY: Final = 0.25


class Keeper:
    """One directory: :meth:`open`, then :meth:`tick` again and again, then :meth:`close`. For one thread.

    ``share_of_duty`` is this directory's part of what an idle daemon may cost.
    """

    def __init__(self, root: str, rules: Rules, report: Report, stop: StopSignals, share_of_duty: float = 1.0) -> None:
        self.root = root
        self._rules = rules
        self._report = report
        self._stop = stop
        self._share_of_duty = share_of_duty
        self._open: _Open | None = None
        self._cap = Cap(root, rules, report)
        self._attempts = Attempts(root, report, stop)
        self._sweeping = Pace(_FRUITLESS_DUTY, 0.0)
        self._was_fruitless = False
        self._status = Status()

    @property
    def is_well(self) -> bool:
        """Whether nothing failed, or all has worked since."""
        return self._attempts.is_well

    def open(self) -> None:
        """Make, check and lock the directory, and put the cap into it, also in place of a damaged policy.

        Raises :class:`AlreadyServedError`, what else :class:`CacheDirectory` raises, and :class:`Stopped`.
        """
        try:
            directory = self._open_directory()
        except PolicyError as error:
            repair_policy(self.root, self._rules.policy)
            self._report.policy_repaired(self.root, self._rules.policy, error)
            directory = self._open_directory()
        instance = Instance(directory.layout)
        try:
            instance.acquire()
        except BaseException:
            directory.close()
            raise
        counting = Counting(directory, self._rules.interval_seconds, self._share_of_duty, self._stop.is_set)
        self._open = _Open(directory, instance, counting)
        self._cap.forget()
        self._attempts.take(self._obey_policy)
        self._attempts.take(lambda: self._publish(at_once=True))
        self._report.started(self.root, self._cap.policy, self._cap.marks, directory.usage().total())

    def _open_directory(self) -> CacheDirectory:
        return CacheDirectory(self.root, _LOCK_TIMEOUT_SECONDS, self._stop.raise_if_set)

    def close(self) -> None:
        """Let go of the directory. Raises nothing."""
        if self._open is not None:
            self._open.instance.release()
            self._open.directory.close()
            self._open = None

    def tick(self) -> None:
        """Everything that is due. Raises only :class:`Stopped`."""
        if self._attempts.take(self._reattach):
            now = self._now
            self._attempts.take_all((self._obey_policy, now.counting.tick, self._reap, self._sweep, self._publish))

    def complete_pass(self, advance: Callable[[], None]) -> Summary:
        """Recount every shard, reap, and sweep if there is need. ``advance`` is called after each shard.

        Raises :class:`OSError` and :class:`Stopped`. Requires: open.
        """
        directory = self._now.directory
        before = directory.usage().total()
        repaired = busy = 0
        for shard in range(SHARDS):
            self._stop.raise_if_set()
            try:
                repair = recount(directory, shard)
                repaired += repair.before != repair.after
            except LockTimeoutError:
                busy += 1
            advance()
        reap(directory)
        evicted = self._sweep()
        self._stop.raise_if_set()
        return Summary(before, directory.usage().total(), repaired, busy, evicted)

    @property
    def _now(self) -> _Open:
        if self._open is None:
            raise ValueError(f"{self.root} is not open")
        return self._open

    def note_failure(self, error: Exception) -> None:
        """Say it, unless an error of its kind was said since this directory last worked."""
        self._attempts.note(error)

    def _reattach(self) -> None:
        """Open anew what was deleted or replaced underneath, and whatever an error may have left half usable."""
        if self._open is not None and self._open.instance.is_lost():
            self.close()
        if self._open is None:
            self.open()
        elif self._attempts.is_shaken:
            self._open.directory.remake()
        self._attempts.is_shaken = False

    def _obey_policy(self) -> None:
        self._cap.obey(self._now.directory.policy, self._now.directory.layout)

    def _reap(self) -> None:
        reap(self._now.directory)

    def _sweep(self) -> Evicted:
        directory, marks = self._now.directory, self._cap.marks
        before = directory.usage().total_bytes()
        if marks is None or before <= marks.high_bytes or (self._was_fruitless and not self._sweeping.is_due):
            return Evicted()
        began = time.perf_counter()
        with self._sweeping:
            evicted = sweep(directory, Goal(marks.low_bytes), self._stop.is_set)
        self._now.counting.after_sweep()
        self._was_fruitless = not evicted.entries
        if self._was_fruitless:
            self._now.counting.distrust()
            return evicted
        milliseconds = round((time.perf_counter() - began) * 1000, 1)
        done = Sweep(before, directory.usage().total_bytes(), evicted.entries, evicted.bytes, milliseconds)
        self._report.swept(self.root, done)
        self._status.count(done)
        return evicted

    def _publish(self, *, at_once: bool = False) -> None:
        now = self._now
        total = now.directory.usage().total
        self._status.publish(now.instance, self._cap.policy, self._cap.marks, total, at_once=at_once)


class _Open:
    """What is open of a directory, as one unit: replaced together when the directory is."""

    def __init__(self, directory: CacheDirectory, instance: Instance, counting: Counting) -> None:
        self.directory = directory
        self.instance = instance
        self.counting = counting
