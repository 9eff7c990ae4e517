"""``lockcache evict``: remove what an operator names, the least recently used first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from lockcache.cli import options
from lockcache.cli.filters import FILTERS_IN_WORDS, filters, selection_of
from lockcache.cli.open_directory import held, look, open_directory
from lockcache.cli.output import confirm, entry_heading, entry_line, print_facts, size_in_words
from lockcache.cli.progress import step_bar
from lockcache.filestream.accounting import total_of
from lockcache.lowlevel import (
    SHARDS,
    Described,
    Evicted,
    Found,
    Goal,
    Layout,
    Selection,
    choose_selected,
    describe_entry,
    evict_selected,
    measured,
    recount_all,
)
from lockcache.sizes import format_size

__all__ = ["command"]

# Of what a dry run would evict, the first so many are named.
_MOST_SHOWN: Final = 20
_MOST_IN_JSON: Final = 1000

_HELP: Final = f"""Remove entries: down to a size, by age, kind, architecture or compiler.

Without --to, every entry that the filters name; with it, the least recently used of them until the whole cache is no
larger than SIZE. Asks first on a terminal. Safe while others use the cache: an entry that is used or rewritten
meanwhile stays. The accounting is recounted first, and exact afterwards. Ctrl-C leaves the rest as it is.

{FILTERS_IN_WORDS}

\b
Examples:
  lockcache evict --to 5G
  lockcache evict --older-than 30d --dry-run
  lockcache evict --arch sm_70 --yes /scratch/kernels
  lockcache evict --compiler 'nvrtc 12.*' --kind cubin
"""


@click.command("evict", help=_HELP)
@options.directory
@click.option(
    "--to", metavar="SIZE", callback=options.size, help="Until the cache holds no more than this: 5G, 512MiB."
)
@filters
@click.option("--dry-run", is_flag=True, help="Remove nothing, list what would go.")
@options.yes
@options.as_json
def command(directory: str | None, to: int | None, dry_run: bool, yes: bool, as_json: bool, **filtered: Any) -> int:
    """Its help is above, for it holds what other commands say too."""
    selection = selection_of(**filtered)
    if to is None and selection == Selection():
        raise click.UsageError(
            "Nothing says what to evict: give --to, --older-than, --kind, --arch or --compiler "
            "(all of it is lockcache clear)"
        )
    if not dry_run:
        return _evict(directory, selection, to, yes, as_json)
    _rehearse(look(directory), selection, to, as_json)
    return 0


def _rehearse(layout: Layout, selection: Selection, to: int | None, as_json: bool) -> None:
    """Opens nothing for writing: works on what may only be read."""
    size, entries = total_of(measured(layout))
    victims = _choose(layout, selection, None if to is None else max(0, size - to))
    gone = Evicted(len(victims), sum(victim.size_bytes for victim in victims))
    listed = victims[: _MOST_IN_JSON if as_json else _MOST_SHOWN]
    described = [entry for found in listed if (entry := describe_entry(layout, found)) is not None]
    _report(layout, gone, size - gone.bytes, entries - gone.entries, as_json, would=described)
    if described and not as_json:
        click.echo("\n".join(["", entry_heading(), *map(entry_line(), described)]))
        if len(victims) > len(described):
            click.echo(f"and {len(victims) - len(described)} more")


def _evict(directory: str | None, selection: Selection, to: int | None, yes: bool, as_json: bool) -> int:
    opened = open_directory(directory)
    layout = opened.layout
    opened.usage()  # a directory that may only be read is an error before anything is asked
    recount_all(opened)
    victims = _choose(layout, selection, None if to is None else max(0, held(opened).bytes - to))
    gone, interrupted = Evicted(), threading.Event()
    if victims:
        size = format_size(sum(victim.size_bytes for victim in victims))
        confirm(f"Remove {len(victims)} entries, {size}, from {layout.root}?", yes)
        with step_bar("evicting", len(victims)) as advance, _interrupts() as interrupted:
            gone = evict_selected(opened, victims, None if to is None else Goal(to), advance, interrupted.is_set)
    left = held(opened)
    _report(layout, gone, left.bytes, left.entries, as_json, kept=len(victims) - gone.entries)
    return 128 + signal.SIGINT if interrupted.is_set() else 0


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event: what was removed by then is worth a summary, and threads end between two lock holds."""
    event = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def _choose(layout: Layout, selection: Selection, needed_bytes: int | None) -> list[Found]:
    if needed_bytes == 0:
        return []
    with step_bar("looking", SHARDS) as advance:
        return choose_selected(layout, selection, needed_bytes, time.time_ns(), lambda: advance(1))


def _report(
    layout: Layout,
    gone: Evicted,
    size: int,
    entries: int,
    as_json: bool,
    *,
    kept: int = 0,
    would: list[Described] | None = None,
) -> None:
    done = "evicted" if would is None else "would_evict"
    found: dict[str, Any] = {
        "path": layout.root,
        f"{done}_entries": gone.entries,
        f"{done}_bytes": gone.bytes,
        # Chosen and not removed: used or rewritten since, removed by others, or not needed any more.
        "kept_entries": kept,
        "bytes": size,
        "entries": entries,
    }
    if would is not None and as_json:
        found["first"] = [{"name": each.name, "label": each.label, "size_bytes": each.size_bytes} for each in would]
    print_facts(found, as_json, {f"{done}_bytes": size_in_words(gone.bytes), "bytes": size_in_words(size)})
