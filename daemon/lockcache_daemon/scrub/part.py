"""The scrub of one directory, as a part of its keeper: what it finds is said, counted and shown.

Keeps a log readable when a power cut left ten thousand empty files: the first of a round are said one by one, the rest
as a number when it ends. Keeps an idle daemon from writing: what ``daemon.json`` says of progress is renewed once a
minute, what was found at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from lockcache.filestream.entry import CORRUPT, UNREADABLE
from lockcache.filestream.repair import OwnEntries, Verifiable
from lockcache.integrations.pyptx_files import PyptxFiles
from lockcache.layouts import PyptxEntries
from lockcache.lowlevel import Verdict, measure_quarantine
from lockcache_daemon.observe import Report
from lockcache_daemon.scrub.scrub import Scrub, as_fields
from lockcache_daemon.stores import Kept, Part, ShardStore, Store, WalkedStore

_MOST_SAID: Final = 16
_SHOW_INTERVAL_SECONDS: Final = 60.0


def make_scrubber(kept: Kept, rate_bytes: int) -> Part:
    """The part for a directory of this layout."""
    entries = _verifiable(kept.store)
    return _Nothing() if entries is None or not rate_bytes else Scrubber(kept, entries, rate_bytes)


def scrub_once(kept: Kept, advance: Callable[[], object]) -> bool:
    """Verify everything now, as fast as it goes, and say what was found; whether all of it could be read and repaired.

    ``advance`` is called ``SHARDS`` times. Raises :class:`OSError` and :class:`Stopped`.
    """
    entries = _verifiable(kept.store)
    if entries is None:
        return True
    teller = _Teller(kept.root, kept.report)
    scrub = Scrub(entries, 1, 1.0, 1.0, teller.found)
    done = scrub.complete(advance, kept.stop.raise_if_set)
    kept.report.scrubbed(kept.root, as_fields(done))
    kept.report.board.scrubbed(kept.root, as_fields(done))
    return not done.states.get(UNREADABLE) and done.repaired == done.states.get(CORRUPT, 0)


def _verifiable(store: Store) -> Verifiable | None:
    """``None`` for layouts whose files carry nothing that they could be verified by."""
    if isinstance(store, ShardStore):
        return OwnEntries(store.directory)
    if isinstance(store, WalkedStore) and isinstance(store.files, PyptxFiles):
        return PyptxEntries(store.files)
    return None


class Scrubber:
    """Scrubs one directory, a little at each tick (a :class:`.stores.protocol.Part`)."""

    def __init__(self, kept: Kept, entries: Verifiable, rate_bytes: int) -> None:
        self._kept = kept
        self._entries = entries
        self._rate_bytes = rate_bytes
        self._teller = _Teller(kept.root, kept.report)
        interval = kept.rules.interval_seconds
        self._scrub = Scrub(entries, rate_bytes, kept.share_of_duty, interval, self._teller.found)
        self._rounds = 0
        self._shown: dict[str, Any] = {}
        self._show_due = 0.0
        self._counted: dict[str, int] = {}

    def tick(self) -> None:
        """A little of the round, if it is due."""
        try:
            if self._scrub.tick(self._kept.stop.is_set):
                self._end_round()
        finally:
            if self._teller.take_news() or time.monotonic() >= self._show_due:
                self._show()

    def tell(self) -> Mapping[str, Any]:
        """For ``daemon.json``."""
        return {"scrub": self._shown}

    def close(self) -> None:
        """Remember where it was."""
        self._scrub.close()

    def _end_round(self) -> None:
        self._rounds += 1
        last = self._scrub.last_round
        if last is not None and not last[1].is_clean:
            self._kept.report.scrubbed(self._kept.root, as_fields(last[1]))
        self._teller.begin_round()

    def _show(self) -> None:
        self._show_due = time.monotonic() + _SHOW_INTERVAL_SECONDS
        scrub, total = self._scrub, as_fields(self._scrub.total)
        kept = measure_quarantine(self._entries.layout)
        last = scrub.last_round
        self._shown = {
            "rate_bytes": self._rate_bytes,
            "progress": round(scrub.progress, 3),
            "rounds": self._rounds,
            "last_round": None if last is None else {"time": last[0], **as_fields(last[1])},
            "since_start": total,
            "quarantine_entries": kept.entries,
            "quarantine_bytes": kept.bytes,
        }
        new = {name: count - self._counted.get(name, 0) for name, count in total.items()}
        self._kept.report.board.scrubbed(self._kept.root, new)
        self._counted = total


class _Teller:
    """Says the first findings of a round."""

    def __init__(self, root: str, report: Report) -> None:
        self._root = root
        self._report = report
        self._said = 0
        self._is_news = False

    def found(self, verdict: Verdict) -> None:
        self._is_news = True
        self._said += 1
        if self._said <= _MOST_SAID:
            self._report.found(self._root, verdict)

    def begin_round(self) -> None:
        self._said = 0
        self._is_news = True

    def take_news(self) -> bool:
        """Whether there was any since this was asked last."""
        was_news, self._is_news = self._is_news, False
        return was_news


class _Nothing:
    """As :class:`.stores.protocol.Part`, for a directory in which there is nothing to scrub, or that must not be."""

    def tick(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
