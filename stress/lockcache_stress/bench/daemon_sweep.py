"""One sweep of the daemon that evicts a tenth of 100,000 entries: how long it takes by its own log.

The directory is exactly full by its own accounting, so that the first tick sweeps it down to the low watermark, 90 %.
Folders count and stay (ext4, xfs), for which some more entries go. What is timed is the whole sweep: looking at all
entries, choosing the least recently used, removing them.
"""

from __future__ import annotations

from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.bench.daemon import first_sweep, named, why_not
from lockcache_stress.bench.full_directories import cap_of_full, fill
from lockcache_stress.bench.peers import THEIRS
from lockcache_stress.run import DaemonProcess

__all__ = ["measure"]

_BAR: Final = Bar("<", 2000, " ms")


def measure(bench: Bench) -> list[Line]:
    """10,000 evictions in under 2 s."""
    entries = bench.pick(100_000, 2000)
    reason = why_not(bench, entries)
    if reason:
        return [Line(f"daemon's sweep of {entries // 10:,} evictions", skipped=reason)]
    path, _ = fill(bench, THEIRS, entries)
    bench.show(0.5, "sweeping")
    with DaemonProcess(path, bench.directory("log"), cap_of_full(path)) as daemon:
        sweep, _ = first_sweep(daemon)
    trouble = daemon.trouble()
    if sweep is None:
        return [Line(f"daemon's sweep; {trouble}", "none seen", bar=str(_BAR), ok=False, is_time=True)]
    evicted, milliseconds = sweep["evicted_entries"], sweep["milliseconds"]
    return [
        Line(
            named(f"daemon's sweep of {evicted:,} evictions", trouble),
            _BAR.show(milliseconds),
            ratio=f"of {entries:,} entries",
            bar=str(_BAR),
            # A sweep that stopped half-way would be quick for the wrong reason.
            ok=_BAR.holds(milliseconds) and evicted >= entries // 10 and not trouble,
            is_time=not trouble,
            numbers={"milliseconds": milliseconds, "evicted_entries": evicted, "entries": entries},
        )
    ]
