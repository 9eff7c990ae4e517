"""The real ``lockcache-daemon``: next to what is measured, all of which must hold with it too, and by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.bench.full_directories import lacking_room
from lockcache_stress.processes import wait_until
from lockcache_stress.run import DaemonProcess, find_daemon

__all__ = ["Daemons", "first_sweep", "named", "why_no_daemon", "why_not"]

_LIMIT_SECONDS: Final = 120.0
# A daemon wants a budget; where nothing is to be evicted, one that nothing reaches.
_PLENTY_BYTES: Final = 1 << 50


class Daemons(ExitStack):
    """One ``lockcache-daemon`` for each directory that is given to it; their logs go to a folder."""

    def __init__(self, logs: str) -> None:
        super().__init__()
        self._logs = logs
        self.attended = 0
        #: What was wrong with them: that one died, or complained.
        self.troubles: list[str] = []

    @contextmanager
    def attending(self, path: str, max_size_bytes: int | None) -> Iterator[None]:
        """A daemon keeps ``path`` under this cap, or under none that matters, for as long as the block lasts."""
        self.attended += 1
        logs = os.path.join(self._logs, f"daemon-{self.attended}")
        os.mkdir(logs, 0o700)
        daemon = DaemonProcess(path, logs, max_size_bytes or _PLENTY_BYTES)
        with daemon:
            yield
        trouble = daemon.trouble()
        if trouble:
            self.troubles.append(trouble)

    def attend(self, path: str, max_size_bytes: int | None) -> None:
        """The same, until these daemons' own block ends."""
        self.enter_context(self.attending(path, max_size_bytes))

    def line(self, name: str) -> Line:
        """Returns the line about them. Requires: after the block."""
        return Line(
            f"daemons beside {name}, dead or complaining" + "".join(f"; {each}" for each in self.troubles),
            f"{len(self.troubles)} of {self.attended}",
            bar="0",
            ok=not self.troubles,
            numbers={"attended": self.attended, "troubles": list(self.troubles)},
        )


def why_not(bench: Bench, entries: int) -> str:
    """Why a daemon over so many entries cannot be measured here; empty if it can."""
    return why_no_daemon() or lacking_room(bench.root, entries)


def why_no_daemon() -> str:
    """Why no daemon can be run here; empty if one can."""
    return "" if find_daemon() else "lockcache-daemon is not installed next to this interpreter"


def first_sweep(daemon: DaemonProcess, count: Callable[[], int] = lambda: 0) -> tuple[dict[str, Any] | None, int]:
    """Returns the first sweep of its log, ``None`` if there is none, and how much ``count`` grew meanwhile."""
    before = count()
    wait_until(lambda: daemon.events("sweep") or not daemon.is_alive(), _LIMIT_SECONDS, every_seconds=0.05)
    return next(iter(daemon.events("sweep")), None), count() - before


def named(name: str, trouble: str) -> str:
    """Returns the name of a line, with what went wrong."""
    return f"{name}; {trouble}" if trouble else name
