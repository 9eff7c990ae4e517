"""A run over a bundle: the node's directory is seeded before, and the last of its processes promotes after."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Final

import click

from lockcache import FileStreamProgramCache
from lockcache.arguments import POLICY_VARIABLES, coerce_seed, variables_left_alone
from lockcache.bundle import Promoted, promote
from lockcache.cli.output import plain
from lockcache.cli.progress import progress_bar
from lockcache.cli.signals import EndedBySignal, interruptible
from lockcache.errors import LockcacheError, in_words
from lockcache.filestream import largest_bundle_bytes
from lockcache.filestream.disk import UPDATE, Descriptor, make_folder, open_or_create
from lockcache.lowlevel import Layout, PolicyFile
from lockcache.sizes import counted, parse_size

_MOMENT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.01


class Leaving:
    """Whether this process was the last one, once its :func:`staying` has ended."""

    is_last = False


@contextlib.contextmanager
def staying(layout: Layout) -> Iterator[Leaving]:
    """The block is one of several on this host that use the directory; :attr:`Leaving.is_last` says which ended last.

    By a lock that all of them share, and that the kernel frees for one that is killed. Of those that end at once one is
    the last. Where locks do not work, or the directory may not be written, none is.
    """
    leaving, lock = Leaving(), Descriptor()
    with contextlib.suppress(OSError):
        make_folder(layout, layout.locks)
        open_or_create(layout, f"{layout.locks}/run", UPDATE, lock)
        _share(lock.number)
    try:
        yield leaving
    finally:
        with contextlib.suppress(OSError, ValueError):
            # The kernel gives up the shared one first. So of two that come here at once the later one finds nobody.
            fcntl.flock(lock.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leaving.is_last = True
        lock.close()


def _share(fd: int) -> None:
    """Take the lock with others. Who ends just now has it alone for a moment; one that has it longer is not waited for.

    Raises :class:`OSError`.
    """
    until = time.monotonic() + _MOMENT_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS)


class SeededRun:
    """One process's run over the bundle of ``--seed``."""

    def __init__(self, seed: str | None, *, promotes: bool) -> None:
        """Raises :class:`click.UsageError` for what can only be a slip."""
        if seed is None:
            raise click.UsageError("--promote needs --seed FILE, the bundle to add to; it is made if it is missing")
        self.path = coerce_seed(seed)
        self._promotes = promotes
        self._is_ready = False
        self._leaving = Leaving()
        if not os.path.isdir(os.path.dirname(self.path)):
            raise click.UsageError(f"--seed: {plain(os.path.dirname(self.path))}: there is no such directory")
        if not promotes and not os.path.lexists(self.path):
            click.echo(f"lockcache: --seed: {plain(self.path)}: there is no such file, so all is compiled", err=True)

    def prepare(self, directory: str, max_size: str | None) -> None:
        """Make the directory and seed it, before its users come."""
        try:
            with variables_left_alone(POLICY_VARIABLES):
                cap = None if max_size is None else parse_size(max_size)
                FileStreamProgramCache(directory, max_size_bytes=cap, seed=self.path).close()
            self._is_ready = True
        except (OSError, LockcacheError) as error:
            click.echo(f"lockcache: {in_words(error)}", err=True)

    @contextlib.contextmanager
    def used(self, layout: Layout) -> Iterator[None]:
        """The command runs in this block."""
        if not (self._promotes and self._is_ready):
            yield
            return
        with staying(layout) as self._leaving:
            yield

    def promote(self, layout: Layout, *, quiet: bool) -> None:
        """Put what was compiled into the bundle, if this was the node's last process.

        What goes wrong is reported; the exit code is the command's.
        """
        if not self._leaving.is_last:
            return
        promoted, why = None, ""
        try:
            with interruptible():
                promoted = promote_with_bar(layout, self.path, _most_bytes(layout), may_shrink=False)
        except (KeyboardInterrupt, EndedBySignal):
            why = "a signal ended that"
        except (OSError, LockcacheError, ValueError, MemoryError) as error:
            why = in_words(error) or "it does not fit into memory"
        if promoted is None:
            click.echo(plain(f"lockcache: nothing was promoted: {why}"), err=True)
        elif promoted.promoted and not quiet:
            new = counted(promoted.promoted, "program")
            full = f" (half of the cap; the {promoted.too_old} oldest are left out)" if promoted.too_old else ""
            said = f"lockcache: {new} promoted into {self.path}, which has {promoted.entries} now{full}"
            click.echo(plain(said), err=True)


def promote_with_bar(layout: Layout, file: str, max_size: int | None = None, *, may_shrink: bool = True) -> Promoted:
    """Promote, and show how far that is."""
    with progress_bar("promoting") as show:
        return promote(layout, os.path.expanduser(file), max_size, show, may_shrink=may_shrink)


def _most_bytes(layout: Layout) -> int | None:
    """How long a bundle may be that the next job, with a cap like this directory's, is seeded with."""
    cap = PolicyFile(layout).load().max_size_bytes
    return None if cap is None else largest_bundle_bytes(layout, cap)
