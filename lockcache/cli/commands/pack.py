# SPDX-License-Identifier: Apache-2.0
"""``lockcache pack``: the verified entries of a cache, in one file."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import click

from lockcache.bundle import (
    DEFAULT_LEVEL,
    LEVELS,
    UNCOMPRESSED,
    Choice,
    Gathered,
    compressing,
    describe_seeded,
    is_packed,
    make_bundle,
    why_no_zstd,
)
from lockcache.cli import options
from lockcache.cli.catalogue import Own, select
from lockcache.cli.filters import FILTERS_IN_WORDS, filters
from lockcache.cli.open_directory import are_swapped, look
from lockcache.cli.output import plain, print_facts, size_in_words
from lockcache.cli.progress import progress_bar
from lockcache.cli.signals import end_in_order
from lockcache.filestream import open_output
from lockcache.filestream.bundle import is_bundle
from lockcache.filestream.disk import naming
from lockcache.lowlevel import Layout, Selection, load_keys
from lockcache.remote.manifest import is_manifest
from lockcache.sizes import counted

_STDOUT: Final = "-"
# After a power cut there may be ten thousands; a screen is enough to see what it is.
_MOST_SHOWN: Final = 20


_HELP: Final = f"""Pack a cache into FILE, a bundle: for an image, a cluster, or CI.

A FILE whose name ends in ".zst" or ".zstd" is compressed, which needs the extra "cli" of lockcache.

Only entries that match their digest are packed, with their metadata and the time of their last use; packing does not
count as a use. If the directory has a seed, the kernels that it serves are packed too, unless the filter is on times:
their uses are not recorded. Safe while others use the cache. FILE appears complete or not at all; "-" is stdout. The
same entries give the same bytes.

{FILTERS_IN_WORDS}

Exit codes: 0 FILE has every entry that programs would get; 1 entries were damaged or unreadable and are left out, and
stderr names them, or FILE could not be written; 2 the command line is wrong.

\b
Examples:
  lockcache pack warm.lcb.zst
  lockcache pack --arch sm_90 --newer-than 30d warm.lcb.zst /scratch/kernels
  lockcache pack - | ssh node2 lockcache unpack -
