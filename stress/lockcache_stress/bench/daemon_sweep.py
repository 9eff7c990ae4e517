"""How long one sweep takes that evicts a tenth of 100,000 entries, by the daemon's own log.

The directory is exactly full by its own accounting, so that the first tick sweeps it down to the low watermark, 90 %.
Folders count and stay (ext4, xfs), for which some more entries go. What is timed is the whole sweep: looking at all
entries, choosing the least recently used, removing them.
"""

from __future__ import annotations

import time
from typing import Any, Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.bench.daemon import WatchedDaemon, why_not
from lockcache_stress.bench.full_directories import cap_of_full, fill_theirs

__all__ = ["measure"]

_BAR: Final = Bar("<", 2000, " ms")
_LIMIT_SECONDS: Final = 60.0


def measure(bench: Bench) -> list[Line]:
    """10,000 evictions in under 2 s."""
    entries = bench.pick(100_000, 2000)
    reason = why_not(bench, entries)
    if reason:
        return [Line(f"daemon's sweep of {entries // 10:,} evictions", skipped=reason)]
    path, _ = fill_theirs(bench, entries)
    bench.show(0.5, "sweeping")
    with WatchedDaemon(path, bench.directory("log"), cap_of_full(path)) as daemon:
        sweep = _first_sweep(daemon)
    trouble = daemon.trouble()
    if sweep is None:
        return [Line(f"daemon's sweep; {trouble}", "none seen", bar=str(_BAR), ok=False, is_time=True)]
    evicted, milliseconds = sweep["evicted_entries"], sweep["milliseconds"]
    return [
        Line(
            f"daemon's sweep of {evicted:,} evictions" + (f"; {trouble}" if trouble else ""),
            _BAR.show(milliseconds),
            ratio=f"of {entries:,} entries",
            bar=str(_BAR),
            # A sweep that stopped half-way would be quick for the wrong reason.
            ok=_BAR.holds(milliseconds) and evicted >= entries // 10 and not trouble,
            is_time=not trouble,
            numbers={"milliseconds": milliseconds, "evicted_entries": evicted, "entries": entries},
        )
    ]


def _first_sweep(daemon: WatchedDaemon) -> dict[str, Any] | None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while daemon.is_alive() and time.monotonic() < deadline:
        sweeps = daemon.events("sweep")
        if sweeps:
            return sweeps[0]
        time.sleep(0.05)
    return None
