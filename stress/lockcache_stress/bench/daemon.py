# SPDX-License-Identifier: Apache-2.0
"""The real ``lockcache-daemon``: next to the other measurements, whose bars must hold with it too, and by itself.

By itself, over 100,000 entries, two things are measured: its share of one core while nothing happens, and one sweep by
its own log. The daemon is idle after its first count. For the sweep the directory is exactly full by its own
accounting, so that the first tick sweeps it down to the low watermark, 90 %. Folders are counted and stay (ext4, xfs),
so some more entries are evicted for them. The time is that of the whole sweep: inspecting all entries, choosing the
least recently used, removing them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psutil

from lockcache_stress.bench.base import Bar, Bench, Line, open_lockcache
from lockcache_stress.bench.peers import CUDA_CORE, cap_of_full, fill, held_bytes, lacking_room
from lockcache_stress.processes import wait_until
from lockcache_stress.run import DaemonProcess, find_daemon

_LIMIT_SECONDS: Final = 120.0
# A daemon needs a budget; this one is never reached, for measurements without evictions.
_PLENTY_BYTES: Final = 1 << 50
_BAR: Final = Bar("<", 1, " %")
_SWEEP: Final = Bar("<", 2000, " ms")
_NAME: Final = "idle daemon over {:,} entries, of a core"

# The daemon counts every shard once after its start. It has settled when all entries are accounted for and a second
# passed in which it used less than a tenth of a second of a core. A daemon that never settles is measured all the same,
# and misses the bar.
_SETTLED_SECONDS: Final = 0.1
_MOST_SETTLING_SECONDS: Final = 30.0


class Daemons(ExitStack):
    """One ``lockcache-daemon`` for each directory that is given to it; their logs go to a folder."""

    def __init__(self, logs: str) -> None:
        super().__init__()
        self._logs = logs
        self.attended = 0
        #: The deaths and complaints of the daemons.
        self.troubles: list[str] = []

    @contextmanager
    def attending(self, path: str, max_size_bytes: int | None) -> Iterator[None]:
        """Have a daemon keep ``path`` under this cap, or with one that is never reached, until the block ends."""
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
        """Have a daemon keep ``path``, like :meth:`attending`, until the block of these daemons ends."""
        self.enter_context(self.attending(path, max_size_bytes))

    def line(self, name: str) -> Line:
        """Returns the line about these daemons. Requires: after the block."""
        return Line(
            f"daemons next to {name}, dead or complaining" + "".join(f"; {each}" for each in self.troubles),
            f"{len(self.troubles)} of {self.attended}",
            bar="0",
            ok=not self.troubles,
            numbers={"attended": self.attended, "troubles": list(self.troubles)},
        )


def why_not(bench: Bench, entries: int) -> str:
    """Returns why a daemon over so many entries cannot be measured here; empty if it can."""
    return why_no_daemon() or lacking_room(bench.root, entries)


def why_no_daemon() -> str:
    """Returns why a daemon cannot be run here; empty if it can."""
    return "" if find_daemon() else "lockcache-daemon is not installed next to this interpreter"


def first_sweep(daemon: DaemonProcess, count: Callable[[], int] = lambda: 0) -> tuple[dict[str, Any] | None, int]:
    """Returns the first sweep of the daemon's log, ``None`` if there is none, and how much ``count`` grew meanwhile."""
    before = count()
    wait_until(lambda: daemon.events("sweep") or not daemon.is_alive(), _LIMIT_SECONDS, every_seconds=0.05)
    return next(iter(daemon.events("sweep")), None), count() - before


def named(name: str, trouble: str) -> str:
    """Returns the name of a line, with the trouble if there was any."""
    return f"{name}; {trouble}" if trouble else name


