"""``lockcache unpack``: an archive of ``lockcache pack`` into a cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, BinaryIO, Final

import click

from lockcache.archive.members import Manifest
from lockcache.archive.unpacking import LARGEST_ENTRY_BYTES, Acceptance, Unpacked, unpack_archive
from lockcache.arguments import default_cap, resolve_path
from lockcache.cli import options
from lockcache.cli.open_directory import LOCK_TIMEOUT_SECONDS, recounted_when_interrupted, refuse_other_things
from lockcache.cli.output import plain, print_facts, size_in_words
from lockcache.cli.progress import progress_bar
from lockcache.errors import ArchiveError
from lockcache.filestream.bundle import is_bundle
from lockcache.lowlevel import CacheDirectory, Layout

_STDIN: Final = "-"


@click.command("unpack")
@click.argument("file")
@options.directory
@click.option("--overwrite", is_flag=True, help="Replace entries that the cache already has.")
@click.option("--strict", is_flag=True, help="Stop at the first member that is damaged or not an entry.")
@click.option("--include-unverified", is_flag=True, help="Also store entries without a record, which get one.")
@click.option("--max-entry", callback=options.size, metavar="SIZE", help="Refuse larger entries.  [default: 1GiB]")
@options.as_json
@click.pass_context
def command(
    context: click.Context,
    file: str,
    directory: str | None,
    overwrite: bool,
    strict: bool,
    include_unverified: bool,
    max_entry: int | None,
    as_json: bool,
) -> None:
    """Unpack FILE into a cache, which is created if it is missing. "-" is stdin.

    Each entry is verified and then stored as programs store entries: safe while others use the cache, below the cap
    (the least recently used are evicted first), and complete or not at all if interrupted. Entries that the cache
    already has are kept. Damaged entries, and everything that is not an entry (links, devices, paths that lead
    elsewhere), are counted and left out.

    Exit codes: 0 everything was stored, or was evicted to stay below the cap; 1 something was damaged, refused, or
    could not be stored; 2 FILE is not an archive, or the command line is wrong.

    \b
    Examples:
      lockcache unpack warm.tar.zst
      lockcache unpack --strict warm.tar.zst /scratch/kernels
      curl -s https://ci.example/k.tar.zst | lockcache unpack - /scratch/kernels
    """
    acceptance = Acceptance(overwrite, include_unverified, strict, max_entry or LARGEST_ENTRY_BYTES)
    layout = Layout(resolve_path(directory))
    refuse_other_things(layout)
    with _open(file) as archive:
        manifest, done = _unpack(context, archive, layout, acceptance, default_cap(directory))
    _report(layout, manifest, done, as_json)
    context.exit(0 if done.is_complete else 1)


def _unpack(
    context: click.Context, archive: BinaryIO, layout: Layout, acceptance: Acceptance, first_cap_bytes: int | None
) -> tuple[Manifest, Unpacked]:
    began = False

    def watch(show: Callable[[int, int], None]) -> Callable[[int, Manifest], None]:
        def watched(done_bytes: int, manifest: Manifest) -> None:
            nonlocal began
            began = True
            show(done_bytes, manifest.bytes)

        return watched

    opened: list[CacheDirectory] = []

    def open_directory() -> CacheDirectory:
        opened.append(CacheDirectory(layout.root, LOCK_TIMEOUT_SECONDS, first_cap_bytes=first_cap_bytes))
        opened[0].usage()  # one that may only be read is an error before anything is unpacked
        return opened[0]

    try:
        with recounted_when_interrupted(opened), progress_bar("unpacking") as show:
            return unpack_archive(archive, open_directory, acceptance, watch(show))
    except KeyboardInterrupt:
        click.echo("lockcache: interrupted: what was stored stays, and unpacking again stores the rest", err=True)
        raise
    except ArchiveError as error:
        words = f"{'stdin' if archive is sys.stdin.buffer else os.fsdecode(archive.name)}: {error}"
        if not began:
            raise ArchiveError(words) from error  # the wrong file: a mistake
        click.echo(f"lockcache: {plain(words)}", err=True)
        context.exit(1)


def _report(layout: Layout, manifest: Manifest, done: Unpacked, as_json: bool) -> None:
    for problem in done.problems:
        click.echo(f"lockcache: {plain(problem)}", err=True)
    found: dict[str, Any] = {"path": layout.root, "made_by": manifest.made_by, **asdict(done)}
    if not as_json:
        del found["problems"]
    sizes = {"bytes": size_in_words(done.bytes), "freed_bytes": size_in_words(done.freed_bytes)}
    print_facts(found, as_json, sizes)


def _open(file: str) -> BinaryIO:
    if file != _STDIN:
        if not file or "\0" in file:
            raise click.UsageError(f"FILE must not be empty or contain NUL, got {file!r}")
        if is_bundle(file):
            raise click.UsageError(f"{file} is a bundle, which is read as it is; lockcache bundle ls {file} lists it")
        return open(file, "rb")
    if sys.stdin.isatty():
        raise click.UsageError("FILE - reads an archive from stdin, which is a terminal; pipe one into it")
    return sys.stdin.buffer
