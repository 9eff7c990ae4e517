# SPDX-License-Identifier: Apache-2.0
"""``lockcache clear``: remove every entry."""

from __future__ import annotations

import click

from lockcache import FileStreamProgramCache
from lockcache.arguments import PROGRAM_VARIABLES, variables_left_alone
from lockcache.cli import options
from lockcache.cli.catalogue import Guest, Own, open_catalogue, select
from lockcache.cli.open_directory import open_directory, recounted_when_interrupted
from lockcache.cli.output import ask, plain, print_json
from lockcache.cli.progress import status_line, step_bar
from lockcache.cli.signals import interrupts
from lockcache.lowlevel import SHARDS, Selection, count_shard
from lockcache.remote import RemoteError, RemoteUrl, clear_server
from lockcache.sizes import counted


@click.command("clear")
@options.directory
@options.yes
@click.option("--remote", is_flag=True, help="Also remove all entries of the server in $LOCKCACHE_REMOTE.")
@options.as_json
def command(directory: str | None, yes: bool, remote: bool, as_json: bool) -> None:
    """Remove every entry. Safe while others use the cache: they miss, and compile again.

    A server behind the directory is left alone, and what it has is read again, unless --remote is given. Then all
    entries below its prefix go, also those of other hosts. A server that speaks HTTP cannot list them.

    Works on every layout that the daemon manages. In Triton's directories and in trees of files, files that were
    written within the last minute are kept.

    \b
    Examples:
      lockcache clear
      lockcache clear --yes /scratch/kernels
      LOCKCACHE_REMOTE=redis://cache lockcache clear --remote
    """
    url = options.server_of(None) if remote else None
    catalogue = open_catalogue(directory)
    root = catalogue.layout.root
    # First: look-ups in between would copy its entries back.
    there = None if url is None else _clear_server(url, yes)
    if isinstance(catalogue, Guest):
        removed, kept = _clear_guest(catalogue, yes)
    else:
        removed, kept = _clear(catalogue, yes), 0
    if as_json:
        print_json({"path": root, "removed_entries": removed, "kept_entries": kept, **_facts(url, there)})
        return
    click.echo(plain(f"removed {counted(removed, 'entry')} from {root}"))
    if url is not None and there is not None:
        click.echo(plain(f"removed {counted(there, 'entry')} from {url.shown}"))
    if kept:
        stay = counted(kept, "entry stays", "entries stay")
        click.echo(f"lockcache: {stay}: used, locked, or written within the last minute", err=True)


def _clear(own: Own, yes: bool) -> int:
    layout = own.layout
    if not yes:
        _ask(sum(count_shard(layout, shard) for shard in range(SHARDS)), layout.root)
    # Removing verifies nothing, and changes no policy.
    with variables_left_alone(PROGRAM_VARIABLES):
        cache = FileStreamProgramCache(layout.root, signing_key_file=False)
    before = len(cache)
    try:
        with recounted_when_interrupted([open_directory(layout.root)]):
            cache.clear()
    except KeyboardInterrupt:
        _report_interrupted(before - len(cache), len(cache))
        raise
    return max(0, before - len(cache))


def _clear_guest(guest: Guest, yes: bool) -> tuple[int, int]:
    """Returns how many entries went, and how many stay."""
    guest.begin_removal()
    victims = list(select(guest, Selection()))
    if not yes:
        _ask(len(victims), guest.layout.root)
    with step_bar("clearing", max(1, len(victims))) as advance, interrupts() as interrupted:
        gone = guest.evict(victims, None, advance, interrupted)
    if interrupted.is_set():
        _report_interrupted(gone.entries, len(victims) - gone.entries)
        raise KeyboardInterrupt
    return gone.entries, len(victims) - gone.entries


def _facts(url: RemoteUrl | None, removed: int | None) -> dict[str, object]:
    return {} if url is None else {"server": url.shown, "removed_from_server": removed}


def _clear_server(url: RemoteUrl, yes: bool) -> int:
    if not yes:
        ask(f"Remove all entries below {url.prefix!r} from {url.shown}, those of other hosts too?")
    try:
        with status_line() as show:
            return clear_server(url, lambda removed: show(f"{counted(removed, 'entry')} removed from {url.shown}"))
    except RemoteError as error:
        raise click.ClickException(plain(f"{url.shown}: {error}")) from None


def _report_interrupted(removed: int, left: int) -> None:
    click.echo(f"lockcache: interrupted: removed {counted(removed, 'entry')}, and {left} stay", err=True)


def _ask(entries: int, root: str) -> None:
    # Also without a terminal, where no answer counts as no: all entries must not be removed by accident.
    ask(f"Remove {counted(entries, 'entry')} from {root}?")
