"""Keeping a directory of another program's under its cap: nobody accounts there, so its size is known by walking.

Keeps invariant 3 as far as that goes: what is past the high watermark at a walk is evicted down to the low one, least
recently used first, whole entries only, each by the layout's own locked removal. Walks when the directory changed, for
a bounded share of a core, and now and then for what changes no directory (a file that grows in place). Keeps invariant
7 as :mod:`.keeper` does. Widens to another layout with one more :class:`.files.Files`.

Not promised: a bound between walks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.eviction import Evicted, choose_victims
from lockcache.filestream.layout import SHARDS
from lockcache.filestream.policy import PolicyFile
from lockcache.filestream.scan import Found
from lockcache.filestream.usage import Slot
from lockcache_daemon.attempts import Attempts
from lockcache_daemon.cap import Cap
from lockcache_daemon.files import Files, measure
from lockcache_daemon.instance import Instance
from lockcache_daemon.pace import Pace
from lockcache_daemon.report import Report, Summary, Sweep
from lockcache_daemon.rules import Rules
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.status import Status

__all__ = ["WalkingKeeper"]

# Shares of one core, for all directories together. While a directory changes: 3,000 entries are walked in 40 ms, so up
# to some 3,500 it is done at every tick of half a second. While it does not: see Counting's rotation.
_CHANGED_DUTY: Final = 0.1
_ROTATION_DUTY: Final = 0.003

# As in changes.py: a look right after a change proves nothing where clocks are that coarse, and a file that was only
# just made may not have been filled.
_LOOK_AGAIN_SECONDS: Final = 2.0


class WalkingKeeper:
    """One directory, as :class:`.keeper.Keeper` has it. For one thread. ``open_files`` makes the directory if need be.

    ``share_of_duty`` is this directory's part of what the daemon may cost.
    """

    def __init__(
        self,
        root: str,
        rules: Rules,
        report: Report,
        stop: StopSignals,
        share_of_duty: float,
        open_files: Callable[[str], Files],
    ) -> None:
        self.root = root
        self._report = report
        self._stop = stop
        self._open_files = open_files
        self._cap = Cap(root, rules, report)
        self._attempts = Attempts(root, report, stop)
        self._status = Status()
        self._walking = Pace(_CHANGED_DUTY * share_of_duty, rules.interval_seconds)
        self._rotating = Pace(_ROTATION_DUTY * share_of_duty, rules.interval_seconds)
        self._open: _Open | None = None
        self._held = Slot(0, 0)
        # Walked since the last sweep: so sweeps, which walk again, are as rare as walks also where they free nothing.
        self._is_fresh = False

    @property
    def is_well(self) -> bool:
        """Whether nothing failed, or all has worked since."""
        return self._attempts.is_well

    def open(self) -> None:
        """Make, check and lock the directory, put the cap into it, and walk it once.

        Raises :class:`AlreadyServedError`, what opening such a directory raises, and :class:`Stopped`.
        """
        files = self._open_files(self.root)
        files.prepare()
        instance = Instance(files.layout)
        try:
            instance.acquire()
        except BaseException:
            files.close()
            raise
        self._open = _Open(files, instance)
        self._cap.forget()
        self._attempts.take(self._obey_policy)
        self._attempts.take(self._walk)
        self._attempts.take(lambda: self._publish(at_once=True))
        self._report.started(self.root, self._cap.policy, self._cap.marks, self._held)

    def close(self) -> None:
        """Let go of the directory. Raises nothing."""
        if self._open is not None:
            self._open.instance.release()
            self._open.files.close()
            self._open = None

    def tick(self) -> None:
        """Everything that is due. Raises only :class:`Stopped`."""
        if self._attempts.take(self._reattach):
            self._attempts.take_all((self._obey_policy, self._walk_if_due, self._sweep, self._publish))

    def complete_pass(self, advance: Callable[[], None]) -> Summary:
        """Walk, reap, and sweep if there is need. ``advance`` is called after the walk, ``SHARDS`` times.

        Raises :class:`OSError` and :class:`Stopped`. Requires: open.
        """
        self._walk()
        before = self._held
        for _ in range(SHARDS):
            advance()
        evicted = self._sweep()
        self._walk()
        self._stop.raise_if_set()
        return Summary(before, self._held, 0, len(self._now.busy), evicted)

    def note_failure(self, error: Exception) -> None:
        """Say it, unless an error of its kind was said since this directory last worked."""
        self._attempts.note(error)

    @property
    def _now(self) -> _Open:
        if self._open is None:
            raise ValueError(f"{self.root} is not open")
        return self._open

    def _reattach(self) -> None:
        """Open anew what was deleted or replaced underneath."""
        if self._open is not None and self._open.instance.is_lost():
            self.close()
        if self._open is None:
            self.open()
        elif self._attempts.is_shaken:
            self._open.files.prepare()
        self._attempts.is_shaken = False

    def _obey_policy(self) -> None:
        before = self._cap.policy
        self._cap.obey(self._now.policy, self._now.files.layout)
        self._now.is_changed |= self._cap.policy != before

    def _walk_if_due(self) -> None:
        if (self._now.look(self.root) and self._walking.is_due) or self._rotating.is_due:
            self._walk()

    def _walk(self) -> None:
        now = self._now
        with self._walking, self._rotating:
            held = measure(now.files.scan(self._stop.raise_if_set), now.files.staged_bytes())
            now.is_changed = False
            self._held = held.slot
            self._is_fresh = True
            with contextlib.suppress(LockTimeoutError):  # the next walk tries again
                now.files.reap(held.halves)

    def _sweep(self) -> Evicted:
        """After a walk. What it evicts is taken off what that found; the next one finds out the rest."""
        marks, before, is_fresh = self._cap.marks, self._held, self._is_fresh
        self._is_fresh = False
        if marks is None or before.bytes <= marks.high_bytes or not is_fresh:
            return Evicted()
        began = time.perf_counter()
        entries = (each for each in self._now.files.scan(self._stop.raise_if_set) if each.inode)
        victims, _ = choose_victims(entries, before.bytes - marks.low_bytes, 0)
        evicted, error = self._evict(victims)
        self._held = Slot(before.bytes - evicted.bytes, before.entries - evicted.entries)
        self._now.is_changed |= self._held.bytes > marks.low_bytes  # some were used, locked, or not to be removed
        if evicted.entries:
            milliseconds = round((time.perf_counter() - began) * 1000, 1)
            done = Sweep(before.bytes, self._held.bytes, evicted.entries, evicted.bytes, milliseconds)
            self._report.swept(self.root, done)
            self._status.count(done)
        if error is not None:
            raise error
        return evicted

    def _evict(self, victims: list[Found]) -> tuple[Evicted, OSError | None]:
        """Evict what is still as it was chosen; one that cannot be removed keeps no other. Ends early if told to."""
        now, evicted, failure = self._now, Evicted(), None
        now.busy.clear()
        for victim in victims:
            if self._stop.is_set():
                break
            if victim.name[0] in now.busy:
                continue
            try:
                if now.files.evict(victim):
                    evicted += Evicted(1, victim.size_bytes)
            except LockTimeoutError:
                now.busy.add(victim.name[0])  # its writer is at work, or hangs: the next tick tries again
            except OSError as error:
                failure = error
        return evicted, failure

    def _publish(self, *, at_once: bool = False) -> None:
        self._status.publish(self._now.instance, self._cap.policy, self._cap.marks, lambda: self._held, at_once=at_once)


class _Open:
    """What is open of a directory, as one unit: replaced together when the directory is."""

    def __init__(self, files: Files, instance: Instance) -> None:
        self.files = files
        self.instance = instance
        self.policy = PolicyFile(files.layout)
        #: Locks that the last sweep found taken.
        self.busy: set[str] = set()
        self.is_changed = True
        self._mtime_ns = 0
        self._look_again = 0.0

    def look(self, root: str) -> bool:
        """Whether the directory changed since the last walk, or might have and is due for another."""
        mtime_ns = 0
        with contextlib.suppress(FileNotFoundError):
            mtime_ns = os.stat(root).st_mtime_ns
        now = time.monotonic()
        if mtime_ns != self._mtime_ns:
            self._mtime_ns = mtime_ns
            self._look_again = now + _LOOK_AGAIN_SECONDS
            self.is_changed = True
        elif 0 < self._look_again <= now:
            self._look_again = 0.0
            self.is_changed = True
        return self.is_changed
