# SPDX-License-Identifier: Apache-2.0
"""``lockcache stats``: the size of directories, their hits, and whether their accounting is right."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import click

from lockcache.cli import options
from lockcache.cli.catalogue import Guest, Own, open_catalogue
from lockcache.cli.open_directory import LOCK_TIMEOUT_SECONDS
from lockcache.cli.output import cap_in_words, elapsed, plain, print_json, seed_in_words, size_in_words, span
from lockcache.cli.progress import step_bar
from lockcache.compile_server import describe_state, read_state
from lockcache.filestream import Seed
from lockcache.filestream.accounting import read_since, total_of
from lockcache.filestream.bundle import SeedFile
from lockcache.filestream.eviction import pinned_sizes
from lockcache.filestream.inspect import (
    UNKNOWN,
    Spread,
    add_sums,
    read_ahead,
    spread as spread_of,
    sum_up,
)
from lockcache.lowlevel import (
    SHARDS,
    CacheDirectory,
    Counters,
    Layout,
    Slot,
    StatedPolicy,
    accounted,
    find_drift,
    keeper_of,
    measure_quarantine,
    measured,
    read_counters,
    read_status,
    staged,
)
from lockcache.remote import ServerCounters, ServerSeen, read_servers, reset_servers_locked
from lockcache.sizes import counted, format_size

_BARS: Final = " ▁▂▃▄▅▆▇█"
_MOST_NAMESPACES: Final = 12
_ASCII_BARS: Final = " .:-=+*#%"


@click.command("stats")
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=options.Directory())
@click.option(
    "--no-measure",
    is_flag=True,
    help="Do not walk the directory for drift and namespaces (half a minute for a million entries).",
)
@click.option("--spread", is_flag=True, help="Show how entries are spread over the shards, too.")
@click.option("--reset", is_flag=True, help="Print the statistics, then count hits and misses from zero.")
@options.as_json
def command(directories: tuple[str, ...], no_measure: bool, spread: bool, reset: bool, as_json: bool) -> None:
    """Show the size of a cache, its hits, and whether its accounting is right.

    Processes report hits and misses with a put, when they end, and when they ask for their own statistics. The cap
    limits the disk space of entries, in whole blocks. Drift is the difference between recorded and actual bytes;
    'lockcache recount' corrects it. A hit saves the compile time that its entry records. A server behind the
    directory has its own line, and so has this user's compile server. Changes nothing, except with --reset, which
    resets the counts that every user of this command sees, but not the metrics. With --json, several directories print
    an object each.

    Works on every layout that the daemon manages. Directories of other programs are measured, and report no hits.

    \b
    Examples:
      lockcache stats
      lockcache stats --no-measure /scratch/kernels /shared/kernels
      lockcache stats --reset
      lockcache stats --json | jq .programs.hit_ratio
    """
    for number, catalogue in enumerate([open_catalogue(each) for each in directories or (None,)]):
        if reset and isinstance(catalogue, Guest):
            raise click.UsageError(f"--reset: {catalogue.program} reports no hits that could be counted")
        found = _surveyed(catalogue, measure=not no_measure)
        if as_json:
            print_json(found)
        else:
            click.echo("" if number else None, nl=bool(number))
            for name, text in _facts(found, spread).items():
                click.echo(f"{name:<10}  {plain(text) if name != 'spread' else text}")
        if reset:
            _reset(catalogue.layout)


def _surveyed(catalogue: Own | Guest, *, measure: bool) -> dict[str, Any]:
    if isinstance(catalogue, Guest):
        found = _survey_guest(catalogue)
    else:
        found = _survey(catalogue.layout, measure=measure)
    return {**found, "layout": catalogue.program}


def _reset(layout: Layout) -> None:
    with closing(CacheDirectory(layout.root, LOCK_TIMEOUT_SECONDS)) as opened:
        opened.usage()
        with opened.counting(LOCK_TIMEOUT_SECONDS) as counters:
            counters.reset()
            reset_servers_locked(layout)


def _survey(layout: Layout, *, measure: bool) -> dict[str, Any]:
    slots = accounted(layout)
    stored: list[int] = []
    with step_bar("measuring", SHARDS) as advance:

        def after_shard(stored_bytes: int) -> None:
            stored.append(stored_bytes)
            advance(1)

        if slots is None:
            held, drift = measured(layout, after_shard), None
        else:
            held, drift = slots, find_drift(layout, after_shard) if measure else None
    used = [slot for slot in held if slot.entries]
    shards = {
        "used": len(used),
        "entries": spread_of([slot.entries for slot in used])._asdict() if used else None,
        "bytes": spread_of([slot.bytes for slot in used])._asdict() if used else None,
    }
    return {
        **_common(layout, total_of(held)),
        "stored_bytes": sum(stored) if stored else None,
        "accounted": slots is not None,
        "staged": staged(layout)._asdict(),
        "shards": shards,
        "drift": drift and drift._asdict(),
        "namespaces": {name: slot._asdict() for name, slot in _by_namespace(layout).items()} if measure else None,
    }


def _by_namespace(layout: Layout) -> dict[str, Slot]:
    """Returns the namespaces, the largest first."""
    held: dict[str, Slot] = {}
    with step_bar("reading records", SHARDS) as advance:
        for more in read_ahead(partial(sum_up, layout), range(SHARDS)):
            add_sums(held, more.namespaces)
            advance(1)
    return dict(sorted(held.items(), key=lambda each: -each[1].bytes))


def _survey_guest(guest: Guest) -> dict[str, Any]:
    """Returns the survey of another program's directory, which has no accounting: unknown values are ``None``."""
    with step_bar("measuring", 1) as advance:
        slot = guest.held()
        advance(1)
    unknown = {"stored_bytes": None, "accounted": False, "shards": None, "drift": None, "namespaces": None}
    return {**_common(guest.layout, slot), **unknown, "staged": staged(guest.layout)._asdict()}


