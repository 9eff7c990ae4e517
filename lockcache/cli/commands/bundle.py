# SPDX-License-Identifier: Apache-2.0
"""``lockcache bundle``: many kernels in one file that jobs read from a parallel file system or an image."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, Final

import click

from lockcache.bundle import Choice, make_bundle, merge_bundles
from lockcache.cli import options
from lockcache.cli.commands.pack import refuse_inside, refuse_other_kind, refuse_unmatched, tell_left_out
from lockcache.cli.filters import FILTERS_IN_WORDS, filters
from lockcache.cli.open_directory import look
from lockcache.cli.output import entry_lines, plain, print_facts, print_json, size_in_words
from lockcache.cli.progress import progress_bar
from lockcache.cli.signals import end_in_order
from lockcache.errors import ArchiveError
from lockcache.filestream import open_output, turn_to_replace
from lockcache.filestream.bundle import BundleFile
from lockcache.filestream.inspect import describe_bytes
from lockcache.lowlevel import Described, Selection, load_keys
from lockcache.remote.manifest import read_manifest
from lockcache.sizes import counted, json_text

# A screen is enough to see what it is.
_MOST_SHOWN: Final = 20

_MAKE_HELP: Final = f"""Write the kernels of a cache into one read-only file.

Only entries that match their digest are written, with their metadata; this does not count as a use. If the directory
has a seed, the kernels that it serves are written too, unless the filter is on times: their uses are not recorded.
Safe while others use the cache. An existing file is replaced once the new one is complete, and programs that have it
open continue to read the old one. The same entries give the same bytes. If signing keys are set, the entries in the
bundle are signed too.

Read it with lockcache.BundleProgramCache("kernels.lcb"). To move a cache into another directory, use 'lockcache pack'.

{FILTERS_IN_WORDS}

Exit codes: 0 the bundle has every entry that programs would get; 1 entries were damaged or unreadable and are left
out, and stderr names them, or the bundle could not be written; 2 the command line is wrong.

\b
Examples:
  lockcache bundle make -o kernels.lcb
  lockcache bundle make --arch sm_90 -o /lustre/kernels.lcb /scratch/kernels
  lockcache bundle make --manifest missed.manifest -o missed.lcb
