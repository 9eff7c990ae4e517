# SPDX-License-Identifier: Apache-2.0
"""Recording the library's own removals of entries (evictions, ``clear``, quarantine), and writes that it gave up.

The calls of the operating system are watched, so that no removal is overlooked: every file that this process unlinks or
renames away from under ``entries/`` is an operation of that entry's history, whichever function of the library did it.
``python -m lockcache_stress.judge.removals FOLDER ARG...`` is ``lockcache-daemon`` with its removals recorded.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from lockcache.filestream import EntryWriter, Written
from lockcache.filestream.disk import last_use_ns
from lockcache.filestream.eviction import evict as eviction
from lockcache_stress.judge.operations import Kind, Recorder

_ENTRY: Final = re.compile(r"entries/([0-9a-f]{2})/([0-9a-f]{62})\Z")
# The writer's words in the reason of a dropped write.
_KEPT: Final = "an older value may still be read"
_REMOVING: Final = ("unlink", "remove", "rename", "replace")


class Watch:
    """Watches this process until :meth:`close`. One at a time."""

    def __init__(self, recorder: Recorder) -> None:
        #: The recorder of the removals; a forked child has a file of its own.
        self.recorder = recorder
        self._thread = threading.local()
        self._real: dict[str, Callable[..., None]] = {name: getattr(os, name) for name in _REMOVING}
        for name, real in self._real.items():
            setattr(os, name, self._recording(real))
        self._store = EntryWriter.store
        setattr(EntryWriter, "store", self._storing())  # noqa: B010 (mypy forbids the plain assignment to a method)
        # The inode and last use of entries that are being evicted, at the time when they were chosen.
        self._chosen: dict[str, tuple[int, int]] = {}
        self._evict = eviction.remove_victims  # type: ignore[attr-defined]
        setattr(eviction, "remove_victims", self._evicting())  # noqa: B010
        #: The number of entries that an evictor here removed although they were used or replaced after it had chosen
        #: them. A use in the microseconds between the evictor's last check and the removal counts too, so a few are not
        #: a bug.
        self.evicted_in_use = 0
        #: The share of evictions (0 to 1) in which a victim is used between choice and removal, and so has to stay.
        self.meddling = 0.0
        self._rng = random.Random(0)

    def close(self) -> None:
        """Restore the original functions."""
        for name, real in self._real.items():
            setattr(os, name, real)
        setattr(EntryWriter, "store", self._store)  # noqa: B010
        setattr(eviction, "remove_victims", self._evict)  # noqa: B010

    @property
    def was_dropped(self) -> bool:
        """Whether the last write of this thread was given up."""
        return getattr(self._thread, "was_dropped", False)

    @property
    def kept_older(self) -> bool:
        """Whether the last write of this thread reported that an older value could not be removed either."""
        return getattr(self._thread, "kept_older", False)

    def _storing(self) -> Callable[..., Written]:
        store, thread = self._store, self._thread

        def recorded(writer: EntryWriter, *arguments: Any, **options: Any) -> Written:
            thread.was_dropped, thread.kept_older = True, False
            written = store(writer, *arguments, **options)
            thread.was_dropped, thread.kept_older = written.is_dropped, _KEPT in written.why
            return written

        return recorded

    def _evicting(self) -> Callable[..., Any]:
        evict, chosen = self._evict, self._chosen

        def watched(directory: Any, victims: list[Any], *arguments: Any, **options: Any) -> Any:
            chosen.update({victim.name: (victim.inode, victim.last_use_ns) for victim in victims})
            if victims and self._rng.random() < self.meddling:
                with contextlib.suppress(FileNotFoundError):  # the same as a hit in another process
                    os.utime(directory.layout.entry(self._rng.choice(victims).name))
            try:
                return evict(directory, victims, *arguments, **options)
            finally:
                for victim in victims:
                    chosen.pop(victim.name, None)

        return watched

    def _count_use_since_choice(self, path: str, name: str) -> None:
        chosen = self._chosen.get(name)
        if chosen is not None:
            status = os.lstat(path)
            self.evicted_in_use += chosen != (status.st_ino, last_use_ns(status))

    def _recording(self, real: Callable[..., None]) -> Callable[..., None]:
        def recorded(path: Any, *arguments: Any, **options: Any) -> None:
            found = _ENTRY.search(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else None
            if found is None:
                real(path, *arguments, **options)
                return
            name = bytes.fromhex(found[1] + found[2])
            with contextlib.suppress(FileNotFoundError):
                self._count_use_since_choice(os.fspath(path), name.hex())
            begun = self.recorder.begin(Kind.REMOVED, name)
            try:
                real(path, *arguments, **options)
            except OSError:
                self.recorder.end(begun, Kind.NOTHING, name)
                raise
            # After a signal handler's exception it stays open: Python runs the handler once the file is gone.
            self.recorder.end(begun, Kind.REMOVED, name)

        return recorded


def recorded_command(folder: str) -> list[str]:
    """Returns the command of a daemon whose removals are recorded, without arguments of its own."""
    return [sys.executable, "-m", __name__, folder]


def main() -> None:
    """Run the daemon with the arguments after the first, which is the folder of the history."""
    from lockcache_daemon.cli import main as run_daemon

    folder = sys.argv.pop(1)
    Watch(Recorder(folder, f"daemon-{os.getpid()}"))
    run_daemon()


if __name__ == "__main__":
    main()
