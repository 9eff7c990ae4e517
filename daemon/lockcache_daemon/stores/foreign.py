# SPDX-License-Identifier: Apache-2.0
"""The store of a foreign directory: the program whose it is does not account, so walking measures its size.

Keeps invariant 3 (hard cap) as far as walks can: a directory that is past a high watermark at a walk is swept down to
the low watermark, least recently used first, whole entries only, each by the layout's own locked removal. Walks when
the directory changed, for a bounded share of a core, and now and then for changes that change no directory (a file that
grows in place). Another layout needs one more :class:`lockcache.layouts.Files`.

Not promised: a bound between walks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.accounting import GuestPolicy
from lockcache.layouts import Files, Guest, evict_each, measure
from lockcache.lowlevel import (
    SHARDS,
    Described,
    Evicted,
    Found,
    Goal,
    Policy,
    Slot,
    check_directory,
    choose_victims,
)
from lockcache_daemon.observe import Repairs
from lockcache_daemon.settings import Rules
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores.protocol import Step
from lockcache_daemon.throttle import Throttle

# Shares of one core, for all directories together. While a directory changes: 3,000 entries are walked in 40 ms, so a
# directory of up to some 3,500 is walked at every tick of half a second. While it does not: see Counting's rotation.
_CHANGED_DUTY: Final = 0.1
_ROTATION_DUTY: Final = 0.003

# As in recount_schedule.py: a look right after a change proves nothing where clocks are that coarse, and a file that
# was only just made may not have been filled.
_LOOK_AGAIN_SECONDS: Final = 2.0

# Entries that a walk keeps for the sweep after it: 16 MB. A sweep that needs more goes on after another walk.
_MOST_KEPT: Final = 65_536

# Between two checks whether an eviction is finished, where there are no ticks.
_FINISHING_SECONDS: Final = 0.05


class ForeignStore:
    """An open directory of another program (a :class:`.protocol.Store`)."""

    def __init__(self, guest: Guest, root: str, rules: Rules, stop: StopSignals) -> None:
        """Makes the directory if need be."""
        #: Describes an entry.
        self.describe: Callable[[Found], Described] = partial(guest.describe, root)
        self._stop = stop
        self.files: Files = guest.open_files(root, rules.settle_seconds, stop.raise_if_set)
        try:
            self.files.prepare()
        except BaseException:
            self.files.close()
            raise
        self.layout = self.files.layout
        self.repairs = Repairs()
        self.policy = GuestPolicy(self.files.layout)
        self._walking = Throttle(*rules.pace(_CHANGED_DUTY))
        self._rotating = Throttle(*rules.pace(_ROTATION_DUTY))
        self._held = Slot(0, 0)
        # The least recently used at the last walk, for the sweep that follows. ``None``: there was a sweep since, so
        # that sweeps are as rare as walks also where they free nothing.
        self._oldest: list[Found] | None = None
        self._is_changed = True
        self._glance: object = None
        self._look_again = 0.0
        self._busy_locks: set[str] = set()
        self.failure: OSError | None = None

    @property
    def busy(self) -> int:
        return len(self._busy_locks)

    def check(self) -> None:
        check_directory(self.layout, False)

    def begin(self) -> None:
        self._walk()

    def steps(self) -> Sequence[Step]:
        return (self._finish, self._walk_if_due)

    def held(self) -> Slot:
        return self._held

    def namespaces(self) -> Mapping[str, Slot]:
        return {}

    def architectures(self) -> Mapping[str, Slot]:
        return {}

    def sweep_namespace(self, name: str, low_bytes: int) -> Evicted:
        return Evicted()

    def sweep(self, goal: Goal) -> Evicted:
        """Evict down to ``goal`` after a walk. Until the next walk the evicted bytes are taken off what the walk found.

        The walk has found the victims, so that the first goes at once. Evicts nothing while the last victims are still
        on the disk: a budget of free space would evict more for them.
        """
        if self.files.is_pending:
            return Evicted()
        (oldest, self._oldest), self.failure = (self._oldest, None), None
        surplus = goal.surplus(self._held)
        if surplus == (0, 0):
            return Evicted()
        if oldest is None:
            self._is_changed = True  # a budget is exceeded without a change here: walk first, and then sweep
            return Evicted()
        victims = choose_victims(oldest, surplus.bytes, surplus.entries)
        evicted = self.remove(victims)
        if not goal.is_met(self._held):  # some victims were used, locked, or could not be removed
            self._is_changed = True
            if evicted.entries == len(oldest):
                self._walking.forgive()  # or more have to go than a walk keeps
        return evicted

    def entries(self) -> Iterator[Found]:
        return (each for each in self._found() if each.inode)

    def _found(self) -> Iterator[Found]:
        for each in self.files.scan(self._stop.raise_if_set):
            if each.last_use_ns > time.time_ns():
                self.files.restate(each)  # it counts as used now, and ages from here on
            yield each

    def remove(self, victims: list[Found]) -> Evicted:
        # The next tick tries locked entries again.
        done = evict_each(self.files, victims, self._stop.is_set, self._finish_meanwhile)
        evicted, self._busy_locks, failure = done
        self.failure = failure or self.failure
        self._held = Slot(self._held.bytes - evicted.bytes, self._held.entries - evicted.entries)
        return evicted

    def replace_policy(self, policy: Policy) -> None:
        self.policy.replace(policy)

    def policy_changed(self) -> None:
        self._is_changed = True

    def change(self, rules: Rules) -> None:
        self._walking.change(*rules.pace(_CHANGED_DUTY))
        self._rotating.change(*rules.pace(_ROTATION_DUTY))
        self.files.settle_seconds = rules.settle_seconds
        self._is_changed = True

    def count_all(self, advance: Callable[[], None]) -> int:
        self._walk()
        for _ in range(SHARDS):
            advance()
        return 0

    def count_again(self) -> None:
        while self.files.is_pending:
            self._stop.wait(_FINISHING_SECONDS)
            self._stop.raise_if_set()
            self.files.finish()
        self._walk()

    def remake(self) -> None:
        self.files.prepare()

    def close(self) -> None:
        self.files.close()

    def _finish(self) -> None:
        if self.files.is_pending:
            self._is_changed = True  # also if it fails: then the directory has to be measured again
            while self.files.finish():
                self._stop.raise_if_set()

    def _finish_meanwhile(self) -> None:
        """Free the bytes of a long eviction while it goes on."""
        try:
            self.files.finish()
        except OSError as error:
            self.failure = error

    def _walk_if_due(self) -> None:
        if self.files.is_pending:
            return  # the size after a sweep is known
        if (self._look() and self._walking.is_due) or self._rotating.is_due:
            self._walk()

    def _walk(self) -> None:
        with self._walking, self._rotating:
            oldest: list[Found] = []
            held = measure(_keep_oldest(self._found(), oldest), self.files.staged_bytes())
            self._is_changed = False
            self._held = held.slot
            self._oldest = sorted(oldest)[:_MOST_KEPT]
            with contextlib.suppress(LockTimeoutError):  # the next walk tries again
                self.files.reap(held.halves)

    def _look(self) -> bool:
        """Returns whether the directory changed since the last walk, or may have and is due for another walk."""
        now, glance = time.monotonic(), self.files.glance()
        if glance != self._glance:
            self._glance = glance
            self._look_again = now + _LOOK_AGAIN_SECONDS
            self._is_changed = True
        elif 0 < self._look_again <= now:
            self._look_again = 0.0
            self._is_changed = True
        return self._is_changed


def _keep_oldest(found: Iterable[Found], oldest: list[Found]) -> Iterator[Found]:
    """Yields what was found, and leaves the least recently used entries of it in ``oldest``."""
    for each in found:
        if each.inode:
            oldest.append(each)
            if len(oldest) >= 2 * _MOST_KEPT:
                oldest.sort()
                del oldest[_MOST_KEPT:]
        yield each