def _common(layout: Layout, total: Slot) -> dict[str, Any]:
    counters, keeper, policy = read_counters(layout), keeper_of(layout), StatedPolicy(layout).load()
    cap, seed = policy.max_size_bytes, policy.seed
    since = read_since(layout)
    return {
        "path": layout.root,
        "bytes": total.bytes,
        "entries": total.entries,
        "max_size_bytes": cap,
        "share": total.bytes / cap if cap else None,
        "seed": seed and {**asdict(seed), "programs": _served(layout, seed)},
        "quarantined": measure_quarantine(layout)._asdict(),
        "pinned": _pinned(layout)._asdict(),
        "programs": {**counters._asdict(), "hit_ratio": counters.hit_ratio},
        "since_reset": since and _counts_since(since),
        "remote": [_server(seen) for seen in read_servers(layout)],
        "compile_server": read_state(),
        "daemon": {"who": keeper, **read_status(layout)} if keeper else None,
    }


def _pinned(layout: Layout) -> Slot:
    sizes = [pin.size_bytes for pin in pinned_sizes(layout)]
    return Slot(sum(sizes), len(sizes))


def _served(layout: Layout, seed: Seed) -> int | None:
    """Returns how many kernels the directory's copy of a bundle serves; ``None`` where no copy can be read."""
    if seed.is_detached:
        return None
    try:
        copy = SeedFile(layout)
    except OSError:
        return None
    try:
        return len(copy.served())
    except OSError:
        return None
    finally:
        copy.close()


def _facts(found: dict[str, Any], with_spread: bool) -> dict[str, str]:
    share = "" if found["share"] is None else f", {found['share']:.1%} of the cap"
    stored = "" if found["stored_bytes"] is None else f"{size_in_words(found['stored_bytes'])} in "
    facts = {
        "path": found["path"],
        "layout": found["layout"],
        "holds": f"{stored}{counted(found['entries'], 'entry')}",
        "on disk": f"{size_in_words(found['bytes'])}{share}",
        "cap": cap_in_words(found["max_size_bytes"]),
        "staged": _slot(found["staged"], "write under way", "writes under way"),
    }
    if found["seed"]:
        seed = dict(found["seed"])
        served = seed.pop("programs")
        facts["seed"] = seed_in_words(Seed(**seed), served)
    if found["pinned"]["entries"]:
        facts["pinned"] = _slot(found["pinned"], "entry", "entries")
    if found["quarantined"]["entries"]:
        facts["quarantine"] = _slot(found["quarantined"], "corrupt entry", "corrupt entries")
    if with_spread and found["shards"] and found["shards"]["used"]:
        facts["shards"], facts["spread"] = _shards(found["shards"])
    if found["namespaces"] and found["namespaces"].keys() != {UNKNOWN}:
        facts["namespaces"] = _namespaces(found["namespaces"])
    counters = Counters(**{name: found["programs"][name] for name in Counters._fields})
    since = found["since_reset"]
    facts["processes"] = _processes(counters if since is None else _counters(since), counters.last_report_ns)
    if since is not None:
        facts["processes"] += f"; counted since {elapsed(since['reset_ns'])} ago"
    saved_ns = (since or found["programs"])["saved_ns"]
    facts["saved"] = f"{span(saved_ns)} of compiling" if saved_ns else "nothing recorded yet"
    for number, server in enumerate(found["remote"], 1):
        facts["remote" if number == 1 else f"remote {number}"] = _server_in_words(server)
    facts["drift"] = _drift(found)
    facts["daemon"] = found["daemon"]["who"] if found["daemon"] else "none running"
    facts["compiler"] = describe_state(found["compile_server"])
    return facts


def _slot(slot: dict[str, int], one: str, many: str) -> str:
    return f"{counted(slot['entries'], one, many)}, {format_size(slot['bytes'])}"


