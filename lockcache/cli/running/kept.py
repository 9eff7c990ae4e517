# SPDX-License-Identifier: Apache-2.0
"""The folders of ``lockcache run --keep``: laid down before the command, and stored while it runs and at its end.

Keeps invariant 7 (never take the job down): whatever is wrong with a folder, with a directory or with lockcache is one
line, and the command runs as it would without. All work is done by one thread, which has all signals held back: they
are for the command.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator, Mapping
from typing import Final

import click

from lockcache import FileStreamProgramCache
from lockcache.arguments import configured_switch, variables_left_alone
from lockcache.cli.output import say
from lockcache.cli.running.child import run_child
from lockcache.cli.running.ranks import is_first
from lockcache.cli.signals import EndedBySignal, interruptible
from lockcache.errors import LockcacheError, in_words
from lockcache.integrations.kept_folders import FolderGuard, Pattern, Presence, parse_pattern
from lockcache.layouts import describe_danger
from lockcache.lowlevel import Layout
from lockcache.sizes import counted

# A folder that is still being written is looked at again after so long, and then after twice as long each time.
_AGAIN_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0
_MOST_LINES: Final = 5
# Of the command's variables: what is kept was not compiled by a process of it, nor looked up, and is not refused.
_NOT_OBEYED: Final = ("LOCKCACHE_MANIFEST", "LOCKCACHE_RECACHE", "LOCKCACHE_RUN", "LOCKCACHE_SEALED")
_EXPECTED: Final = (OSError, LockcacheError, ValueError, MemoryError)


def parse(text: str) -> Pattern:
    """Returns the pattern of ``--keep``. Raises :class:`ValueError` for one that makes no sense, or is dangerous."""
    pattern = parse_pattern(text, os.environ)
    danger = describe_danger(pattern.root)
    if danger:
        raise ValueError(f"{text!r}: {pattern.root} {danger}; name the folder of one program's cache")
    return pattern


class KeptFolders:
    """The folders of all patterns, for one command."""

    def __init__(self, patterns: tuple[Pattern, ...], layout: Layout, *, quiet: bool) -> None:
        """Raises :class:`click.UsageError` for a pattern whose folders the cache itself is in, or the reverse."""
        self._patterns = tuple(dict.fromkeys(patterns))
        self._layout = layout
        self._quiet = quiet
        self._guards: list[FolderGuard] = []
        self._problems: list[str] = []
        self._is_laid, self._has_ended, self._ended_well = threading.Event(), threading.Event(), False
        cache = os.path.realpath(layout.root) + "/"
        for pattern in patterns:
            root = os.path.realpath(pattern.root) + "/"
            if cache.startswith(root) or root.startswith(cache):
                raise click.UsageError(
                    f"--keep {pattern.text}: {pattern.root} and lockcache's directory, {layout.root}, have to be apart"
                )

    def run_child(self, words: tuple[str, ...], environment: Mapping[str, str], mask: set[int]) -> int:
        """Run the command like :func:`.child.run_child`, and keep its folders. Returns its wait status."""
        wake_fd, waker_fd = os.pipe()
        try:
            # It starts with the signals held back, as they are here, and so do the threads of a server's client.
            worker = threading.Thread(target=self._work, args=(environment, wake_fd), daemon=True)
            worker.start()
            with interruptible(has_ended=False):
                self._is_laid.wait()
            try:
                status = run_child(words, environment, mask)
                self._ended_well = status == 0
            finally:
                self._has_ended.set()
                os.write(waker_fd, b"\0")
                self._wait_for(worker)
        finally:
            os.close(waker_fd)
        return status

    def _wait_for(self, worker: threading.Thread) -> None:
        """Wait until what is left is stored. Print the lines about it; the exit code stays the command's."""
        try:
            with interruptible():
                worker.join()
        except (KeyboardInterrupt, EndedBySignal):
            self._problems.append("--keep: a signal ended it; what is stored stays")
        problems = [*self._problems, *(f"--keep: {each}" for guard in self._guards for each in guard.problems)]
        if not is_first():
            return
        for line in problems[:_MOST_LINES]:
            say(line)
        if len(problems) > _MOST_LINES:
            say(f"--keep: {len(problems) - _MOST_LINES} more such lines are left out")
        laid, stored = (sum(getattr(guard, name) for guard in self._guards) for name in ("laid", "stored"))
        if not self._quiet and (laid or stored):
            say(f"{counted(laid, 'folder')} laid down, {stored} stored")

    def _work(self, environment: Mapping[str, str], wake_fd: int) -> None:
        try:
            with contextlib.suppress(*_EXPECTED), self._opened(environment):
                for guard in list(self._guards):
                    with self._noting(guard):
                        guard.lay_down()
                self._is_laid.set()
                pause_seconds = _AGAIN_SECONDS
                while not self._has_ended.is_set():
                    is_left = self._store()
                    self._wait(wake_fd, pause_seconds if is_left else None)
                    pause_seconds = min(_LONGEST_SECONDS, 2 * pause_seconds) if is_left else _AGAIN_SECONDS
                for guard in list(self._guards):
                    with self._noting(guard):
                        guard.list_folders()
                for guard in list(self._guards):
                    with self._noting(guard):
                        guard.finish(ended_well=self._ended_well)
        finally:
            self._is_laid.set()
            os.close(wake_fd)

    def _store(self) -> bool:
        """Store what appeared. Returns whether something is being written."""
        is_left = False
        for guard in list(self._guards):
            with self._noting(guard):
                is_left = guard.store_moved() or is_left
        return is_left

    def _wait(self, wake_fd: int, seconds: float | None) -> None:
        """Wait until something appears, or the command ends."""
        poll = select.poll()
        for fd in (wake_fd, *(guard.fd for guard in self._guards if guard.fd >= 0)):
            poll.register(fd, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)

    @contextlib.contextmanager
    def _noting(self, guard: FolderGuard) -> Iterator[None]:
        """A block whose error is a line, and the end of this guard."""
        try:
            yield
        except _EXPECTED as error:
            why = in_words(error) or "it does not fit into memory"
            self._problems.append(f"--keep {guard.pattern.text}: nothing more is kept: {why}")
            self._problems += guard.problems
            self._guards.remove(guard)
            guard.close()

    @contextlib.contextmanager
    def _opened(self, environment: Mapping[str, str]) -> Iterator[None]:
        """Open the cache as the command would, and the guards."""
        try:
            with _variables_of(environment), variables_left_alone(_NOT_OBEYED):
                cache = FileStreamProgramCache(self._layout.root, compile_once=False)
        except _EXPECTED as error:
            self._problems.append(f"--keep: nothing is kept: {in_words(error)}")
            raise
        with cache:
            if cache.is_forgeable:
                self._problems.append(
                    f"--keep: nothing is kept: {cache.path} is shared with a group, and programs run what is in their "
                    "folders: sign the entries (lockcache key new)"
                )
            else:
                renews = configured_switch("LOCKCACHE_RECACHE")
                presences: dict[str, Presence] = {}
                self._guards = [
                    FolderGuard(cache, pattern, renews=renews, presences=presences) for pattern in self._patterns
                ]
            try:
                yield
            finally:
                for guard in self._guards:
                    guard.close()


@contextlib.contextmanager
def _variables_of(environment: Mapping[str, str]) -> Iterator[None]:
    """Have lockcache's variables of the command in this block, which options may have stated."""
    stated = {name: value for name, value in environment.items() if name.startswith("LOCKCACHE_")}
    before = {name: os.environ.get(name) for name in stated}
    os.environ.update(stated)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
