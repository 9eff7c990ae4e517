"""A cache that is wrong on purpose, as :data:`~.library_bugs.CACHE_FAULTS` say.

The wrapper is between the worker and the real cache, so that everything behind it (register, judge, sampler, exit code)
is what a real bug would meet.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from lockcache import Entry, FileStreamProgramCache, ProgramCacheResource
from lockcache_stress.judge import Stamp, make_value
from lockcache_stress.plan import Plan
from lockcache_stress.trouble.library_bugs import CACHE_FAULTS

__all__ = ["plant"]

# Of the reads or writes at which the fault could be planted. Often, so that a machine on which little gets done within
# the time sees it too.
_EVERY: Final = 5
_AT_WRITES: Final = ("crash", "overshoot")


def plant(plan: Plan, writer: int, cache: FileStreamProgramCache) -> ProgramCacheResource:
    """``cache``, or what is used in its place."""
    return _Faulty(cache, plan, writer) if plan.plant in CACHE_FAULTS else cache


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