def _namespaces(held: dict[str, dict[str, int]]) -> str:
    shown = [f"{name} {format_size(slot['bytes'])} ({slot['entries']})" for name, slot in held.items()]
    more = [f"and {len(shown) - _MOST_NAMESPACES} more"] if len(shown) > _MOST_NAMESPACES else []
    return ", ".join([*shown[:_MOST_NAMESPACES], *more])


def _shards(shards: dict[str, Any]) -> tuple[str, str]:
    entries, sizes = Spread(**shards["entries"]), Spread(**shards["bytes"])
    smallest = f"{entries.smallest} to " if entries.smallest != entries.largest else ""
    each = f"{smallest}{counted(entries.largest, 'entry')}"
    words = f"{shards['used']} of {SHARDS} used: {each}, median {entries.median}"
    return words, (
        f"{format_size(sizes.smallest)} [{_sparkline(sizes.histogram)}] {format_size(sizes.largest)} a shard, "
        f"median {format_size(sizes.median)}"
    )


def _sparkline(histogram: list[int]) -> str:
    try:
        _BARS.encode(sys.stdout.encoding or "ascii")
        bars = _BARS
    except UnicodeEncodeError:
        bars = _ASCII_BARS
    most = max(histogram)
    # At least the lowest bar where there is anything.
    return "".join(bars[-(-count * (len(bars) - 1) // most)] for count in histogram)


def _server(seen: ServerSeen) -> dict[str, Any]:
    counters, since = seen.counters, seen.since_reset
    return {
        "server": seen.server,
        "is_resting": seen.is_resting,
        **counters._asdict(),
        "hit_ratio": counters.hit_ratio,
        "since_reset": since and _counts_since(since),
    }


def _server_in_words(found: dict[str, Any]) -> str:
    counters = ServerCounters(**{name: (found["since_reset"] or found).get(name, 0) for name in vars(ServerCounters())})
    words = f"{found['server']}: "
    if counters.hit_ratio is None:
        words += "no lookups reported yet"
    else:
        words += _hits(counters)
    words += f", {counted(counters.puts, 'put', 'puts')}"
    words += f", {counters.prefetched} prefetched" if counters.prefetched else ""
    not_believed = counters.corrupt_entries + counters.refused_entries + counters.stale_entries
    for count, one, many in (
        (counters.lost_puts, "put lost", "puts lost"),
        (counters.refused_puts, "of them refused", "of them refused"),
        (counters.lost_removals, "removal lost", "removals lost"),
        (counters.errors, "error", "errors"),
        (not_believed, "answer not believed", "answers not believed"),
    ):
        words += f", {counted(count, one, many)}" if count else ""
    words += f"; {format_size(counters.bytes_read)} read, {format_size(counters.bytes_written)} written"
    if counters.answers:
        words += f", {span(counters.answers_ns // counters.answers)} an answer"
    return f"{words}; not asked now: it did not answer" if found["is_resting"] else words


def _counts_since(since: Counters | ServerCounters) -> dict[str, Any]:
    body = since._asdict()
    return {"reset_ns": body.pop("last_report_ns"), **body, "hit_ratio": since.hit_ratio}


def _counters(since: dict[str, Any]) -> Counters:
    return Counters(**{name: since[name] for name in Counters._fields if name in since})


def _hits(counters: Counters | ServerCounters) -> str:
    waits = f", {counters.waits} after waiting" if counters.waits else ""
    return f"{counters.hit_ratio:.1%} hits ({counters.hits} of {counters.hits + counters.misses}{waits})"


def _processes(counters: Counters, last_report_ns: int) -> str:
    if counters.hit_ratio is None:
        return "no hits or misses reported yet"
    words = f"{_hits(counters)}, {counted(counters.puts, 'put', 'puts')}"
    for count, *what in (
        (counters.evictions, "eviction"),
        (counters.dropped_writes, "dropped write"),
        (counters.corrupt_entries, "corrupt read"),
        (counters.uncacheable, "compilation that cannot be cached", "compilations that cannot be cached"),
    ):
        words += f", {counted(count, *what)}" if count else ""
    return f"{words}; last reported {elapsed(last_report_ns)} ago"


def _drift(found: dict[str, Any]) -> str:
    drift = found["drift"]
    if found["shards"] is None:
        return "not tracked for this layout (sizes are from a scan)"
    if not found["accounted"]:
        return "no accounting yet: lockcache has not written here (sizes are from a scan)"
    if drift is None:
        return "not measured"
    if not drift["shards"]:
        return "none" if not drift["busy_shards"] else f"none seen; {counted(drift['busy_shards'], 'busy shard')}"
    shards = counted(drift["shards"], "shard", "shards")
    return f"{drift['bytes']:+} bytes, {drift['entries']:+} entries in {shards}: run lockcache recount"
