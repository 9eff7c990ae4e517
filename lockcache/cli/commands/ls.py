# SPDX-License-Identifier: Apache-2.0
"""``lockcache ls``: the entries, one a line.

Keeps memory bounded where the order allows: ``--sort none`` holds nothing, ``--limit N`` holds N entries, and what is
sorted whole by size, use or name holds the listing only; each entry's record is read when its line is printed.
"""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import Any, Final

import click

from lockcache.cli import options
from lockcache.cli.catalogue import Catalogue, open_catalogue, select
from lockcache.cli.filters import FILTERS_IN_WORDS, filters
from lockcache.cli.output import elapsed, entry_lines, plain
from lockcache.cli.progress import step_bar
from lockcache.filestream.eviction import pinned_sizes
from lockcache.filestream.inspect import read_ahead
from lockcache.lowlevel import SHARDS, Described, Found, Selection, StatedPolicy
from lockcache.sizes import format_size, json_text

# Ascending; each gives what people ask for first: the largest, the latest, the oldest, the most expensive.
_BY_LISTING: Final[dict[str, Callable[[Found], Any]]] = {
    "last-use": lambda found: (-found.last_use_ns, found.name),
    "size": lambda found: (-found.size_bytes, found.name),
    "name": lambda found: found.name,
}
# Entries without a known value come last.
_BY_RECORD: Final[dict[str, Callable[[Described], Any]]] = {
    "age": lambda entry: (entry.created_ns is None, entry.created_ns, entry.name),
    "cost": lambda entry: (-(entry.cost_ns or 0), entry.name),
}
# Entries that are described at once, by one thread.
_BATCH: Final = 256

_SORTS: Final = (*_BY_LISTING, *_BY_RECORD, "none")

_HELP: Final = f"""List entries: the most recently used first.

NAME is the start of the entry's hash, long enough for 'lockcache inspect'. USED and AGE are the times since it was
used and stored, COST is the compile time, NAMESPACE the framework that stored it (triton, jax), KERNEL the name of
the kernel, after "(pinned)" if 'lockcache pin' keeps it. '-' means unknown. A terminal shows the columns that have
room; --full shows all. Listing does not count as a use, and does not verify payloads.

Works on every layout that the daemon manages. In a tree of files, NAME is the path below DIR.

{FILTERS_IN_WORDS}

--json prints one object per line (NDJSON). With --limit or --sort none, memory does not grow with the number of
entries.

\b
Examples:
  lockcache ls --sort size --limit 20
  lockcache ls --sort cost --arch sm_90
  lockcache ls --older-than 30d --kind cubin /scratch/kernels
  lockcache ls --json --sort none | jq -s 'map(.size_bytes) | add'
"""


@click.command("ls", help=_HELP)
@options.directory
@click.option("--sort", type=click.Choice(_SORTS), default="last-use", show_default=True, help="Sort by this column.")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--limit", "-n", callback=options.count, metavar="N", help="Print only the first N.")
@click.option("--full", "-l", is_flag=True, help="Print whole hashes and names, and all columns.")
@filters
@click.option("--json", "-j", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(
    directory: str | None,
    sort: str,
    reverse: bool,
    limit: int | None,
    full: bool,
    as_json: bool,
    selection: Selection,
) -> None:
    """List the entries. The help is above, because it contains text shared with other commands."""
    catalogue = open_catalogue(directory)
    is_tree = catalogue.program == "files"
    entries = _ordered(catalogue, selection, sort, reverse, limit)
    pinned = {pin.name for pin in pinned_sizes(catalogue.layout)}
    if as_json:
        lines: Iterable[str] = map(partial(_as_json, pinned), entries)
    else:
        marked = map(partial(_marked, pinned), entries)
        lines = chain([_PATH_HEADING], map(_as_path, entries)) if is_tree else entry_lines(marked, full)
    for line in lines:
        click.echo(line)
    _name_seed(catalogue)


def _name_seed(catalogue: Catalogue) -> None:
    """Say where the kernels are listed that the directory serves from its seed."""
    seed = StatedPolicy(catalogue.layout).load().seed
    if seed is not None and not seed.is_detached:
        file = shlex.quote(seed.path)
        click.echo(f"lockcache: for the kernels of the seed: lockcache bundle ls {plain(file)}", err=True)


def _ordered(
    catalogue: Catalogue, selection: Selection, sort: str, reverse: bool, limit: int | None
) -> Iterator[Described]:
    if sort == "none":
        # No bar: the lines show the progress.
        yield from islice(_described(catalogue, select(catalogue, selection)), limit)
        return
    with step_bar("listing", SHARDS) as advance:
        found = select(catalogue, selection, lambda: advance(1))
        if sort in _BY_RECORD:
            in_order: Iterable[Described] = _first(_described(catalogue, found), _BY_RECORD[sort], reverse, limit)
        else:
            in_order = _described(catalogue, _first(found, _BY_LISTING[sort], reverse, limit))
    yield from in_order


def _first(items: Iterable[Any], key: Callable[[Any], Any], reverse: bool, limit: int | None) -> list[Any]:
    if limit is None:
        return sorted(items, key=key, reverse=reverse)
    return (heapq.nlargest if reverse else heapq.nsmallest)(limit, items, key)


def _described(catalogue: Catalogue, found: Iterable[Found]) -> Iterator[Described]:
    with closing(read_ahead(lambda batch: list(map(catalogue.describe, batch)), _batches(iter(found)))) as described:
        for entry in chain.from_iterable(described):
            if entry is not None:
                yield entry


def _batches(found: Iterator[Found]) -> Iterator[list[Found]]:
    while batch := list(islice(found, _BATCH)):
        yield batch


# Last, because its length is not bounded.
_PATH_HEADING: Final = f"{'SIZE':>8}  {'USED':>5}  NAME"


def _as_path(entry: Described) -> str:
    return f"{format_size(entry.size_bytes):>8}  {elapsed(entry.last_use_ns):>5}  {plain(entry.name)}"


def _marked(pinned: set[str], entry: Described) -> Described:
    return entry._replace(label=f"(pinned) {entry.label or '-'}") if entry.name in pinned else entry


def _as_json(pinned: set[str], entry: Described) -> str:
    body = {**entry._asdict(), "is_pinned": entry.name in pinned}
    del body["metadata"], body["inode"]
    return json_text(body)