"""


@click.group("bundle")
def command() -> None:
    """Make, list, verify and merge bundles: read-only files with many kernels.

    For parallel file systems and images: a job opens one file, whereas a directory needs three calls for each
    kernel. Any number of hosts can read a bundle at the same time.

    \b
    Examples:
      lockcache bundle make -o kernels.lcb
      lockcache bundle ls kernels.lcb
      lockcache bundle verify kernels.lcb
      lockcache bundle merge --max-size 2G -o both.lcb monday.lcb tuesday.lcb
    """


_output = click.option(
    "-o", "--output", metavar="FILE", required=True, type=click.Path(dir_okay=False), help="The bundle to write."
)


@command.command("make", help=_MAKE_HELP)
@options.directory
@_output
@click.option(
    "--manifest",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Only the kernels that this manifest lists, such as those that a sealed program missed.",
)
@filters
@options.as_json
def bundle_make(directory: str | None, output: str, manifest: str | None, selection: Selection, as_json: bool) -> int:
    """Make a bundle. The help is above, because it contains text shared with other commands."""
    names = None if manifest is None else read_manifest(os.path.realpath(os.path.expanduser(manifest)))
    layout = look(directory)
    refuse_inside(output, layout)
    refuse_other_kind(output, "a bundle")
    refuse_unmatched(layout, selection)
    end_in_order()  # what is half written goes
    # The library logs each damaged entry when it finds it; the command reports them once, below.
    logging.getLogger("lockcache").addHandler(logging.NullHandler())
    with ExitStack() as stack, progress_bar("bundling") as show, open_output(output) as out:
        made = make_bundle(layout, out, Choice(selection, names=names), show)
        out.flush()
        size_bytes = os.fstat(out.fileno()).st_size
        # Until the file is replaced: another process that is adding to the older bundle would put that one back.
        stack.enter_context(turn_to_replace(os.path.realpath(output), needs_lock=False))
    found = {"path": layout.root, "file": os.path.abspath(output), **asdict(made), "bundle_bytes": size_bytes}
    if not as_json:
        del found["left_out"]
    print_facts(found, as_json, {name: size_in_words(found[name]) for name in ("bytes", "bundle_bytes")})
    tell_left_out(made, layout)
    if names is not None and made.entries + len(made.left_out) < len(names):
        missing = len(names) - made.entries - len(made.left_out)
        click.echo(f"lockcache: {counted(missing, 'key')} of the manifest have no kernel in the bundle", err=True)
    return 0 if made.is_complete else 1


@command.command("ls")
@click.argument("file")
@click.option("--full", "-l", is_flag=True, help="Print whole hashes.")
@click.option("--json", "-j", "as_json", is_flag=True, help="Print one JSON object a line.")
def bundle_ls(file: str, full: bool, as_json: bool) -> int:
    """List the kernels of a bundle, by name.

    Each kernel is verified, and damaged ones are marked.

    Exit codes: 0 all are intact; 1 something is damaged; 2 the command line is wrong, or FILE is not a bundle.

    \b
    Examples:
      lockcache bundle ls kernels.lcb
      lockcache bundle ls --json kernels.lcb | jq -s 'map(.size_bytes) | add'
    """
    damaged = 0

    def counting(entries: Iterable[Described]) -> Iterator[Described]:
        nonlocal damaged
        for entry in entries:
            damaged += entry.record == "damaged"
            yield entry

    described = counting(_described(_open(file)))
    for line in map(_json_line, described) if as_json else entry_lines(described, full):
        click.echo(line)
    return 1 if damaged else 0


@command.command("verify")
@click.argument("file")
@options.as_json
def bundle_verify(file: str, as_json: bool) -> int:
    """Read every kernel of a bundle and compare it with its record.

    Programs verify what they read from a bundle, too: a damaged kernel is a miss, and is compiled again.

    Exit codes: 0 all are intact; 1 something is damaged; 2 the command line is wrong, or FILE is not a bundle.

    \b
    Examples:
      lockcache bundle verify kernels.lcb
      lockcache bundle verify --json kernels.lcb | jq '.damaged'
    """
    bundle = _open(file)
    entries = whole_bytes = 0
    damaged: list[str] = []
    with progress_bar("verifying") as show:
        for entry in _described(bundle):
            entries += 1
            if entry.record == "damaged":
                damaged.append(entry.name)
            else:
                whole_bytes += entry.size_bytes
            show(min(whole_bytes, bundle.size_bytes), bundle.size_bytes)
    found = {"file": bundle.path, "entries": entries, "whole": entries - len(damaged), "bytes": whole_bytes}
    if as_json:
        print_json({**found, "damaged": damaged})
    else:
        print_facts({**found, "damaged": len(damaged)}, False, {"bytes": size_in_words(whole_bytes)})
        for name in damaged[:_MOST_SHOWN]:
            click.echo(f"lockcache: {name}: damaged, or signed with a key that is not here: not served", err=True)
    return 1 if damaged else 0


@command.command("merge")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_output
@click.option(
    "--max-size",
    callback=options.size,
    metavar="SIZE",
    help="Leave out the oldest kernels until the bundle is no larger.",
)
@options.as_json
def bundle_merge(files: tuple[str, ...], output: str, max_size: int | None, as_json: bool) -> int:
    """Merge bundles; of each kernel, the one compiled last is taken.

    The output may be one of the bundles: it is replaced once the new one is complete. Others may promote into it at the
    same time: they take turns, and no kernel is lost.

    Exit codes: 0 done; 1 damaged kernels were left out, or the bundle could not be written; 2 the command line is
    wrong, or a file is not a bundle.

    \b
    Examples:
      lockcache bundle merge -o all.lcb monday.lcb tuesday.lcb
      lockcache bundle merge --max-size 2G -o kernels.lcb kernels.lcb new.lcb
    """
    for file in files:
        _open(file).close()  # a mistake is reported before anything is written
    refuse_other_kind(output, "a bundle")
    end_in_order()  # what is half written goes
    with ExitStack() as stack:
        # Before the sources are read: else what others promote into the output meanwhile would be lost.
        turn = stack.enter_context(turn_to_replace(os.path.realpath(output), needs_lock=False))
        sources = [_open(file) for file in files]
        for source in sources:
            stack.callback(source.close)
        show = stack.enter_context(progress_bar("merging"))
        out = stack.enter_context(open_output(output, turn=turn))
        merged = merge_bundles(sources, out, max_size, show)
        out.flush()
        size_bytes = os.fstat(out.fileno()).st_size
    found: dict[str, Any] = {"file": os.path.abspath(output), **asdict(merged), "bundle_bytes": size_bytes}
    shown = {name: size_in_words(found[name]) for name in ("bytes", "bundle_bytes")}
    print_facts(found, as_json, shown, {"too_old": "oldest, left out"})
    if merged.too_old and not merged.entries:
        click.echo("lockcache: no kernel fits into --max-size", err=True)
    if merged.damaged:
        click.echo(f"lockcache: {counted(merged.damaged, 'damaged entry')} left out", err=True)
    return 1 if merged.damaged else 0


def _open(file: str) -> BundleFile:
    """Open a bundle, whole as far as its table goes. Raises :class:`ArchiveError`."""
    bundle = BundleFile(os.path.expanduser(file), load_keys(None))
    if bundle.damage:
        raise ArchiveError(f"{plain(file)}: {bundle.damage}")
    return bundle


def _described(bundle: BundleFile) -> Iterator[Described]:
    """Yields the descriptions of all entries, by name."""
    for place in bundle.places():
        try:
            loaded = bundle.load(place.name) if bundle.find(place.name) == place else None
        except ValueError:
            loaded = None
        if loaded is None:
            yield Described(place.name.hex(), place.payload_bytes, 0, 0, "damaged")
        else:
            yield describe_bytes(place.name.hex(), *loaded)


def _json_line(entry: Described) -> str:

    shown = ("name", "size_bytes", "record", "created_ns", "cost_ns", "kind", "arch", "compiler", "label")
    return json_text({name: getattr(entry, name) for name in shown})
