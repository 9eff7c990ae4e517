# SPDX-License-Identifier: Apache-2.0
"""The real daemon over 1,000,000 entries: its cost while nothing happens, its memory, and the time of 100,000 evictions
while eight processes put, by last use and by cost.

Each writer puts a new value every 25 ms, the time in which the fastest kernels compile: 320 puts a second together.

Lowering the cap, as an operator would, begins a sweep. The time of a sweep is from the daemon's log: inspecting all
entries, choosing, removing. Resident memory is the most that the process ever had, its sweep included.

The entries are made as cheaply as possible: some 15 us each. Each is a whole entry with a true record, and would be a
hit: its payload is a hole of :data:`ENTRY_BYTES` zeros, which takes no block. As many processes as there are cores make
the entries under their final names, each in shards of its own, without syncing. Removing an entry frees its inode and
its name, which for files this small is nearly all of the work. Last uses are spread over a month and compile costs over
two orders of magnitude, by name. Entries that an earlier run left are kept, and only those that it evicted are made
again.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Final

from lockcache.filestream import PRIORITIES
from lockcache.filestream.accounting import space_of
from lockcache.filestream.entry import XATTR, Record, pack
from lockcache.lowlevel import SHARDS, CacheDirectory, Layout, Policy, Priority
from lockcache_stress.bench.base import Bar, Bench, Line, open_lockcache
from lockcache_stress.bench.daemon import (
    cpu_seconds,
    first_sweep,
    idle_line,
    idle_percent,
    named,
    settle,
    sweep_line,
    why_no_daemon,
)
from lockcache_stress.bench.peers import lacking_room
from lockcache_stress.processes import Group, start_pool, take_turn
from lockcache_stress.run import DaemonProcess

_MEMORY: Final = Bar("<", 300, " MB")
_SWEEP: Final = Bar("<", 10_000, " ms")

_WRITERS: Final = 8
_PAUSE_SECONDS: Final = 0.025
# Each writer uses its keys again and again, so that their entries fit between the high watermark and the cap.
_KEYS_EACH: Final = 1000

# Low enough that a sweep begins, and high enough that writers need not evict meanwhile: the cap is 4 % above the bytes
# that are held, the high watermark 3 % below them; at the low watermark a tenth of the entries has been evicted.
_LOW_SHARE: Final = 0.86
_EVICTED_SHARE: Final = 0.1
_LIMIT_SECONDS: Final = 120.0
ENTRY_BYTES: Final = 1024
#: The bytes that an entry takes on any file system: an inode with its attribute, and a name.
BYTES_ON_DISK: Final = 1024

_PAYLOAD: Final = bytes(ENTRY_BYTES)
_CHEAPEST_NS: Final = 20_000_000
_MOST_EXPENSIVE_OVER_CHEAPEST: Final = 100
_OLDEST_NS: Final = 30 * 24 * 3600 * 10**9


def measure(bench: Bench) -> list[Line]:
    """Measure the idle daemon, its memory, and a sweep by each priority."""
    entries = bench.pick(1_000_000, 10_000) // SHARDS * SHARDS
    name = f"daemon over {entries:,} entries"
    root = bench.kept_directory("million")
    reason = why_no_daemon() or (
        "" if os.path.exists(Layout(root).state) else lacking_room(root, entries, BYTES_ON_DISK)
    )
    if reason:
        return [Line(name, skipped=reason)]
    lines = []
    for priority in PRIORITIES:
        make_entries(root, entries, bench.show)
        lines += _measure(bench, root, entries, priority)
    return lines


def _measure(bench: Bench, root: str, entries: int, priority: Priority) -> list[Line]:
    seconds = bench.pick(20, 3)
    held = open_lockcache(root).stats()
    options = ("--policy", priority, "--low-watermark", f"{_LOW_SHARE:.0%}")
    with DaemonProcess(root, bench.directory("log"), 10 * held.bytes, options) as daemon:
        process = daemon.process()
        bench.show(0.0, "letting it settle")
        settle(process, root, held.entries)
        percent = idle_percent(bench, process, seconds) if priority == "lru" else None
        puts: Synchronized[int] = multiprocessing.get_context("spawn").Value("q", 0)
        with Group(_write, (root, puts), _WRITERS, 2, _LIMIT_SECONDS, needs_all=True) as writers:
            writers.gather()
            writers.open_gate(0)
            before = cpu_seconds(process)
            cap = _cap(root, held.bytes, entries)
            directory = CacheDirectory(root, 5.0)
            directory.policy.replace(Policy(cap, by_operator=True, priority=priority))
            bench.show(0.5, f"sweeping by {priority}")
            sweep, written = first_sweep(daemon, lambda: puts.value)
            worked = cpu_seconds(process) - before if daemon.is_alive() else 0.0
            writers.open_gate(1)
            writers.gather()
        peak_mb = _peak_bytes(process.pid) / 1e6 if daemon.is_alive() else 0.0
    trouble = daemon.trouble()
    lines = [] if percent is None else [idle_line(entries, percent, trouble, {})]
    lines.append(_memory_line(priority, peak_mb, trouble))
    return [*lines, _sweep_line(priority, entries, sweep, written, worked, trouble)]


def _cap(root: str, held_bytes: int, entries: int) -> int:
    """Returns the cap under which a sweep evicts a tenth of the entries, and a few dozen for rounding."""
    evicted = _EVICTED_SHARE * entries + 64
    return int((held_bytes - evicted * space_of(Layout(root)).of_bytes(ENTRY_BYTES)) / _LOW_SHARE)


def _write(root: str, puts: Synchronized[int], number: int, parent: Connection, gates: list[Connection]) -> None:
    """Run one writer, which puts until the second gate opens."""
    cache, value, done = open_lockcache(root), os.urandom(ENTRY_BYTES), 0
    take_turn(parent, gates[0])
    while not gates[1].poll(_PAUSE_SECONDS):
        cache[b"writer %d, %d" % (number, done % _KEYS_EACH)] = value
        done += 1
        with puts.get_lock():
            puts.value += 1
    parent.send(None)


def _peak_bytes(pid: int) -> int:
    """Returns the most memory that a process ever had resident, by the kernel."""
    with open(f"/proc/{pid}/status") as file:
        [kilobytes] = [line.split()[1] for line in file if line.startswith("VmHWM:")]
    return int(kilobytes) * 1024


def _memory_line(priority: Priority, megabytes: float, trouble: str) -> Line:
    return Line(
        named(f"its memory at the most, a sweep by {priority} included", trouble),
        _MEMORY.show(megabytes, 0),
        bar=str(_MEMORY),
        ok=_MEMORY.holds(megabytes) and not trouble,
        numbers={"peak_rss_bytes": int(megabytes * 1e6), "policy": priority},
    )


def _sweep_line(
    priority: Priority, entries: int, sweep: dict[str, Any] | None, written: int, worked: float, trouble: str
) -> Line:
    if sweep is None:
        return sweep_line(f"its sweep by {priority}", None, 0, _SWEEP, trouble)
    name = f"its sweep of {sweep['evicted_entries']:,} evictions by {priority}, {_WRITERS} writers next to it"
    # The processor time distinguishes a slow sweep from a busy machine.
    ratio = f"{worked:.1f} s of a core; {written:,} puts"
    more = {"entries": entries, "policy": priority, "puts_meanwhile": written, "core_seconds": worked}
    line = sweep_line(name, sweep, entries * _EVICTED_SHARE, _SWEEP, trouble, ratio, more)
    # A sweep next to which no writer wrote would be quick for the wrong reason.
    return replace(line, ok=line.ok and written > 0)


def make_entries(root: str, entries: int, show: Callable[[float, str], None]) -> None:
    """Make the missing ones of ``entries`` entries (a multiple of 256), and account for them."""
    os.makedirs(root, mode=0o700, exist_ok=True)
    CacheDirectory(root, 5.0).close()
    with start_pool(min(8, os.cpu_count() or 1)) as pool:
        for done, _ in enumerate(pool.imap_unordered(partial(_fill_shard, root, entries // SHARDS), range(SHARDS)), 1):
            show(done / SHARDS, f"making entries: {done * entries // SHARDS:,} of {entries:,}")
    directory = CacheDirectory(root, 5.0)
    try:
        os.unlink(directory.layout.state)  # so that the next opening counts all entries, as a first opening does
        directory.usage()
    finally:
        directory.close()


def _fill_shard(root: str, entries: int, shard: int) -> None:
    path = Layout(root).entry_shard(shard)
    os.makedirs(path, mode=0o700, exist_ok=True)
    there = set(os.listdir(path))
    now_ns = time.time_ns()
    for number in range(entries):
        file = hashlib.sha256(b"%d/%d" % (shard, number)).hexdigest()[2:]
        if file not in there:
            _make_entry(f"{path}/{file}", f"{shard:02x}{file}", now_ns)


def _make_entry(path: str, name: str, now_ns: int) -> None:
    rng = random.Random(name)
    cost_ns = int(_CHEAPEST_NS * _MOST_EXPENSIVE_OVER_CHEAPEST ** rng.random())
    used_ns = now_ns - int(_OLDEST_NS * rng.random())
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, ENTRY_BYTES)
        os.setxattr(fd, XATTR, pack(name, _PAYLOAD, Record(ENTRY_BYTES, used_ns, cost_ns, b"")))
        os.utime(fd, ns=(used_ns, used_ns))
    finally:
        os.close(fd)
