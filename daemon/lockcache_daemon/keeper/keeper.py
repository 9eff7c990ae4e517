# SPDX-License-Identifier: Apache-2.0
"""Keeper: keeps one directory within its budgets, tick by tick, whatever its layout.

Keeps invariant 3 (hard cap) where writers alone cannot: with programs that do not account, after deaths and under locks
that exclude nobody; and keeps room below the cap, so that writers seldom evict. Keeps invariant 7 (never take the job
down) for the daemon: each step of a tick stands alone, a step that fails is reported once and tried again at the next
tick, and what was deleted is made again.

Not promised: a bound between two ticks for writers that do not account, or for budgets other than the cap.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from lockcache.filestream.accounting import space_of
from lockcache.layouts import with_room
from lockcache.lowlevel import Evicted, Found, Goal, Layout, Slot
from lockcache_daemon.errors import AlreadyServedError
from lockcache_daemon.keeper.attempts import Attempts
from lockcache_daemon.keeper.max_age import Ageing
from lockcache_daemon.keeper.policy import Cap
from lockcache_daemon.keeper.root_user import refuse_as_root
from lockcache_daemon.keeper.safety_checks import MountCheck, SafetyCheck
from lockcache_daemon.keeper.single_instance import Instance, Standby, Status
from lockcache_daemon.observe import Report, Summary, Sweep, UnreportedRepairs
from lockcache_daemon.settings import Exceeded, Rules, Watermarks, of_namespaces, of_size, own_budgets
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores import KeptDirectory, MakePart, OpenStore, Part, Step, Store, choose_layout, store_of

T = TypeVar("T")


class Keeper:
    """Keeps one directory: :meth:`open`, then :meth:`tick` again and again, then :meth:`close`. For one thread."""

    def __init__(
        self, root: str, rules: Rules, report: Report, stop: StopSignals, parts: Sequence[MakePart] = ()
    ) -> None:
        self.root = root
        self.rules = rules
        #: ``None``: not known before the first opening.
        self.layout: str | None = None
        self._report = report
        self._stop = stop
        self._make_parts = parts
        self._open: _Open | None = None
        self._standby: Standby | None = None
        self._mount = MountCheck(root)
        self._cap = Cap(root, rules, report)
        self._attempts = Attempts(root, report, stop)
        self._status = Status()

    @property
    def is_well(self) -> bool:
        """Whether no step failed, or all steps have worked since."""
        return self._attempts.is_well

    @property
    def is_able(self) -> bool:
        """Whether the directory is open, so that the keeper can be asked about it."""
        return self._open is not None

    @property
    def is_safe(self) -> bool:
        """Whether the directory may be touched: it is not open, or at the last check nobody else could write to it."""
        return self._open is None or self._open.safety.is_safe

    @property
    def is_standing_by(self) -> bool:
        """Whether another daemon keeps the directory, and this one waits for its death."""
        return self._standby is not None

    @property
    def store(self) -> Store:
        """The open directory. Requires: open."""
        return self._now.store

    def held(self) -> Slot:
        """Returns the bytes and entries, as far as is known. Raises :class:`OSError`. Requires: open."""
        return self._now.store.held()

    def choose_layout(self) -> str:
        """Decide, once and for all, whose files are there. Raises as :func:`.stores.choose_layout`."""
        if self.layout is None:
            has_namespaces = bool(self.rules.namespaces)
            wanted, warn = self.rules.layout, self._report.warned
            self.layout = choose_layout(self.root, wanted, warn, has_namespaces=has_namespaces)
            self._report.board.update(self.root, layout=self.layout)
        return self.layout

    def open(self, *, begins: bool = True) -> None:
        """Make, check and lock the directory, and :meth:`begin`, unless the caller does when others are open too.

        Raises :class:`AlreadyServedError`, the other errors of opening such a directory, and :class:`Stopped`.
        """
        self._mount.check()
        refuse_as_root(self.root, self.rules.group)
        was_there = os.path.lexists(self.root)
        open_all = partial(self._open_and_lock, store_of(self.choose_layout()))
        store, instance = self._with_room(open_all)
        ageing = Ageing(store.entries, self.rules)
        self._mount.remember()
        self._open = _Open(store, SafetyCheck(store.layout, self._refuse), instance, ageing, [], not was_there)
        self._make_the_parts()
        self._cap.forget()
        if begins:
            self.begin()

    def _with_room(self, step: Callable[[], T]) -> T:
        """Take a step without which nothing is evicted: on a full disk some entries go first, by themselves."""
        return with_room(self.root, self.choose_layout(), step, settle_seconds=self.rules.settle_seconds)

    def _open_and_lock(self, open_store: OpenStore) -> tuple[Store, Instance]:
        store = open_store(self.root, self.rules, self._stop)
        instance = Instance(store.layout)
        try:
            instance.acquire()
        except BaseException:
            store.close()
            raise
        return store, instance

    def begin(self) -> None:
        """Put the cap into the directory, and report the start. Raises :class:`Stopped`. Requires: open."""
        store = self._now.store
        self._with_room(store.held)
        self.attempt(lambda: self._with_room(self._obey_policy))
        self.attempt(store.begin)
        self.attempt(lambda: self._publish(at_once=True))
        made, budgets, held = self._now.was_made, self.rules.more_in_words(), store.held()
        layout, policy = self.choose_layout(), self._cap.policy
        self._report.started(self.root, layout, policy, self._marks(), held, was_made=made, budgets=budgets)

    def open_or_stand_by(self, *, begins: bool = True) -> None:
        """Open the directory, or stand by if another daemon keeps it and the rules say so.

        Raises the errors of :meth:`open`.
        """
        try:
            self.open(begins=begins)
        except AlreadyServedError as error:
            if not self.rules.standby:
                raise
            self._mount.remember()
            self._standby = Standby(Layout(self.root))
            self._report.standing_by(self.root, error)

    def close(self) -> None:
        """Close and unlock the directory. Raises nothing."""
        if self._standby is not None:
            self._standby.close()
            self._standby = None
        now, self._open = self._open, None
        if now is not None:
            now.close_parts()
            now.instance.release()
            now.store.close()

    def tick(self) -> None:
        """Take every step that is due. Raises only :class:`Stopped`."""
        ready = self._reattach if self._standby is None else self._take_over
        if self.attempt(ready):
            self._attempts.make_all(self._steps())

    def _take_over(self) -> bool:
        """Open the directory if nobody keeps it any more. Returns whether it is open."""
        waiting = self._standby
        if waiting is None or not waiting.is_free():
            return False
        with contextlib.suppress(AlreadyServedError):  # another standby was faster
            self.open()
            waiting.close()
            self._standby = None
            self._report.took_over(self.root)
        return self._open is not None

    def _steps(self) -> Sequence[Step]:
        """Returns the steps of a tick, in order."""
        now = self._now
        parts = (part.tick for part in now.parts)
        looks = (self._obey_policy, *now.store.steps(), self._report_repairs)
        return (*looks, self._sweep, self._sweep_namespaces, self._remove_aged, *parts, self._publish)

    def complete_pass(self, advance: Callable[[], None]) -> Summary:
        """Count everything, reap, and sweep if a budget is exceeded. Calls ``advance`` ``SHARDS`` times.

        Raises :class:`OSError` and :class:`Stopped`. Requires: open.
        """
        store = self._now.store
        before, repairs = store.held(), store.repairs
        repaired = self._with_room(partial(store.count_all, advance))
        self._with_room(self._obey_policy)  # what others have in tmp/ is known by now
        evicted = self._meet(own_budgets(self.rules, self._cap.policy, store))
        store.count_again()
        self._stop.raise_if_set()
        return Summary(before, store.held(), repaired, store.busy, evicted, store.repairs.since(repairs))

    @property
    def kept(self) -> KeptDirectory:
        """The open directory with its rules, for work that is done once. Requires: open."""
        return KeptDirectory(self.root, self._now.store, self.rules, self._report, self._stop)

    def note_failure(self, error: Exception) -> None:
        """Report ``error``, unless an error of its kind was reported since this directory last worked."""
        self._attempts.note(error)

    def change(self, rules: Rules, parts: Sequence[MakePart] = ()) -> None:
        """Put other settings in force from the next tick on. Raises nothing."""
        self._cap.change(rules)
        self.rules = rules
        self._make_parts = parts
        now = self._open
        if now is not None:
            now.store.change(rules)
            now.ageing = Ageing(now.store.entries, rules)
            now.close_parts()
            self._make_the_parts()

    def attempt(self, step: Callable[[], T]) -> T | None:
        """Take one step for this directory. Returns its result; ``None`` if it failed. Raises only :class:`Stopped`."""
        return self._attempts.make(step)

    def entries(self) -> Iterator[Found]:
        """Yields every whole entry, in no order. An error is noted and ends the iteration. Requires: open."""
        try:
            yield from self._now.store.entries()
        except OSError as error:
            self._attempts.note(error)

    def sweep_for(self, budget: str, goal: Goal) -> Evicted:
        """Evict for a budget that directories share. Raises only :class:`Stopped`. Requires: open."""
        exceeded = Exceeded(budget, partial(self._now.store.sweep, goal))
        return self.attempt(lambda: self._evict(exceeded)) or Evicted()

    def _meet(self, budgets: Iterable[Exceeded]) -> Evicted:
        """Evict for each of ``budgets``. Raises :class:`OSError`. Requires: open."""
        return sum((self._evict(each) for each in budgets), Evicted())

    def _evict(self, exceeded: Exceeded) -> Evicted:
        """Evict for a budget, and report the sweep. Raises :class:`OSError`. Requires: open."""
        store = self._now.store
        before = store.held()
        began = time.perf_counter()
        evicted = self._with_room(partial(self._evict_with_locks, exceeded))
        if evicted.entries:
            milliseconds = round((time.perf_counter() - began) * 1000, 1)
            after = store.held()
            done = Sweep(before.bytes, after.bytes, evicted.entries, evicted.bytes, milliseconds, exceeded.budget)
            self._report.swept(self.root, done)
            self._status.count(done)
        if store.failure is not None:
            raise store.failure
        return evicted

    def _evict_with_locks(self, exceeded: Exceeded) -> Evicted:
        """Evict. Raises :class:`OSError` where nothing went and the disk has no inode for the lock of a shard."""
        evicted = exceeded.evict()
        if not evicted.entries:
            disk = os.statvfs(self.root)
            if disk.f_files and not disk.f_favail:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.root)
        return evicted

    @property
    def _now(self) -> _Open:
        if self._open is None:
            raise ValueError(f"{self.root} is not open")
        return self._open

    def _make_the_parts(self) -> None:
        self._now.parts[:] = [part for make in self._make_parts if (part := make(self.kept)) is not None]

    def _marks(self) -> Watermarks | None:
        """Returns the watermarks in force; ``None`` without a cap. Raises :class:`OSError`. Requires: open."""
        return self.rules.watermarks(self._cap.policy, space_of(self._now.store.layout))

    def _refuse(self) -> None:
        """Raise the error that opening the directory now would raise. Requires: open."""
        refuse_as_root(self.root, self.rules.group)
        self._now.store.check()

    def _reattach(self) -> bool:
        """Open again a directory that was deleted or replaced, and repair what an error may have left half usable.

        Returns whether it is open.
        """
        if self._open is not None:
            self._open.safety.check()
            if self._open.instance.is_lost():
                self.close()
        if self._open is None:
            self.open_or_stand_by()
        elif self._attempts.is_shaken:
            self._open.store.remake()
        self._attempts.is_shaken = False
        return self._open is not None

    def _obey_policy(self) -> None:
        store, before = self._now.store, self._cap.policy
        self._cap.obey(store)
        if self._cap.policy != before:
            store.policy_changed()

    def _sweep(self) -> None:
        self._meet(of_size(self.rules, self._cap.policy, self._now.store))

    def _sweep_namespaces(self) -> None:
        self._meet(of_namespaces(self.rules, self._now.store))

    def _remove_aged(self) -> None:
        """Remove the entries that are too old, as many as are due."""
        if self.rules.max_age_seconds is not None:
            old = self._now.ageing.due(self.rules.max_age_seconds)
            if old:
                self._evict(Exceeded("max-age", partial(self._now.store.remove, old)))

    def _report_repairs(self) -> None:
        now = self._now
        repairs = now.unreported.take(now.store.repairs)
        if repairs is not None:
            self._report.drifted(self.root, repairs)

    def _publish(self, *, at_once: bool = False) -> None:
        now = self._now
        policy = self._cap.policy
        namespaces = {name: slot._asdict() for name, slot in now.store.namespaces().items()}
        self._status.more = {"repairs": now.store.repairs._asdict(), "namespaces": namespaces}
        for part in now.parts:
            self._status.more |= part.status_fields()
        layout = self.choose_layout()
        self._status.publish(now.instance, layout, policy, self._marks(), now.store.held, at_once=at_once)


@dataclass
class _Open:
    """The open parts of a directory, as one unit: replaced together when the directory is replaced."""

    store: Store
    safety: SafetyCheck
    instance: Instance
    ageing: Ageing
    parts: list[Part]
    was_made: bool
    unreported: UnreportedRepairs = field(default_factory=UnreportedRepairs)

    def close_parts(self) -> None:
        for part in reversed(self.parts):
            part.close()
