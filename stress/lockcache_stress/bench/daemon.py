"""The real ``lockcache-daemon`` over a directory of many small entries, and what it says of itself."""

from __future__ import annotations

import json
from typing import Any

import psutil

from lockcache_stress.bench.base import Bench, open_ours
from lockcache_stress.bench.full_directories import lacking_room
from lockcache_stress.run import DaemonProcess, find_daemon

__all__ = ["WatchedDaemon", "why_no_daemon", "why_not"]


class WatchedDaemon(DaemonProcess):
    """A daemon whose use of the machine and whose log can be read while it runs."""

    def __enter__(self) -> WatchedDaemon:
        # The first count of 100,000 files takes longer than the daemon waits for a lock. Whoever asks it for its cap
        # opens the directory too, and it would complain of that in half of the runs.
        open_ours(self._directory).close()
        super().__enter__()
        return self

    def process(self) -> psutil.Process:
        """Raises :class:`psutil.NoSuchProcess` if it died. Requires: within the ``with`` block."""
        if self._process is None:
            raise ValueError("the daemon is not running: use it in its with block")
        return psutil.Process(self._process.pid)

    def is_alive(self) -> bool:
        """Whether it runs; one that ended and was not waited for yet does not."""
        return self._process is not None and self._process.poll() is None

    def trouble(self) -> str:
        """That it died, or the first thing of which it complained; empty if all was well. Requires: after the block."""
        if not self.result["ended_when_asked"]:
            return f"the daemon died, exit code {self.result['exit_code']}"
        complaints = self.result["complaints"]
        return f"the daemon complained: {json.dumps(complaints[0])}" if complaints else ""

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What its log says so far of one kind of event; a line that is not whole yet is left for the next time."""
        with open(self._log) as file:
            lines = [line for line in file if line.startswith("{") and line.endswith("\n")]
        return [event for event in map(json.loads, lines) if event["event"] == kind]


def why_not(bench: Bench, entries: int) -> str:
    """Why a daemon over so many entries cannot be measured here; empty if it can."""
    return why_no_daemon() or lacking_room(bench.root, entries)


def why_no_daemon() -> str:
    """Why no daemon can be run here; empty if one can."""
    return "" if find_daemon() else "lockcache-daemon is not installed beside this interpreter"