"""


@click.command("pack", help=_HELP)
@click.argument("file")
@options.directory
@filters
@click.option(
    "--include-unverified",
    is_flag=True,
    help="Also pack entries without a record, such as those of cuda.core's own cache; they get one.",
)
@click.option(
    "--level",
    type=options.WholeNumber(UNCOMPRESSED, LEVELS[-1]),
    help="Compression level of zstd: 1 is fastest, 19 smallest; higher levels need much memory; 0 does not compress. "
    f"[default: {DEFAULT_LEVEL} for a FILE in .zst or .zstd, else {UNCOMPRESSED}]",
)
@options.as_json
def command(
    file: str,
    directory: str | None,
    selection: Selection,
    include_unverified: bool,
    level: int | None,
    as_json: bool,
) -> int:
    """Pack a directory. The help is above, because it contains text shared with other commands."""
    _check_output(file, as_json)
    level = _level_of(file) if level is None else level
    if level != UNCOMPRESSED and (why := why_no_zstd()):
        raise click.UsageError(f"{why}; --level {UNCOMPRESSED}, or a FILE in .lcb, does without")
    if are_swapped(file, directory) or (directory is None and os.path.isdir(os.path.expanduser(file))):
        raise click.UsageError(f"FILE comes first: lockcache pack {directory or 'FILE'} {file}")
    layout = look(directory)
    refuse_inside(file, layout)
    refuse_other_kind(file, "a packed cache")
    refuse_unmatched(layout, selection)
    choice = Choice(selection, include_unverified)
    end_in_order()  # what is half written goes
    # The library logs each damaged entry when it finds it; the command reports them once, below.
    logging.getLogger("lockcache").addHandler(logging.NullHandler())
    packed, bundle_bytes = _pack(file, layout, choice, level)
    _report(layout, file, packed, bundle_bytes, as_json)
    return 0 if packed.is_complete else 1


def _report(layout: Layout, file: str, packed: Gathered, bundle_bytes: int, as_json: bool) -> None:
    if file == _STDOUT:
        click.echo(f"lockcache: packed {counted(packed.entries, 'entry')} from {plain(layout.root)}", err=True)
    else:
        found: dict[str, Any] = {"path": layout.root, "file": os.path.abspath(file), **asdict(packed)}
        found["bundle_bytes"] = bundle_bytes
        if not as_json:
            del found["left_out"]
        shown = {"bytes": size_in_words(packed.bytes), "bundle_bytes": size_in_words(bundle_bytes)}
        print_facts(found, as_json, shown)
    tell_left_out(packed, layout)


def tell_left_out(packed: Gathered, layout: Layout) -> None:
    """Say on stderr what is missing, and how to learn more."""
    for each in packed.left_out[:_MOST_SHOWN]:
        click.echo(f"lockcache: {each.entry}: {each.why}, left out", err=True)
    if not packed.is_complete:
        counts = f"{packed.damaged} damaged and {packed.unreadable} unreadable entries"
        click.echo(f"lockcache: {counts} were left out; see lockcache verify {plain(layout.root)}", err=True)


def _pack(file: str, layout: Layout, choice: Choice, level: int) -> tuple[Gathered, int]:
    with progress_bar("packing") as show:
        if file == _STDOUT:
            with naming("stdout"):
                with compressing(sys.stdout.buffer, level) as stream:
                    packed = make_bundle(layout, stream, choice, show, is_packed=True)
                sys.stdout.buffer.flush()
            return packed, 0
        with open_output(file) as out:
            with compressing(out, level) as stream:
                packed = make_bundle(layout, stream, choice, show, is_packed=True)
            out.flush()
            return packed, os.fstat(out.fileno()).st_size


def _level_of(file: str) -> int:
    return DEFAULT_LEVEL if file.endswith((".zst", ".zstd")) else UNCOMPRESSED


def _check_output(file: str, as_json: bool) -> None:
    if not file or "\0" in file:
        raise click.UsageError(f"FILE must not be empty or contain NUL, got {file!r}")
    if file != _STDOUT:
        return
    if as_json:
        raise click.UsageError("FILE - and --json both want stdout; give one of them another place")
    if sys.stdout.isatty():
        raise click.UsageError("FILE - would write a bundle to a terminal; pipe it, or name a file")


def refuse_unmatched(layout: Layout, selection: Selection) -> None:
    """Refuse a filter's value that no entry has, before anything is written. Raises :class:`ValueError`."""
    if selection.needs_record:
        seeded = (described for _, described in describe_seeded(layout, load_keys(None)) if described is not None)
        for _ in select(Own(layout), selection, also=seeded):
            pass  # at the end of all it is known


def refuse_inside(file: str, layout: Layout) -> None:
    """Refuse to write into the directory that is read. Raises :class:`click.UsageError`."""
    inside = os.path.realpath(layout.root)
    if file != _STDOUT and os.path.commonpath([os.path.realpath(file), inside]) == inside:
        raise click.UsageError(f"FILE {file!r} is inside the cache, whose cap would not count it; put it elsewhere")


def refuse_other_kind(file: str, kind: str) -> None:
    """Refuse to replace a file that is not of the ``kind`` which is written, and not empty: it was named by mistake.

    Raises :class:`click.UsageError`, and :class:`OSError` for a file that may not be read.
    """
    path = os.path.expanduser(file)
    if file == _STDOUT or not os.path.isfile(path) or not os.path.getsize(path):
        return
    with naming(file):
        is_right = _KINDS[kind](path)
    if not is_right:
        raise click.UsageError(f"{file!r} exists and is not {kind}; name another file, or remove it first")


_KINDS: Final[dict[str, Callable[[str], bool]]] = {
    "a bundle": is_bundle,
    "a manifest": is_manifest,
    "a packed cache": is_packed,
}
