# SPDX-License-Identifier: Apache-2.0
"""Records of a worker's operations, each with its outcome, which make up its history."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from lockcache_stress.judge.operations import Kind, Recorder, Value
from lockcache_stress.judge.register import Stamp
from lockcache_stress.judge.removals import Watch
from lockcache_stress.plan import Plan

# The serial of a stamp counts the writes of one variant; the serial of a value has the variant in its upper bits.
_VARIANT_SHIFT = 24


class Recorded:
    """One operation, while it goes on."""

    def __init__(self, kind: Kind, value: Value | None) -> None:
        self.kind = kind
        self.value = value
        self.ended_ns: int | None = None
        #: Whether the operation may take effect at any time after its begin, or never, although it has returned.
        self.is_undecided = False

    def returned(self) -> None:
        """Note that the cache has returned just now, before the judgement, which takes time."""
        self.ended_ns = time.monotonic_ns()

    def hit(self, stamp: Stamp | None) -> None:
        """Note that the operation gave the value of this write, or of a write that the bytes do not name."""
        self.kind = Kind.HIT_UNKNOWN if stamp is None else Kind.HIT
        self.value = None if stamp is None else _value(stamp)

    def absent(self) -> None:
        """Note that the operation found no entry."""
        self.kind = Kind.ABSENT

    def nothing(self) -> None:
        """Note that the operation had no effect, and that its result proves nothing."""
        self.kind = Kind.NOTHING


class History:
    """Records one worker."""

    def __init__(self, plan: Plan, writer: int) -> None:
        self._recorder = Recorder(plan.control, f"w{writer}")
        self._watch = Watch(self._recorder)
        self._names: dict[bytes, bytes] = {}

    def read(self, index: int, key: bytes) -> AbstractContextManager[Recorded]:
        """Returns a context for a read: a miss, unless a hit is reported."""
        return self._record(index, key, Kind.READ, Recorded(Kind.MISS, None))

    @contextmanager
    def write(self, index: int, key: bytes, stamp: Stamp) -> Iterator[Recorded]:
        """Record a write in the block. A write that the cache gave up is recognised without a report."""
        with self._record(index, key, Kind.PUT, Recorded(Kind.PUT, _value(stamp))) as recorded:
            yield recorded
            if recorded.kind is Kind.PUT and self._watch.was_dropped:
                recorded.kind = Kind.DROPPED
                # The older value may be there, or the new one, if only the disk's answer was lost.
                recorded.is_undecided = self._watch.kept_older

    def delete(self, index: int, key: bytes) -> AbstractContextManager[Recorded]:
        """Returns a context for a delete, which reports if it found no entry. Its removals are watched."""
        return self._record(index, key, Kind.READ, Recorded(Kind.NOTHING, None))

    def damage(self, index: int, key: bytes) -> AbstractContextManager[Recorded]:
        """Returns a context for damage to an entry's file, after which no read may give a value."""
        return self._record(index, key, Kind.REMOVED, Recorded(Kind.REMOVED, None))

    @property
    def kept_older(self) -> bool:
        """Whether this thread's last write was given up, and logged that it had to leave an older value readable."""
        return self._watch.kept_older

    def move_to(self, plan: Plan, writer: int) -> None:
        """Go on under another writer's number, in a file of its own: for a forked child."""
        self._recorder = self._watch.recorder = Recorder(plan.control, f"w{writer}-{os.getpid()}")

    @property
    def evicted_in_use(self) -> int:
        """The number of entries that were evicted although in use, see :class:`Watch`."""
        return self._watch.evicted_in_use

    def meddle(self, share: float) -> None:
        """Use victims of evictions after they were chosen; see :class:`Watch`."""
        self._watch.meddling = share

    @contextmanager
    def _record(self, index: int, key: bytes, begun_as: Kind, recorded: Recorded) -> Iterator[Recorded]:
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = hashlib.sha256(key).digest()
        begun = self._recorder.begin(begun_as, name, index, recorded.value)
        has_returned = False
        try:
            yield recorded
            has_returned = True
        finally:
            # An error leaves the operation open, unless the error is known to mean that it had no effect.
            if (has_returned and not recorded.is_undecided) or recorded.kind is Kind.NOTHING:
                self._recorder.end(begun, recorded.kind, name, index, recorded.value, recorded.ended_ns)


def _value(stamp: Stamp) -> Value:
    return Value(stamp.writer, stamp.variant << _VARIANT_SHIFT | stamp.serial)
