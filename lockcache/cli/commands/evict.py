# SPDX-License-Identifier: Apache-2.0
"""``lockcache evict``: remove what an operator names, the least recently used first."""

from __future__ import annotations

import signal
import threading
from typing import Any, Final

import click

from lockcache.cli import options
from lockcache.cli.catalogue import Catalogue, open_catalogue, select
from lockcache.cli.filters import FILTERS_IN_WORDS, filters
from lockcache.cli.output import ask, entry_lines, print_facts, size_in_words
from lockcache.cli.progress import step_bar
from lockcache.cli.signals import interrupts
from lockcache.filestream.eviction import stated_limit_bytes, unpinned
from lockcache.filestream.inspect import least_recent
from lockcache.lowlevel import SHARDS, Described, Evicted, Found, Layout, Selection
from lockcache.sizes import counted, format_size

# Of what a dry run would evict, the first so many are named.
_MOST_SHOWN: Final = 20
_MOST_IN_JSON: Final = 1000

_HELP: Final = f"""Remove entries: down to a size, by age, kind, architecture or compiler.

Without --to, removes every entry that matches the filters. With --to, removes the least recently used of them until
the whole cache is no larger than SIZE. Asks first; use --yes in scripts. Safe while others use the cache: entries
that are pinned, or used or rewritten after being selected, are kept. The accounting is corrected first, and is exact
afterwards. Ctrl-C keeps the entries that are not removed yet.

Works on every layout that the daemon manages. In Triton's directories and in trees of files, files that were written
within the last minute are kept, and counted as kept.

{FILTERS_IN_WORDS}

\b
Examples:
  lockcache evict --to 5G
  lockcache evict --older-than 30d --dry-run
  lockcache evict --arch sm_70 --yes /scratch/kernels
  lockcache evict --namespace triton --older-than 7d --yes
  lockcache evict --compiler 'nvrtc 12.*' --kind cubin --yes
"""


@click.command("evict", help=_HELP)
@options.directory
@click.option(
    "--to", metavar="SIZE", callback=options.size, help="Stop when the cache is no larger than this: 5G, 512MiB."
)
@filters
@click.option("--dry-run", "-n", is_flag=True, help="Remove nothing; list what would be removed.")
@options.yes
@options.as_json
def command(
    directory: str | None, to: int | None, selection: Selection, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Its help is above, for it holds what other commands say too."""
    if to is None and selection == Selection():
        raise click.UsageError(
            "Specify the entries to evict: --to, --older-than, --newer-than, --kind, --arch, --compiler, --label "
            "or --namespace (to remove all of them: lockcache clear)"
        )
    catalogue = open_catalogue(directory)
    if not dry_run:
        return _evict(catalogue, selection, to, yes, as_json)
    _rehearse(catalogue, selection, to, as_json)
    return 0


def _rehearse(catalogue: Catalogue, selection: Selection, to: int | None, as_json: bool) -> None:
    """Opens nothing for writing: works on what may only be read."""
    size, entries = catalogue.held()
    victims = _choose(catalogue, selection, None if to is None else max(0, size - to))
    gone = Evicted(len(victims), sum(victim.size_bytes for victim in victims))
    listed = victims[: _MOST_IN_JSON if as_json else _MOST_SHOWN]
    described = [entry for found in listed if (entry := catalogue.describe(found)) is not None]
    _report(catalogue.layout, gone, size - gone.bytes, entries - gone.entries, as_json, would=described)
    _report_rest(to, size - gone.bytes)
    if described and not as_json:
        click.echo("\n".join(["", *entry_lines(described)]))
        if len(victims) > len(described):
            click.echo(f"and {len(victims) - len(described)} more")


def _evict(catalogue: Catalogue, selection: Selection, to: int | None, yes: bool, as_json: bool) -> int:
    catalogue.begin_removal()  # a directory that may only be read is an error before anything is asked
    victims = _choose(catalogue, selection, None if to is None else max(0, catalogue.held().bytes - to))
    gone, interrupted = Evicted(), threading.Event()
    if victims:
        size = format_size(sum(victim.size_bytes for victim in victims))
        if not yes:
            ask(f"Remove {counted(len(victims), 'entry')}, {size}, from {catalogue.layout.root}?")
        with step_bar("evicting", len(victims)) as advance, interrupts() as interrupted:
            gone = catalogue.evict(victims, to, advance, interrupted)
    left = catalogue.held()
    _report(catalogue.layout, gone, left.bytes, left.entries, as_json, kept=len(victims) - gone.entries)
    _report_rest(to, left.bytes)
    return 128 + signal.SIGINT if interrupted.is_set() else 0


def _report_rest(to: int | None, left_bytes: int) -> None:
    if to is not None and left_bytes > to:
        what = "entries that were not chosen or are in use, and the directory's own files and folders"
        click.echo(f"lockcache: {format_size(left_bytes)} remain, more than --to: {what}", err=True)


def _choose(catalogue: Catalogue, selection: Selection, needed_bytes: int | None) -> list[Found]:
    if needed_bytes == 0:
        return []
    with step_bar("looking", SHARDS) as advance:
        selected, layout = select(catalogue, selection, lambda: advance(1)), catalogue.layout
        return least_recent(unpinned(layout, selected, stated_limit_bytes(layout)), needed_bytes)


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
    if not (kept or as_json):
        del found["kept_entries"]
    if would is not None and as_json:
        found["first"] = [{"name": each.name, "label": each.label, "size_bytes": each.size_bytes} for each in would]
    left = "remaining" if would is None else "would remain"
    labels = {"bytes": left, "entries": f"{left} entries"}
    print_facts(found, as_json, {f"{done}_bytes": size_in_words(gone.bytes), "bytes": size_in_words(size)}, labels)
