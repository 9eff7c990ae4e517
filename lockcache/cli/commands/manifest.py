# SPDX-License-Identifier: Apache-2.0
"""``lockcache manifest``: lists of the keys that a job looks up, and fetching what they list from a server."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, Final

import click

from lockcache.arguments import default_cap, resolve_path
from lockcache.cli import options
from lockcache.cli.catalogue import Own, select
from lockcache.cli.commands.pack import refuse_inside, refuse_other_kind
from lockcache.cli.filters import FILTERS_IN_WORDS, filters
from lockcache.cli.open_directory import LOCK_TIMEOUT_SECONDS, look, recounted_when_interrupted, refuse_other_things
from lockcache.cli.output import entry_lines, plain, print_facts, size_in_words
from lockcache.cli.progress import step_bar
from lockcache.cli.signals import end_in_order
from lockcache.filestream import EntryWriter, open_output
from lockcache.filestream.bundle import BundleFile, SeedFile, is_bundle
from lockcache.filestream.inspect import Census, describe_bytes
from lockcache.lowlevel import CacheDirectory, Described, Layout, Selection, describe_entry, find_entry, load_keys
from lockcache.remote import Backing, Fetched, RemoteUrl, fetch_missing
from lockcache.remote.manifest import MOST_KEYS, format_manifest, read_manifest
from lockcache.sizes import counted, json_text

_MAKE_HELP: Final = f"""List the keys of the kernels that a directory, or a bundle, has.

Kernels of a directory's seed are among them. $LOCKCACHE_MANIFEST has a job record the keys that it looks up, which
are often fewer.

{FILTERS_IN_WORDS}

Exit codes: 0 done; 1 FILE could not be written; 2 a mistake in what was asked for.

\b
Examples:
  lockcache manifest make -o job.manifest
  lockcache manifest make --arch sm_90 -o job.manifest /scratch/kernels
  lockcache manifest make -o job.manifest kernels.lcb
