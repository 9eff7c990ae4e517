# SPDX-License-Identifier: Apache-2.0
"""Scrubbing: verifies every entry's bytes against its record, round after round, before a program reads them.

Keeps invariant 1 (a hit is whole) ahead of the readers at a bounded cost: bytes per second as the operator says, and a
share of a core whatever the number of entries. The position is saved on disk, so that daemons which are restarted every
day complete a round too. Corrupt entries go into quarantine.

Not promised: that a round ends while entries are added faster than the rate allows.

As a part of its keeper, a scrub logs, counts and publishes its findings. Keeps a log readable when a power cut left ten
thousand empty files: the first findings of a round are logged one by one, the others as a number when the round ends.
Keeps an idle daemon from writing: ``daemon.json`` gets the progress once a minute, and findings at once.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

from lockcache.filestream.disk import read_json, replace_file
from lockcache.filestream.entry import CORRUPT, UNREADABLE
from lockcache.filestream.repair import OwnEntries, Verifiable
from lockcache.integrations.pyptx_directory import PyptxFiles
from lockcache.layouts import PyptxEntries
from lockcache.lowlevel import SHARDS, Layout, Verdict, measure_quarantine
from lockcache_daemon.settings import Rules
from lockcache_daemon.stores import ForeignStore, KeptDirectory, Part, ShardStore, Store
from lockcache_daemon.throttle import Throttle

# A share of one core, for all directories together, next to that of counting (see recount_schedule.py), so that an idle
# daemon stays under 1 %. An entry of 16 KiB costs some 25 us: 80 entries a second, a million in three and a half hours.
_DUTY: Final = 0.002
# One slice of work. Long enough for Throttle to measure, short enough for a tick: a megabyte takes 0.3 ms of it.
_SLICE_SECONDS: Final = 0.004
# The rate holds over so long, because slices are seconds apart.
_BURST_SECONDS: Final = 10.0
# A cache of ten entries is not read all day.
_SHORTEST_ROUND_SECONDS: Final = 3600.0
_SAVE_INTERVAL_SECONDS: Final = 60.0
# A position is some 80 bytes.
_LARGEST_POSITION_BYTES: Final = 4096


@dataclass
class Scrubbed:
    """How many entries were verified, with which results."""

    entries: int = 0
    bytes: int = 0
    #: By state, see :mod:`lockcache.filestream.repair.verify`.
    states: dict[str, int] = field(default_factory=dict)
    #: Corrupt entries that were moved or removed.
    repaired: int = 0

    def count(self, verdict: Verdict) -> None:
        """Add one verdict."""
        self.entries += 1
        self.bytes += verdict.size_bytes
        self.states[verdict.state] = self.states.get(verdict.state, 0) + 1
        self.repaired += verdict.is_repaired

    @property
    def is_clean(self) -> bool:
        """Whether no entry was found that somebody should look at."""
        return not self.states.get(CORRUPT) and not self.states.get(UNREADABLE)


class Scrub:
    """The scrubbing of one directory: :meth:`tick` again and again, or :meth:`complete`. For one thread."""

    def __init__(
        self,
        entries: Verifiable,
        rate_bytes: int,
        rules: Rules,
        found: Callable[[Verdict], object] = lambda verdict: None,
    ) -> None:
        """``found`` is called with the verdict on each corrupt or unreadable entry, after its repair."""
        self._entries = entries
        self._rate_bytes = rate_bytes
        self._throttle = Throttle(*rules.pace(_DUTY))
        self._found = found
        self._position = _load(entries.layout)
        self._saved = self._position
        self._save_due = 0.0
        self._walk: Generator[int, None, None] | None = None
        self._allowance = float(rate_bytes)
        self._refilled = time.monotonic()
        self._rests_until = 0.0
        #: All verdicts since this object was made.
        self.total = Scrubbed()
        #: Of the current round, and of the last complete round with the time of its end.
        self.round = Scrubbed()
        self.last_round: tuple[str, Scrubbed] | None = None

    @property
    def progress(self) -> float:
        """The share of the round that is done, 0 to 1: entries are spread evenly by their names."""
        return int(self._position[:4] or "0", 16) / 0x10000

    def tick(self, should_stop: Callable[[], bool]) -> bool:
        """Do a slice, if it is due. Returns whether a round ended.

        Raises :class:`OSError`; the next slice passes over the entry that failed.
        """
        self._refill()
        if self._allowance <= 0 or time.monotonic() < self._rests_until or not self._throttle.is_due:
            return False
        with self._throttle:
            is_over = self._work_until(time.monotonic() + _SLICE_SECONDS, should_stop)
        self._save(at_once=is_over)
        return is_over

    def complete(self, advance: Callable[[], object], between: Callable[[], object]) -> Scrubbed:
        """Do a whole round at once, at full speed. ``between`` is called often, and may raise to give up.

        ``advance`` is called ``SHARDS`` times. Raises :class:`OSError`.
        """
        done = self.round = Scrubbed()
        for shard in range(SHARDS):
            for _ in self._scrub_shard(shard):
                between()
            advance()
        self._position = ""
        return done

    def close(self) -> None:
        """Close what is open, and save the position. Raises nothing."""
        if self._walk is not None:
            self._walk.close()
            self._walk = None
        with contextlib.suppress(OSError):  # the directory is gone; the next round begins at the beginning
            self._save(at_once=True)

    def _refill(self) -> None:
        now = time.monotonic()
        self._allowance = min(
            self._allowance + (now - self._refilled) * self._rate_bytes, self._rate_bytes * _BURST_SECONDS
        )
        self._refilled = now

    def _work_until(self, deadline: float, should_stop: Callable[[], bool]) -> bool:
        """Work until ``deadline``. Returns whether the round is over."""
        walk = self._walk = self._walk or self._go_round()
        is_over = True
        try:
            for read in walk:
                self._allowance -= read
                if self._allowance <= 0 or time.monotonic() >= deadline or should_stop():
                    is_over = False
                    break
        except BaseException:
            self._walk = None  # the walk begins again behind the entry that failed
            raise
        if is_over:
            self._walk = None
        return is_over

    def _go_round(self) -> Generator[int, None, None]:
        """Scrub from the position to the end, then rest unless that was only a part of a round."""
        began, is_whole = time.monotonic(), not self._position
        behind = self._position
        for shard in range(int(behind[:2] or "0", 16), SHARDS):
            if behind < _end_of(shard):
                yield from self._scrub_shard(shard, behind)
        self._position = ""
        self.last_round = datetime.now(timezone.utc).isoformat(timespec="seconds"), self.round
        self.round = Scrubbed()
        if is_whole:
            self._rests_until = began + _SHORTEST_ROUND_SECONDS

    def _scrub_shard(self, shard: int, behind: str = "") -> Generator[int, None, None]:
        end = _end_of(shard)
        try:
            names = self._entries.names(shard)
        except OSError:
            self._position = end  # a shard that cannot be listed is not tried for ever
            raise
        for name in names:
            if name > behind:
                yield from self._scrub_entry(name)
        self._position = end
        yield 0

    def _scrub_entry(self, name: str) -> Generator[int, None, None]:
        try:
            verdict = yield from self._entries.verify(name)
        except OSError:
            self._position = name
            raise
        self._position = name
        if verdict is not None:
            self._count(verdict)
        yield 0

    def _count(self, verdict: Verdict) -> None:
        self.total.count(verdict)
        self.round.count(verdict)
        if verdict.state in (CORRUPT, UNREADABLE):
            self._found(verdict)

    def _save(self, *, at_once: bool) -> None:
        now = time.monotonic()
        if self._position == self._saved or (not at_once and now < self._save_due):
            return
        self._save_due = now + _SAVE_INTERVAL_SECONDS
        body = json.dumps({"behind": self._position}).encode()
        layout = self._entries.layout
        replace_file(layout, layout.scrub, body + b"\n", fsync=False)
        self._saved = self._position


def _load(layout: Layout) -> str:
    """Returns the position of the last scrub; the beginning if it is not known."""
    try:
        behind = read_json(layout, layout.scrub, _LARGEST_POSITION_BYTES)["behind"]
    except (OSError, ValueError, KeyError):
        return ""
    return behind if isinstance(behind, str) and _is_name(behind) else ""


def _end_of(shard: int) -> str:
    """Returns the position behind every entry of a shard."""
    return f"{shard:02x}{'f' * 62}"


def _is_name(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{32}(?:[0-9a-f]{32})?", text, re.ASCII) is not None


def as_fields(scrubbed: Scrubbed) -> dict[str, Any]:
    """Returns the fields for logs and the status."""
    states = {state.replace(" ", "_"): count for state, count in sorted(scrubbed.states.items())}
    return {"entries": scrubbed.entries, "bytes": scrubbed.bytes, **states, "repaired": scrubbed.repaired}


_MOST_SAID: Final = 16
_SHOW_INTERVAL_SECONDS: Final = 60.0


def make_scrubber(kept: KeptDirectory, rate_bytes: int) -> Part | None:
    """Returns the part for a directory; ``None`` where nothing can be scrubbed, or ``rate_bytes`` is 0."""
    entries = _verifiable(kept.store)
    return None if entries is None or not rate_bytes else Scrubber(kept, entries, rate_bytes)


def scrub_once(kept: KeptDirectory, advance: Callable[[], object]) -> bool:
    """Verify everything now, at full speed, and report the findings. Returns whether all could be read and repaired.

    ``advance`` is called ``SHARDS`` times. Raises :class:`OSError` and :class:`Stopped`.
    """
    entries = _verifiable(kept.store)
    return entries is None or Scrubber(kept, entries, 1).complete(advance)


def _show_on_board(kept: KeptDirectory, new: Mapping[str, int]) -> None:
    """Add entries and bytes that were verified, and the number of entries in each state."""
    seen = {"scrubbed_entries": "entries", "scrubbed_bytes": "bytes"}
    seen |= {"corrupt_entries": "corrupt", "unreadable_entries": "unreadable"}
    kept.report.board.add(kept.root, **{field: new.get(name, 0) for field, name in seen.items()})


def _verifiable(store: Store) -> Verifiable | None:
    """Returns the entries to verify; ``None`` for layouts whose files carry no digest or record."""
    if isinstance(store, ShardStore):
        return OwnEntries(store.directory)
    if isinstance(store, ForeignStore) and isinstance(store.files, PyptxFiles):
        return PyptxEntries(store.files)
    return None


class Scrubber:
    """Scrubs one directory, a slice at each tick (a :class:`.stores.protocol.Part`)."""

    def __init__(self, kept: KeptDirectory, entries: Verifiable, rate_bytes: int) -> None:
        self._kept = kept
        self._entries = entries
        self._rate_bytes = rate_bytes
        self._scrub = Scrub(entries, rate_bytes, kept.rules, self._found)
        self._rounds = 0
        #: The findings of this round, and whether there is something new to show.
        self._said = 0
        self._has_changed = False
        self._shown: dict[str, Any] = {}
        self._show_due = 0.0
        self._counted: dict[str, int] = {}

    def tick(self) -> None:
        """Do a slice of the round, if it is due."""
        try:
            if self._scrub.tick(self._kept.stop.is_set):
                self._end_round()
        finally:
            if self._has_changed or time.monotonic() >= self._show_due:
                self._has_changed = False
                self._show()

    def complete(self, advance: Callable[[], object]) -> bool:
        """Verify everything now. Returns whether all could be read and repaired; raises as :func:`scrub_once`."""
        done = self._scrub.complete(advance, self._kept.stop.raise_if_set)
        self._kept.report.scrubbed(self._kept.root, as_fields(done))
        _show_on_board(self._kept, as_fields(done))
        return not done.states.get(UNREADABLE) and done.repaired == done.states.get(CORRUPT, 0)

    def status_fields(self) -> Mapping[str, Any]:
        """Returns the fields of ``daemon.json``."""
        return {"scrub": self._shown}

    def close(self) -> None:
        """Save the position."""
        self._scrub.close()

    def _end_round(self) -> None:
        self._rounds += 1
        last = self._scrub.last_round
        if last is not None and not last[1].is_clean:
            self._kept.report.scrubbed(self._kept.root, as_fields(last[1]))
        self._said, self._has_changed = 0, True

    def _found(self, verdict: Verdict) -> None:
        """Report the first findings of a round."""
        self._said, self._has_changed = self._said + 1, True
        if self._said <= _MOST_SAID:
            self._kept.report.found(self._kept.root, verdict)

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
        _show_on_board(self._kept, new)
        self._counted = total
