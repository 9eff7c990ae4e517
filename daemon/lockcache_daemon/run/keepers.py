# SPDX-License-Identifier: Apache-2.0
"""The keepers of all directories and their parts, made from the settings and changed with them.

Keeps the promise of a reload: directories that were added are opened, directories that were removed are closed, and
directories whose settings changed go on, all without effect on the others. Other work for each directory is added in
one place, :func:`parts_for`. :class:`Watching` puts the state of a directory on the board, and keeps that cheap: the
accounting page and the programs' counters are read every few seconds, not at every tick, and entries are only inspected
(:mod:`.observe.top_entries`) where a status page is served.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from lockcache.errors import LockcacheError
from lockcache.filestream.accounting import space_of
from lockcache.lowlevel import Layout, check_directory, is_cache, read_counters
from lockcache.remote import read_servers
from lockcache_daemon.keeper import Keeper, refuse_as_root
from lockcache_daemon.observe import Board, CompiledAgain, Limits, Repairs, Report, Standouts, in_shards, in_walks
from lockcache_daemon.scrub import make_scrubber
from lockcache_daemon.settings import DirectorySettings, Settings, rules_for
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores import ForeignStore, KeptDirectory, MakePart, ShardStore, store_of


class KeeperSet:
    """One keeper for each directory of the settings, none of them open yet."""

    def __init__(self, settings: Settings, report: Report, stop: StopSignals) -> None:
        """Raises :class:`WrongLayoutError`, the errors of a cache that is unsafe or of a newer format, and
        :class:`OSError` for a directory that cannot be read.
        """
        self.settings = settings
        self._report = report
        self._stop = stop
        self._keepers: dict[str, Keeper] = {}
        #: The keepers that go on by settings that are no longer in force.
        self._behind: set[Keeper] = set()
        for directory in settings.directories:
            refuse_as_root(directory.path, directory.group)
            keeper = self._make(directory)
            if store_of(keeper.choose_layout()) is ShardStore:
                _refuse_unsafe(directory)
            self._keepers[_place(directory)] = keeper

    @property
    def keepers(self) -> Sequence[Keeper]:
        """The keepers, in the order of the settings."""
        return list(self._keepers.values())

    def change(self, settings: Settings, busy: Collection[Keeper] = ()) -> None:
        """Put other settings in force.

        A directory that cannot be opened is reported once and tried again at every tick.

        ``busy`` keepers go on as they are, so that a step that hangs in one directory keeps no reload from the others.
        As long as keepers have old settings (:attr:`is_behind`), this method must be called again.

        Raises nothing: errors of a directory that was added, also those of its layout, show when it is opened.
        """
        before, self._keepers = self._keepers, {}
        if settings is not self.settings:
            self.settings, self._behind = settings, set(before.values())
        due, self._behind = self._behind - set(busy), self._behind & set(busy)
        for directory in settings.directories:
            place = _place(directory)
            keeper = before.pop(place, None)
            if keeper in due:
                keeper = self._go_on(directory, keeper)
            self._keepers[place] = keeper or self._make(directory)
        for place, keeper in before.items():
            if keeper in busy:
                self._keepers[place] = keeper
            else:
                keeper.close()
                self._report.let_go(keeper.root)

    @property
    def is_behind(self) -> bool:
        """Whether some keepers go on by settings that are no longer in force."""
        return bool(self._behind)

    def close(self) -> None:
        """Close all directories. Raises nothing."""
        for keeper in self.keepers:
            keeper.close()

    def _go_on(self, directory: DirectorySettings, keeper: Keeper) -> Keeper | None:
        """Returns the keeper with the settings in force; ``None`` if it is closed, since another layout is wanted."""
        if directory.layout != keeper.rules.layout:
            keeper.close()
            return None
        keeper.change(rules_for(self.settings, directory), parts_for(self.settings, directory))
        return keeper

    def _make(self, directory: DirectorySettings) -> Keeper:
        self._report.board.update(directory.path, layout=directory.layout)
        stop = self._stop.with_progress(lambda: self._report.board.beat_of(directory.path))
        rules, parts = rules_for(self.settings, directory), parts_for(self.settings, directory)
        return Keeper(directory.path, rules, self._report, stop, parts)


def _refuse_unsafe(directory: DirectorySettings) -> None:
    """Refuse a cache as opening it would, before any directory is opened. Changes nothing."""
    layout = Layout(directory.path)
    try:
        if is_cache(layout) or not os.path.isdir(layout.root):
            check_directory(layout, directory.group)
    except (LockcacheError, NotADirectoryError):
        raise
    except OSError:
        return  # opening the directory reports the error, or waits until it is over


def _place(directory: DirectorySettings) -> str:
    return os.path.realpath(directory.path)


def parts_for(settings: Settings, directory: DirectorySettings) -> tuple[MakePart, ...]:
    """Returns what makes the parts of a directory, in the order of their ticks."""
    scrub = partial(make_scrubber, rate_bytes=directory.scrub_rate)
    has_metrics = settings.metrics is not None or settings.metrics_file is not None
    return scrub, partial(Watching, seeks_standouts=settings.metrics is not None, seeks_misses=has_metrics)


# Two reads of a page, 50 us: fresher than any scrape needs.
_INTERVAL_SECONDS: Final = 2.0


class Watching:
    """Keeps the board up to date: clients, repairs, top entries (a :class:`.stores.protocol.Part`)."""

    def __init__(self, kept: KeptDirectory, *, seeks_standouts: bool, seeks_misses: bool) -> None:
        self._kept = kept
        self._board: Board = kept.report.board
        self._repairs = Repairs()
        self._due = 0.0
        self._standouts = self._compiled_again = None
        store = kept.store
        if seeks_misses and not isinstance(store, ForeignStore):
            self._compiled_again = CompiledAgain(store.layout)
        if seeks_standouts:
            if isinstance(store, ForeignStore):
                source = in_walks(store.entries, store.describe)
            else:
                source = in_shards(store.layout)
            self._standouts = Standouts(source, kept.rules)

    def tick(self) -> None:
        for seeking in (self._standouts, self._compiled_again):
            if seeking is not None:
                seeking.tick()
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL_SECONDS
            self._put()

    def status_fields(self) -> Mapping[str, object]:
        return {}

    def close(self) -> None:
        self._board.update(self._kept.root, is_open=False)

    def _put(self) -> None:
        kept, board = self._kept, self._board
        changes: dict[str, object] = {
            "clients": read_counters(kept.store.layout),
            "servers": read_servers(kept.store.layout),
            "namespaces": kept.store.namespaces(),
            "architectures": kept.store.architectures(),
        }
        if self._standouts is not None:
            changes["standouts"] = self._standouts.seen
        if self._compiled_again is not None:
            changes["compiled_again"] = self._compiled_again.count
        board.update(kept.root, **changes)
        board.measured(kept.root, kept.store.held(), self._limits())
        done, self._repairs = self._repairs, kept.store.repairs
        if done != self._repairs:
            new = self._repairs.since(done)
            board.add(kept.root, repairs=new.shards, drift_bytes=new.drift_bytes)

    def _limits(self) -> Limits:
        store, rules = self._kept.store, self._kept.rules
        policy = store.policy.current()
        marks = rules.watermarks(policy, space_of(store.layout))
        low, high = (None, None) if marks is None else marks
        free = None if rules.min_free is None else str(rules.min_free)
        return Limits(
            policy.max_size_bytes,
            rules.max_entries,
            low,
            high,
            free,
            rules.max_age_seconds,
            dict(rules.namespaces),
            rules.total_bytes,
        )
