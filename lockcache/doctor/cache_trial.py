# SPDX-License-Identifier: Apache-2.0
"""A trial of a real cache in the probe directory: it shows whatever no other check covers."""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections.abc import Callable
from typing import Final

from lockcache.arguments import PROGRAM_VARIABLES, variables_left_alone
from lockcache.composition import FileStreamProgramCache
from lockcache.doctor.findings import GOOD, UNUSABLE, Finding, Subject
from lockcache.errors import LockcacheError
from lockcache.resource import Entry

# A small kernel's cubin; a mean over so many is not moved by one that waited.
_PAYLOAD_BYTES: Final = 16 * 1024
_ENTRIES: Final = 32


def storing(subject: Subject) -> list[Finding]:
    """Store, read, replace and remove entries, and say how long that takes."""
    heard = _Heard()
    logger = logging.getLogger("lockcache")
    logger.addHandler(heard)
    try:
        puts_us, hits_us = _use(os.path.join(subject.probe, "cache"))
    except (LockcacheError, OSError, _WrongError) as error:
        reason = f"{error} ({heard.last})" if heard.last else str(error)
        return [Finding("a real cache", UNUSABLE, reason, "programs would fail or compile every time", "see above")]
    finally:
        logger.removeHandler(heard)
    found = f"stores and reads {_PAYLOAD_BYTES // 1024} KiB: a put {puts_us:.0f} us, a hit {hits_us:.0f} us (medians)"
    return [Finding("a real cache", GOOD, found, measured={"put_us": round(puts_us, 1), "hit_us": round(hits_us, 1)})]


class _WrongError(Exception):
    """A cache broke a promise."""


def _use(path: str) -> tuple[float, float]:
    entries = {b"%d" % number: Entry(os.urandom(_PAYLOAD_BYTES), {"number": number}) for number in range(_ENTRIES)}
    with variables_left_alone(PROGRAM_VARIABLES):
        opened = FileStreamProgramCache(path)
    with opened as cache:
        puts = [_timed_us(lambda key=key, entry=entry: cache.put_entry(key, entry)) for key, entry in entries.items()]  # type: ignore[misc]
        hits = [_timed_us(lambda key=key: cache.get(key)) for key in entries]  # type: ignore[misc]
        wrong = sum(cache.get_entry(key) != entry for key, entry in entries.items())
        if wrong or cache.stats().dropped_writes:
            raise _WrongError(
                f"of {_ENTRIES} entries {wrong} do not come back, {cache.stats().dropped_writes} were dropped"
            )
        cache[b"0"] = b"newer"
        if cache.get(b"0") != b"newer":
            raise _WrongError("an entry that was replaced still has its older value")
        del cache[b"0"]
        if cache.get(b"0") is not None:
            raise _WrongError("an entry that was removed is still there")
    return statistics.median(puts), statistics.median(hits)


def _timed_us(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1e6


class _Heard(logging.Handler):
    """Keeps the last warning, the only place that says why a write was dropped."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
