"""Running keepers: tick after tick until a signal, or one complete pass.

Keeps directories apart: what goes wrong in one, or takes long, is its keeper's business, and the others have their
ticks all the same. Between ticks it sleeps in the kernel. A tick begins an interval after the last one ended, so that a
daemon with much to do never spins.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.lowlevel import Evicted
from lockcache_daemon.budgets import SharedBudgets
from lockcache_daemon.keeper import LOOK_SECONDS, Keeper
from lockcache_daemon.observe import Report, Summary
from lockcache_daemon.run.keepers import Crew
from lockcache_daemon.run.services import Service
from lockcache_daemon.run.ticks import Turns
from lockcache_daemon.scrub import scrub_once
from lockcache_daemon.settings import Settings
from lockcache_daemon.signals import Stopped, StopSignals

# What a start waits out, tick by tick, since it is not a mistake of the user: a file system that is not well
# yet, a full disk. All other errors of opening end the start.
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
    crew: Crew, services: Sequence[Service], stop: StopSignals, reload: Callable[[], Settings | None] = lambda: None
) -> None:
    """Tick until a signal. Raises what opening a directory raises, unless that may pass.

    ``reload`` is called at a signal to reload: the settings to go on with, or ``None`` to leave all as it is.
    """
    shared = SharedBudgets()
    with ExitStack() as stack:
        stack.callback(crew.close)
        turns = stack.enter_context(Turns())
        try:
            for service in services:  # before anything is done to a directory
                stack.callback(service.close)
                service.prepare()
            for keeper in crew.keepers:
                _open(keeper)
            for service in services:
                service.open(crew.keepers)
            while not stop.is_set():
                if stop.take_reload():
                    _change(crew, services, reload(), turns.busy)
                elif crew.is_behind:  # what ran had its settings
                    crew.change(crew.settings, turns.busy)
                _take_turns(crew, crew.keepers, turns)
                shared.tick(crew.settings, crew.keepers, turns.busy)
                for service in services:
                    service.tick()
                _pause(crew, turns, stop)
        except Stopped:
            return


def pass_once(
    crew: Crew,
    report: Report,
    advance: Callable[[], None],
    *,
    scrubs: bool = False,
) -> bool:
    """One complete pass over each directory, and what they share; whether all of it was done.

    With ``scrubs`` every entry is verified too. ``advance`` is called for each shard of each.

    Raises what opening a directory raises, and :class:`Stopped`.
    """
    summaries: dict[Keeper, Summary] = {}
    keepers = crew.keepers
    with ExitStack() as stack:
        stack.callback(crew.close)
        for keeper in keepers:
            keeper.open()
        unsound = []
        for keeper in keepers:
            try:
                # First: what is put out of the way then is counted as such.
                if scrubs and not scrub_once(keeper.kept, advance):
                    unsound.append(keeper)
                summaries[keeper] = keeper.complete_pass(advance)
            except OSError as error:
                keeper.note_failure(error)
        shared = SharedBudgets().tick(crew.settings, keepers)
        for keeper, summary in summaries.items():
            more = shared.get(keeper.root, Evicted())
            final = replace(summary, after=keeper.held, evicted=summary.evicted + more) if more.entries else summary
            report.summed_up(keeper.root, final)
        is_complete = not unsound and len(summaries) == len(keepers)
        return is_complete and all(keeper.is_well and not summary.busy_shards for keeper, summary in summaries.items())


def _take_turns(crew: Crew, keepers: Sequence[Keeper], turns: Turns) -> None:
    for keeper in keepers:
        turns.take(keeper, is_alone=len(crew.keepers) == 1)


def _pause(crew: Crew, turns: Turns, stop: StopSignals) -> None:
    """Sleep until the next tick. Keepers that stand by have ticks more often: a takeover is due within a second."""
    until = time.monotonic() + crew.settings.interval
    while not stop.is_set() and (left := until - time.monotonic()) > 0:
        standing_by = [keeper for keeper in crew.keepers if keeper.is_standing_by]
        stop.wait(min(left, LOOK_SECONDS) if standing_by else left)
        if stop.has_reload():
            return
        _take_turns(crew, standing_by, turns)


def _change(crew: Crew, services: Sequence[Service], settings: Settings | None, busy: Collection[Keeper]) -> None:
    if settings is not None:
        crew.change(settings, busy)
        for service in services:
            service.change(settings, crew.keepers)


def _open(keeper: Keeper) -> None:
    try:
        keeper.open_or_stand_by()
    except LockTimeoutError as error:
        keeper.note_failure(error)  # somebody is counting a large directory for the first time
    except OSError as error:
        if error.errno not in _PASSING:
            raise
        keeper.note_failure(error)
