"""Running keepers: tick after tick until a signal, or one complete pass.

Keeps directories apart: what goes wrong in one is its keeper's business, and the others have their ticks all the
same. Between ticks it sleeps in the kernel. A tick begins ``interval_seconds`` after the last one ended, so that a
daemon with much to do never spins.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final, Protocol

from lockcache.errors import LockTimeoutError
from lockcache_daemon.report import Report, Summary
from lockcache_daemon.signals import Stopped, StopSignals

__all__ = ["Keeping", "pass_once", "serve"]

# What a start waits out, tick by tick, since it is no mistake of whoever started us: a file system that is not well
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


class Keeping(Protocol):
    """What keeps one directory, of whichever layout: :mod:`.keeper` and :mod:`.walking`."""

    root: str

    @property
    def is_well(self) -> bool:
        """Whether nothing failed, or all has worked since."""

    def open(self) -> None:
        """Make, check and lock the directory. Raises what is wrong with it, and :class:`Stopped`."""

    def close(self) -> None:
        """Let go of the directory. Raises nothing."""

    def tick(self) -> None:
        """Everything that is due. Raises only :class:`Stopped`."""

    def complete_pass(self, advance: Callable[[], None]) -> Summary:
        """All of it at once. ``advance`` is called ``SHARDS`` times. Raises :class:`OSError` and :class:`Stopped`."""

    def note_failure(self, error: Exception) -> None:
        """Say it, unless an error of its kind was said since this directory last worked."""


def serve(keepers: Sequence[Keeping], interval_seconds: float, stop: StopSignals) -> None:
    """Tick until a signal. Raises what opening a directory raises, unless that may pass."""
    with ExitStack() as stack:
        for keeper in keepers:
            stack.callback(keeper.close)
        try:
            for keeper in keepers:
                _open(keeper)
            while not stop.is_set():
                for keeper in keepers:
                    keeper.tick()
                stop.wait(interval_seconds)
        except Stopped:
            return


def pass_once(
    keepers: Sequence[Keeping],
    report: Report,
    progress: Callable[[int], AbstractContextManager[Callable[[], None]]],
) -> bool:
    """One complete pass over each directory; whether all of it was done.

    Raises what opening a directory raises, and :class:`Stopped`.
    """
    is_complete = True
    with ExitStack() as stack:
        for keeper in keepers:
            stack.callback(keeper.close)
            keeper.open()
        advance = stack.enter_context(progress(len(keepers)))
        for keeper in keepers:
            try:
                summary = keeper.complete_pass(advance)
            except OSError as error:
                keeper.note_failure(error)
                is_complete = False
                continue
            report.summed_up(keeper.root, summary)
            is_complete &= keeper.is_well and not summary.busy_shards
    return is_complete


def _open(keeper: Keeping) -> None:
    try:
        keeper.open()
    except LockTimeoutError as error:
        keeper.note_failure(error)  # somebody is counting a large directory for the first time
    except OSError as error:
        if error.errno not in _PASSING:
            raise
        keeper.note_failure(error)
