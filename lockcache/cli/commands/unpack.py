# SPDX-License-Identifier: Apache-2.0
"""``lockcache unpack``: a bundle into a cache."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import asdict
from typing import Any, BinaryIO, Final

import click

from lockcache.arguments import default_cap, resolve_path
from lockcache.bundle import LARGEST_ENTRY_BYTES, Acceptance, Packed, Unpacked, unpack_bundle
from lockcache.cli import options
from lockcache.cli.open_directory import LOCK_TIMEOUT_SECONDS, recounted_when_interrupted, refuse_other_things
from lockcache.cli.output import plain, print_facts, size_in_words
from lockcache.cli.progress import progress_bar
from lockcache.errors import ArchiveError
from lockcache.lowlevel import CacheDirectory, Layout

_STDIN: Final = "-"


@click.command("unpack")
@click.argument("file")
@options.directory
@click.option("--overwrite", is_flag=True, help="Replace entries that the cache already has.")
@click.option("--strict", is_flag=True, help="Stop at the first entry that is damaged or refused.")
@click.option("--max-entry", callback=options.size, metavar="SIZE", help="Refuse larger entries.  [default: 1GiB]")
@options.as_json
@click.pass_context
def command(
    context: click.Context,
    file: str,
    directory: str | None,
    overwrite: bool,
    strict: bool,
    max_entry: int | None,
    as_json: bool,
) -> None:
    """Unpack FILE into a cache, which is created if it is missing. "-" is stdin.

    Each entry is verified and then stored as programs store entries: safe while others use the cache, below the cap
    (the least recently used are evicted first), and complete or not at all if interrupted. Entries that the cache
    already has are kept. Damaged entries, and those that are too large, are counted and left out.

    Exit codes: 0 everything was stored, or was evicted to stay below the cap; 1 something was damaged, refused, or
    could not be stored; 2 FILE is not a bundle, or the command line is wrong.

    \b
    Examples:
      lockcache unpack warm.lcb.zst
      lockcache unpack --strict warm.lcb.zst /scratch/kernels
      curl -s https://ci.example/k.lcb.zst | lockcache unpack - /scratch/kernels
    """
    acceptance = Acceptance(overwrite, strict, max_entry or LARGEST_ENTRY_BYTES)
    layout = Layout(resolve_path(directory))
    refuse_other_things(layout)
    with _open(file) as source:
        packed, done = _begun(source), Unpacked()
        try:
            _unpack(packed, source, layout, acceptance, default_cap(directory), done)
        except KeyboardInterrupt:
            _report(layout, done, as_json)
            click.echo("lockcache: interrupted: what was stored stays, and unpacking again stores the rest", err=True)
            raise
        except ArchiveError as error:
            _report(layout, done, as_json)
            click.echo(f"lockcache: {plain(f'{_called(source)}: {error}')}", err=True)
            context.exit(1)
    _report(layout, done, as_json)
    context.exit(0 if done.is_complete else 1)


def _called(file: BinaryIO) -> str:
    return "stdin" if file is sys.stdin.buffer else os.fsdecode(file.name)


def _begun(file: BinaryIO) -> Packed:
    try:
        return Packed(file)
    except ArchiveError as error:
        raise ArchiveError(f"{_called(file)}: {error}") from error  # the wrong file: a mistake


def _unpack(
    packed: Packed,
    file: BinaryIO,
    layout: Layout,
    acceptance: Acceptance,
    first_cap_bytes: int | None,
    done: Unpacked,
) -> None:
    status = os.fstat(file.fileno())
    of_bytes = status.st_size if stat.S_ISREG(status.st_mode) else 0
    opened: list[CacheDirectory] = []
    with recounted_when_interrupted(opened), progress_bar("unpacking") as show:
        # Only now, for a file that is a bundle: this may make the directory.
        directory = CacheDirectory(layout.root, LOCK_TIMEOUT_SECONDS, first_cap_bytes=first_cap_bytes)
        opened.append(directory)
        directory.usage()  # one that may only be read is an error before anything is unpacked
        unpack_bundle(packed, directory, acceptance, lambda read_bytes: show(read_bytes, of_bytes), done=done)


def _report(layout: Layout, done: Unpacked, as_json: bool) -> None:
    for problem in done.problems:
        click.echo(f"lockcache: {plain(problem)}", err=True)
    found: dict[str, Any] = {"path": layout.root, **asdict(done)}
    if not as_json:
        del found["problems"]
    sizes = {"bytes": size_in_words(done.bytes), "freed_bytes": size_in_words(done.freed_bytes)}
    print_facts(found, as_json, sizes)


def _open(file: str) -> BinaryIO:
    if file != _STDIN:
        if not file or "\0" in file:
            raise click.UsageError(f"FILE must not be empty or contain NUL, got {file!r}")
        return open(file, "rb")
    if sys.stdin.isatty():
        raise click.UsageError("FILE - reads a bundle from stdin, which is a terminal; pipe one into it")
    return sys.stdin.buffer