"""


@click.group("manifest")
def command() -> None:
    """Make, list and merge manifests, which list a job's keys, and fetch what they list from a server at once.

    A manifest is a text file with the digest of a key a line. Where $LOCKCACHE_MANIFEST names one, programs add the
    keys that they look up, and at the next start the first one on a node fetches what its directory lacks from the
    server in $LOCKCACHE_REMOTE: in one round trip or a few, instead of one for each key.

    \b
    Examples:
      lockcache run --remote redis://cache --manifest job.manifest -- ./job
      lockcache manifest ls job.manifest
      lockcache manifest merge -o all.manifest a.manifest b.manifest
      lockcache manifest fetch job.manifest --remote redis://cache
    """


_output = click.option(
    "-o", "--output", metavar="FILE", required=True, type=click.Path(dir_okay=False), help="The manifest to write."
)


@command.command("make", help=_MAKE_HELP)
@click.argument("source", metavar="[DIR|BUNDLE]", required=False)
@_output
@filters
@options.as_json
def manifest_make(source: str | None, output: str, selection: Selection, as_json: bool) -> None:
    """Make a manifest. The help is above, because it contains text shared with other commands."""
    if source is not None and is_bundle(os.path.expanduser(source)):
        bundle = BundleFile(os.path.expanduser(source), load_keys(None))
        names = set(_in_bundle(bundle, [place.name for place in bundle.places()], selection, bundle.path))
        path = bundle.path
    else:
        layout = look(source)
        refuse_inside(output, layout)
        names, path = set(_in_directory(layout, selection)), layout.root
    _write(output, frozenset(names), {"path": path}, as_json)


@command.command("ls")
@click.argument("file", metavar="FILE")
@click.argument("directory", metavar="[DIR]", required=False, type=options.Directory())
@click.option("--json", "-j", "as_json", is_flag=True, help="Print one JSON object a line.")
def manifest_ls(file: str, directory: str | None, as_json: bool) -> None:
    """List the keys of a manifest, and with DIR the entry for each. '-' in all columns: DIR has no such entry.

    This does not count as a use. The entries of a seed below DIR are listed by lockcache bundle ls.

    \b
    Examples:
      lockcache manifest ls job.manifest
      lockcache manifest ls job.manifest /scratch/kernels
      lockcache manifest ls --json job.manifest /scratch/kernels | jq .is_here
    """
    keys = sorted(_read(file))
    if directory is None:
        for name in keys:
            click.echo(json_text({"name": name}) if as_json else name)
        return
    layout = look(directory)
    entries = [(name, _described(layout, name)) for name in keys]
    if not as_json:
        for line in entry_lines((entry or name for name, entry in entries), full=True):
            click.echo(line)
        return
    for name, entry in entries:
        body = {} if entry is None else entry._asdict()
        click.echo(json_text({"name": name, "is_here": entry is not None, **_without_name(body)}))


def _described(layout: Layout, name: str) -> Described | None:
    found = find_entry(layout, name)
    return None if found is None else describe_entry(layout, found)


@command.command("merge")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_output
@options.as_json
def manifest_merge(files: tuple[str, ...], output: str, as_json: bool) -> None:
    """Merge manifests: the keys of all of them. The output may be one of them.

    Exit codes: 0 done; 1 the manifest could not be written; 2 a mistake in what was asked for, or not a manifest.

    \b
    Examples:
      lockcache manifest merge -o all.manifest train.manifest serve.manifest
    """
    _write(output, frozenset[str]().union(*map(_read, files)), {"files": len(files)}, as_json)


@command.command("fetch")
@click.argument("file", metavar="FILE")
@options.directory
@click.option("--remote", metavar="URL", help="The server; default: $LOCKCACHE_REMOTE.")
@options.as_json
def manifest_fetch(file: str, directory: str | None, remote: str | None, as_json: bool) -> int:
    """Fetch what a manifest lists and DIR lacks from a server. DIR is made if it is missing.

    For an image, or before a job starts. Entries are verified, and stored under the directory's cap, of which they take
    half at most. Entries that the server lacks are counted, and compiled when they
    are needed.

    Exit codes: 0 all that the server has is here; 1 the server, the disk or the cap ended it sooner, and stderr says
    so; 2 a mistake in what was asked for, or not a manifest.

    \b
    Examples:
      lockcache manifest fetch job.manifest --remote redis://cache.example
      lockcache manifest fetch job.manifest /scratch/k --remote s3://bucket/k
    """
    url, keys, layout = options.server_of(remote), _read(file), Layout(resolve_path(directory))
    refuse_other_things(layout)
    end_in_order()
    opened: list[CacheDirectory] = []
    with recounted_when_interrupted(opened):
        opened.append(CacheDirectory(layout.root, LOCK_TIMEOUT_SECONDS, first_cap_bytes=default_cap(directory)))
        opened[0].usage()  # one that may only be read is an error before anything is fetched
        fetched = _fetch(opened[0], url, keys)
    found = {"path": layout.root, "server": url.shown, **fetched._asdict()}
    print_facts(found if as_json else _without_name(found, "failure"), as_json, {"bytes": size_in_words(fetched.bytes)})
    if fetched.failure:
        click.echo(f"lockcache: not all could be fetched: {plain(fetched.failure)}", err=True)
    return 1 if fetched.failure else 0


def _fetch(directory: CacheDirectory, url: RemoteUrl, keys: frozenset[str]) -> Fetched:
    signing, dealt_with = load_keys(None), 0
    backing = Backing(directory, url, signing)
    keep = EntryWriter(directory, LOCK_TIMEOUT_SECONDS, fsync=False, use_record_files=False, keys=signing).store_copy
    with step_bar("fetching", len(keys)) as advance:

        def show(done: int, of: int) -> None:
            nonlocal dealt_with
            here = len(keys) - of + done
            advance(here - dealt_with)
            dealt_with = here

        fetched = fetch_missing(directory, backing.store, keys, signing, keep, seconds=math.inf, progress=show)
    backing.report.report_patiently()
    return fetched


def _read(file: str) -> frozenset[str]:
    """Returns the keys of a manifest, or of the manifest that a symlink leads to."""
    return read_manifest(os.path.realpath(os.path.expanduser(file)))


def _write(output: str, names: frozenset[str], facts: dict[str, Any], as_json: bool) -> None:
    if len(names) > MOST_KEYS:
        raise click.UsageError(f"these are {counted(len(names), 'key')}, and a manifest lists at most {MOST_KEYS}")
    refuse_other_kind(output, "a manifest")
    end_in_order()  # what is half written goes
    with open_output(os.path.expanduser(output)) as out:
        out.write(format_manifest(names))
    print_facts({**facts, "file": os.path.abspath(os.path.expanduser(output)), "keys": len(names)}, as_json)


def _in_directory(layout: Layout, selection: Selection) -> Iterator[str]:
    for found in select(Own(layout), selection):
        yield found.name
    try:
        seed = SeedFile(layout, load_keys(None))
        yield from _in_bundle(seed, seed.served(), selection, None)
    except OSError:
        return  # there is none, or it was taken away just now


def _in_bundle(bundle: BundleFile, names: list[bytes], selection: Selection, refusing: str | None) -> Iterator[str]:
    """Yields the selected entries. ``refusing``: the bundle that has no times, if a filter by use is an error."""
    if refusing is not None and (selection.unused_seconds, selection.used_seconds) != (None, None):
        raise click.UsageError(f"{refusing} is a bundle, which does not say when a kernel was used")
    census = Census(selection)
    for name in names:
        if selection.needs_record:
            try:
                loaded = bundle.load(name)
            except ValueError:
                continue  # damaged, or signed with a key that is not here: served to nobody
            if loaded is None:
                continue
            described = describe_bytes(name.hex(), *loaded)
            census.add(described)
            if not selection.matches(described):
                continue
        yield name.hex()
    if refusing is not None:
        census.refuse_unmatched()


def _without_name(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in ("metadata", "inode", *names)}