def measure_idle(bench: Bench) -> list[Line]:
    """Measure the idle daemon: under 1 % of a core."""
    entries, seconds = bench.pick(100_000, 1000), bench.pick(20, 3)
    reason = why_not(bench, entries)
    if reason:
        return [Line(_NAME.format(entries), skipped=reason)]
    path, _ = fill(bench, CUDA_CORE, entries)
    with DaemonProcess(path, bench.directory("log"), 10 * held_bytes(path)) as daemon:
        process = daemon.process()
        bench.show(0.0, "letting it settle")
        settle(process, path, entries)
        percent = idle_percent(bench, process, seconds)
        rss_bytes = process.memory_info().rss if daemon.is_alive() else 0
    # A daemon that died uses no core, and must not pass for an idle one.
    trouble = daemon.trouble()
    return [idle_line(entries, percent, trouble, {"seconds": seconds, "rss_bytes": rss_bytes})]


def idle_line(entries: int, percent: float, trouble: str, more: Mapping[str, float]) -> Line:
    """Returns the line of an idle daemon, with its memory if ``more`` has that."""
    # Shards are filled evenly, so that of a million a few are left out.
    about = round(entries, 1 - len(str(entries)))
    return Line(
        named(_NAME.format(about), trouble),
        _BAR.show(percent),
        ratio=f"{more['rss_bytes'] / (1 << 20):.0f} MiB RSS" if "rss_bytes" in more else "",
        bar=str(_BAR),
        ok=_BAR.holds(percent) and not trouble,
        is_time=not trouble,
        numbers={"core_percent": percent, **more, "entries": entries},
    )


def measure_sweep(bench: Bench) -> list[Line]:
    """Measure a sweep: 10,000 evictions in under 2 s."""
    entries = bench.pick(100_000, 2000)
    reason = why_not(bench, entries)
    if reason:
        return [Line(f"daemon's sweep of {entries // 10:,} evictions", skipped=reason)]
    path, _ = fill(bench, CUDA_CORE, entries)
    bench.show(0.5, "sweeping")
    with DaemonProcess(path, bench.directory("log"), cap_of_full(path)) as daemon:
        sweep, _ = first_sweep(daemon)
    trouble = daemon.trouble()
    if sweep is None:
        return [sweep_line("daemon's sweep", None, entries // 10, _SWEEP, trouble)]
    name, ratio = f"daemon's sweep of {sweep['evicted_entries']:,} evictions", f"of {entries:,} entries"
    return [sweep_line(name, sweep, entries // 10, _SWEEP, trouble, ratio, {"entries": entries})]


def sweep_line(
    name: str,
    sweep: Mapping[str, Any] | None,
    least: float,
    bar: Bar,
    trouble: str,
    ratio: str = "",
    more: Mapping[str, Any] | None = None,
) -> Line:
    """Returns the line of a sweep. It fails for a sweep that evicted too few, since a part of a sweep is quick."""
    if sweep is None:
        return Line(named(name, trouble), "none seen", bar=str(bar), ok=False, is_time=True)
    evicted, milliseconds = sweep["evicted_entries"], sweep["milliseconds"]
    return Line(
        named(name, trouble),
        bar.show(milliseconds),
        ratio=ratio,
        bar=str(bar),
        ok=bar.holds(milliseconds) and evicted >= least and not trouble,
        is_time=not trouble,
        numbers={"milliseconds": milliseconds, "evicted_entries": evicted, **(more or {})},
    )


def settle(process: psutil.Process, path: str, entries: int) -> None:
    """Wait until the daemon has counted everything and has nothing left to do."""
    cache, deadline = open_lockcache(path), time.monotonic() + _MOST_SETTLING_SECONDS
    used = cpu_seconds(process)
    while time.monotonic() < deadline:
        time.sleep(1)
        before, used = used, cpu_seconds(process)
        if used - before < _SETTLED_SECONDS and cache.stats().entries == entries:
            return


def idle_percent(bench: Bench, process: psutil.Process, seconds: int) -> float:
    """Returns the share of one core that a process uses in the next ``seconds``."""
    before, began = cpu_seconds(process), time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        bench.show(passed / seconds, "watching it do nothing")
        time.sleep(min(0.5, seconds - passed))
    return 100 * (cpu_seconds(process) - before) / seconds


def cpu_seconds(process: psutil.Process) -> float:
    """Returns the processor time of a process in user and kernel mode, which the kernel counts in steps of 10 ms."""
    times = process.cpu_times()
    return float(times.user + times.system)
