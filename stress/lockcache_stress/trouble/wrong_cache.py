"""Planted faults: a cache that is wrong on purpose, to see that the checks can fail (``--plant``).

Each stands for a bug that a cache could have. The wrapper is between the worker and the real cache, so that everything
behind it (register, judge, sampler, exit code) is what a real bug would meet.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from lockcache import Entry, FileStreamProgramCache, ProgramCacheResource
from lockcache_stress.judge import Stamp, make_value
from lockcache_stress.plan import Plan

__all__ = ["FAULTS", "HERD_FAULTS", "plant", "plant_in_herd"]

#: What can be planted, and as what it must be found.
FAULTS: Final = {
    "torn": "now and then a read gives only the first half of a value",
    "foreign": "now and then a read gives another key's value",
    "stale": "now and then a read gives the value that was there before the last write",
    "overshoot": "a file of the cap's size is put among the entries",
    "crash": "a worker dies by a signal that nobody sent it",
}
#: What can be planted in each process of a herd.
HERD_FAULTS: Final = {
    "leases": "locks on leases exclude nobody",
    "stale": "changed headers do not change the key",
    "mapping": "a hit comes without its symbol mapping",
    "crash": "the first process that compiles is SIGKILLed while it does",
}
# Of the reads or writes at which the fault could be planted. Often, so that a machine on which little gets done within
# the time sees it too.
_EVERY: Final = 5
_AT_WRITES: Final = ("crash", "overshoot")


def plant(plan: Plan, writer: int, cache: FileStreamProgramCache) -> ProgramCacheResource:
    """``cache``, or what is used in its place."""
    if plan.plant not in FAULTS:
        return cache  # none, or one that is planted in the library itself
    return _Faulty(cache, plan, writer)


def plant_in_herd(fault: str | None) -> None:
    """Break this process. ``crash`` is not planted here: who compiles knows when."""
    if fault == "leases":
        from lockcache.filestream.compile_once import lease

        vars(lease)["lock_descriptor"] = lambda *_, **__: True
    elif fault == "stale":
        from lockcache import headers

        vars(headers)["fingerprint"] = lambda *_, **__: bytes(32)
    elif fault == "mapping":
        from lockcache import resource

        join = resource.join_metadata
        found = vars(sys.modules[FileStreamProgramCache.__module__])
        found["join_metadata"] = lambda *given: {**join(*given), "symbol_mapping": {}}


class _Faulty(ProgramCacheResource):
    def __init__(self, cache: FileStreamProgramCache, plan: Plan, writer: int) -> None:
        self._cache = cache
        self._plan = plan
        self._is_first = writer == 0
        self._operations = 0
        self._last: dict[bytes, Entry] = {}
        self._older: dict[bytes, Entry] = {}

    def __getitem__(self, key: bytes | str) -> bytes:
        entry = self.get_entry(key)
        if entry is None:
            raise KeyError(key)
        return entry.code

    def get_entry(self, key: bytes | str) -> Entry | None:
        found = self._cache.get_entry(key)
        if found is None:
            return None
        false = self._falsified(key.encode() if isinstance(key, str) else key, found)
        return false if false is not found and self._is_time() else found

    def __setitem__(self, key: bytes | str, value: object) -> None:
        if not isinstance(value, bytes):
            raise TypeError("workers store bytes")
        self._remember(key, Entry(value))
        self._cache[key] = value

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        self._remember(key, entry)
        self._cache.put_entry(key, entry)

    def __delitem__(self, key: bytes | str) -> None:
        del self._cache[key]

    def __len__(self) -> int:
        return len(self._cache)

    def clear(self) -> None:
        self._cache.clear()

    def _is_time(self) -> bool:
        self._operations += 1
        return self._operations % _EVERY == 0

    def _remember(self, key: bytes | str, entry: Entry) -> None:
        name = key.encode() if isinstance(key, str) else key
        if name in self._last:
            self._older[name] = self._last[name]
        self._last[name] = entry
        if self._is_first and self._plan.plant in _AT_WRITES and self._is_time():
            self._break()

    def _falsified(self, key: bytes, found: Entry) -> Entry:
        fault = self._plan.plant
        if fault == "torn":
            return Entry(found.code[: len(found.code) // 2], found.metadata)
        if fault == "foreign":
            nobodys = Entry(make_value(self._plan.token, self._plan.keys, Stamp(0, 0, 1, 0), len(found.code)))
            return next((entry for other, entry in self._last.items() if other != key), nobodys)
        if fault == "stale":
            return self._older.get(key, found)
        return found

    def _break(self) -> None:
        if self._plan.plant == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._plan.plant == "overshoot":
            path = os.path.join(self._plan.directory, "entries", "00")
            os.makedirs(path, mode=0o700, exist_ok=True)
            with open(os.path.join(path, "0" * 62), "wb") as file:
                file.truncate(self._plan.max_size_bytes)
