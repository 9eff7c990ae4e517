# SPDX-License-Identifier: Apache-2.0
"""A run over a bundle: seeds the node's directory before, and the node's last process promotes afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import click

from lockcache import FileStreamProgramCache
from lockcache.arguments import POLICY_VARIABLES, coerce_seed, variables_left_alone
from lockcache.bundle import Promoted, promote
from lockcache.cli.output import plain, say
from lockcache.cli.progress import progress_bar
from lockcache.cli.running.ranks import Leaving, staying
from lockcache.cli.signals import EndedBySignal, interruptible
from lockcache.errors import LockcacheError, in_words
from lockcache.filestream import largest_bundle_bytes
from lockcache.lowlevel import Layout, StatedPolicy
from lockcache.sizes import counted, parse_size

# The lock of the processes of which one is the last.
_LOCK: Final = "run"


class SeededRun:
    """One process's run over the bundle of ``--seed``."""

    def __init__(self, seed: str | None, *, promotes: bool) -> None:
        """Raises :class:`click.UsageError` for what can only be a mistake."""
        if seed is None:
            raise click.UsageError("--promote needs --seed FILE, the bundle to add to; it is made if it is missing")
        self.path = coerce_seed(seed)
        self.promotes = promotes
        self._is_ready = False
        if not os.path.isdir(os.path.dirname(self.path)):
            raise click.UsageError(f"--seed: {plain(os.path.dirname(self.path))}: there is no such directory")

    def prepare(self, directory: str, max_size: str | None) -> None:
        """Make the directory and seed it, before the command runs."""
        try:
            # Nor the server's: its threads would take signals that are meant for the command.
            unwanted = "LOCKCACHE_REMOTE", "LOCKCACHE_MANIFEST", "LOCKCACHE_SEALED"
            with variables_left_alone([*POLICY_VARIABLES, *unwanted]):
                cap = None if max_size is None else parse_size(max_size)
                FileStreamProgramCache(directory, max_size_bytes=cap, seed=self.path).close()
            self._is_ready = True
        except (OSError, LockcacheError, ValueError) as error:
            say(in_words(error))

    @contextlib.contextmanager
    def used(self, layout: Layout, *, quiet: bool) -> Iterator[None]:
        """Run the command in this block. If it was the node's last one, what was compiled goes into the bundle.

        Promotes also if the command could not be started: others of this node may have compiled.
        """
        leaving = Leaving()
        try:
            with (
                staying(layout, _LOCK)
                if self.promotes and self._is_ready
                else contextlib.nullcontext(leaving) as leaving
            ):
                yield
        finally:
            if leaving.is_last:
                self._promote(layout, quiet=quiet)

    def _promote(self, layout: Layout, *, quiet: bool) -> None:
        """Promote into the bundle. Reports errors; the exit code stays the command's."""
        promoted, why = None, ""
        try:
            with interruptible():
                promoted = promote_with_bar(layout, self.path, _most_bytes(layout), may_shrink=False)
        except (KeyboardInterrupt, EndedBySignal):
            why = "a signal ended that"
        except (OSError, LockcacheError, ValueError, MemoryError) as error:
            why = in_words(error) or "it does not fit into memory"
        if promoted is None:
            say(f"nothing was promoted: {why}")
        elif promoted.promoted and not quiet:
            new = counted(promoted.promoted, "kernel")
            full = f" (half of the cap; the {promoted.too_old} oldest are left out)" if promoted.too_old else ""
            say(f"{new} promoted into {self.path}, which has {promoted.entries} now{full}")


def missing_seed(bundle: SeededRun | None) -> str:
    """Returns the message about a bundle that is missing and is not to be made; empty if there is none."""
    if bundle is not None and bundle.promotes:
        return ""
    name, path = ("LOCKCACHE_SEED", coerce_seed(None)) if bundle is None else ("--seed", bundle.path)
    return (
        f"{name}: {path}: there is no such file, so nothing is read from it"
        if path and not os.path.lexists(path)
        else ""
    )


def promote_with_bar(layout: Layout, file: str, max_size: int | None = None, *, may_shrink: bool = True) -> Promoted:
    """Promote, and show how far that is."""
    with progress_bar("promoting") as show:
        return promote(layout, os.path.expanduser(file), max_size, show, may_shrink=may_shrink)


def _most_bytes(layout: Layout) -> int | None:
    """Returns the most bytes of a bundle that can seed a directory with the same cap; ``None``: no limit."""
    cap = StatedPolicy(layout).load().max_size_bytes
    return None if cap is None else largest_bundle_bytes(layout, cap)
