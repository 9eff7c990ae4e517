# SPDX-License-Identifier: Apache-2.0
"""The loop: runs keepers tick after tick until a signal, or for one complete pass.

Keeps directories apart: an error or a slow step in one directory is its keeper's business, and the others have their
ticks all the same. Between ticks the daemon sleeps in the kernel. A tick begins an interval after the last tick ended,
so that a daemon with much to do never spins.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.lowlevel import Evicted
from lockcache_daemon.budgets import SharedBudgets
from lockcache_daemon.keeper import LOOK_SECONDS, Keeper
from lockcache_daemon.observe import Report, Summary
from lockcache_daemon.run.keepers import KeeperSet
from lockcache_daemon.run.services import Service
from lockcache_daemon.run.ticks import TickRunner
from lockcache_daemon.scrub import scrub_once
from lockcache_daemon.settings import Settings
from lockcache_daemon.signals import Stopped, StopSignals

# Errors that a start waits out, tick by tick, because they are not a mistake of the user: a file system that does not
# work yet, a full disk. All other errors of opening end the start.
_PASSING: Final = (
    errno.EIO,
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.ENOSPC,
    errno.EDQUOT,
)


def serve(
    keeper_set: KeeperSet,
    services: Sequence[Service],
    stop: StopSignals,
    reload: Callable[[], Settings | None] = lambda: None,
) -> None:
    """Tick until a signal. Raises the errors of opening a directory, unless they may pass.

    ``reload`` is called at a signal to reload. It returns the new settings, or ``None`` to leave all as it is.
    """
    shared = SharedBudgets()
    with ExitStack() as stack:
        stack.callback(keeper_set.close)
        ticks = stack.enter_context(TickRunner())
        try:
            for service in services:  # before anything is done to a directory
                stack.callback(service.close)
                service.prepare()
            _open_all(keeper_set.keepers)
            for service in services:
                service.open(keeper_set.keepers)
            while not stop.is_set():
                if stop.take_reload():
                    _change(keeper_set, services, reload(), ticks.busy)
                elif keeper_set.is_behind:  # a keeper was busy at the reload
                    keeper_set.change(keeper_set.settings, ticks.busy)
                _run_ticks(keeper_set, keeper_set.keepers, ticks)
                shared.tick(keeper_set.settings, keeper_set.keepers, ticks.busy)
                for service in services:
                    service.tick()
                _pause(keeper_set, ticks, stop)
        except Stopped:
            return


def pass_once(
    keeper_set: KeeperSet,
    report: Report,
    advance: Callable[[], None],
    *,
    scrubs: bool = False,
) -> bool:
    """Make one complete pass over each directory, and apply shared budgets. Returns whether all of it was done.

    With ``scrubs`` every entry is verified too. ``advance`` is called for each shard of each directory.

    Raises the errors of opening a directory, and :class:`Stopped`.
    """
    summaries: dict[Keeper, Summary] = {}
    keepers = keeper_set.keepers
    with ExitStack() as stack:
        stack.callback(keeper_set.close)
        for keeper in keepers:
            keeper.open(begins=False)
        for keeper in keepers:
            keeper.begin()
        unsound = []
        for keeper in keepers:
            try:
                # Before the count, so that entries which go into quarantine are counted there.
                if scrubs and not scrub_once(keeper.kept, advance):
                    unsound.append(keeper)
                summaries[keeper] = keeper.complete_pass(advance)
            except OSError as error:
                keeper.note_failure(error)
        shared = SharedBudgets().tick(keeper_set.settings, keepers)
        for keeper, summary in summaries.items():
            more = shared.get(keeper.root, Evicted())
            if more.entries:
                keeper.attempt(keeper.store.count_again)  # where eviction has a second step, it is taken
            final = replace(summary, after=keeper.held(), evicted=summary.evicted + more) if more.entries else summary
            report.summed_up(keeper.root, final)
        is_complete = not unsound and len(summaries) == len(keepers)
        return is_complete and all(keeper.is_well and not summary.busy_shards for keeper, summary in summaries.items())


def _run_ticks(keeper_set: KeeperSet, keepers: Sequence[Keeper], ticks: TickRunner) -> None:
    for keeper in keepers:
        ticks.run(keeper, is_alone=len(keeper_set.keepers) == 1)


def _pause(keeper_set: KeeperSet, ticks: TickRunner, stop: StopSignals) -> None:
    """Sleep until the next tick. Keepers that stand by have ticks more often: a takeover is due within a second."""
    until = time.monotonic() + keeper_set.settings.interval
    while not stop.is_set() and (left := until - time.monotonic()) > 0:
        standing_by = [keeper for keeper in keeper_set.keepers if keeper.is_standing_by]
        stop.wait(min(left, LOOK_SECONDS) if standing_by else left)
        if stop.has_reload():
            return
        _run_ticks(keeper_set, standing_by, ticks)


def _change(
    keeper_set: KeeperSet, services: Sequence[Service], settings: Settings | None, busy: Collection[Keeper]
) -> None:
    if settings is not None:
        keeper_set.change(settings, busy)
        for service in services:
            service.change(settings, keeper_set.keepers)


def _open_all(keepers: Sequence[Keeper]) -> None:
    """Open the directories. No cap is written before all of them are accepted."""
    for keeper in keepers:
        _attempt(keeper, partial(keeper.open_or_stand_by, begins=False))
    for keeper in keepers:
        if keeper.is_able:
            _attempt(keeper, keeper.begin)


def _attempt(keeper: Keeper, step: Callable[[], object]) -> None:
    """Do a step of the start, or leave it to the ticks where what is in the way passes."""
    try:
        step()
    except LockTimeoutError as error:
        keeper.note_failure(error)  # somebody is counting a large directory for the first time
    except OSError as error:
        if error.errno not in _PASSING:
            raise
        keeper.note_failure(error)
