"""Records of what a worker does: its history has all operations, and each has its outcome."""

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

# A stamp's serial counts the writes of one variant; a value's is one number for both.
_VARIANT_SHIFT = 24


class Recorded:
    """One operation, while it goes on."""

    def __init__(self, kind: Kind, value: Value | None) -> None:
        self.kind = kind
        self.value = value
        self.ended_ns: int | None = None
        #: Whether it may take effect at any time from its begin on, or never, though it has returned.
        self.is_undecided = False

    def returned(self) -> None:
        """Note that the cache has returned just now; what follows takes time of its own."""
        self.ended_ns = time.monotonic_ns()

    def hit(self, stamp: Stamp | None) -> None:
        """Note that the operation gave a value: that of this write, or of one that the bytes do not name."""
        self.kind = Kind.HIT_UNKNOWN if stamp is None else Kind.HIT
        self.value = None if stamp is None else _value(stamp)

    def absent(self) -> None:
        """Note that the operation found nothing."""
        self.kind = Kind.ABSENT

    def nothing(self) -> None:
        """Note that the operation did nothing, and learned nothing."""
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
        """A context for a write. A write that the cache gave up is recognised without a report."""
        with self._record(index, key, Kind.PUT, Recorded(Kind.PUT, _value(stamp))) as recorded:
            yield recorded
            if recorded.kind is Kind.PUT and self._watch.was_dropped:
                recorded.kind = Kind.DROPPED
                # It is unknown which value is there: the older one, or its own if the disk lost only the answer.
                recorded.is_undecided = self._watch.kept_older

    def delete(self, index: int, key: bytes) -> AbstractContextManager[Recorded]:
        """Returns a context for a delete, which reports if there was nothing. Its removals are watched."""
        return self._record(index, key, Kind.READ, Recorded(Kind.NOTHING, None))

    def damage(self, index: int, key: bytes) -> AbstractContextManager[Recorded]:
        """Returns a context for damage to an entry's file: from then on there is nothing that may be read."""
        return self._record(index, key, Kind.REMOVED, Recorded(Kind.REMOVED, None))

    @property
    def kept_older(self) -> bool:
        """Whether this thread's last write was given up and had to leave an older value readable, as it then says."""
        return self._watch.kept_older

    def move_to(self, plan: Plan, writer: int) -> None:
        """Go on under another writer's number, in a file of its own: for a forked child."""
        self._recorder = self._watch.recorder = Recorder(plan.control, f"w{writer}-{os.getpid()}")

    @property
    def evicted_in_use(self) -> int:
        """The number of entries that were evicted though in use, see :class:`Watch`."""
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
            # An error leaves it open, unless it is known to mean that nothing was done.
            if (has_returned and not recorded.is_undecided) or recorded.kind is Kind.NOTHING:
                self._recorder.end(begun, recorded.kind, name, index, recorded.value, recorded.ended_ns)


def _value(stamp: Stamp) -> Value:
    return Value(stamp.writer, stamp.variant << _VARIANT_SHIFT | stamp.serial)
