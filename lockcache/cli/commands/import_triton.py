# SPDX-License-Identifier: Apache-2.0
"""``lockcache import-triton``: an existing Triton cache, taken over."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import click

from lockcache.arguments import PROGRAM_VARIABLES, resolve_path, variables_left_alone
from lockcache.cli import options
from lockcache.cli.catalogue import Guest
from lockcache.cli.open_directory import guest_of, refuse_other_things
from lockcache.cli.output import print_facts
from lockcache.cli.progress import step_bar
from lockcache.composition import FileStreamProgramCache
from lockcache.layouts import import_triton
from lockcache.lowlevel import Layout, Selection


@contextlib.contextmanager
def import_target(directory: str | None, *, is_dry_run: bool) -> Iterator[FileStreamProgramCache | None]:
    """Open the directory to import into, which no variable of programs changes. ``None`` for a dry run without one.

    A directory that holds other files is refused.
    """
    layout = Layout(resolve_path(directory))
    refuse_other_things(layout)
    if is_dry_run and not os.path.lexists(layout.state):
        yield None
        return
    with (
        variables_left_alone(PROGRAM_VARIABLES),
        FileStreamProgramCache(directory, compile_once=False, read_only=is_dry_run) as cache,
    ):
        yield cache


@click.command("import-triton")
@click.argument("source", metavar="TRITON_DIR")
@options.directory
@click.option(
    "--triton-version",
    default="",
    metavar="VERSION",
    help="Triton version of the launchers. [default: that of the kernels]",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; count what would be imported.")
@options.as_json
def command(source: str, directory: str | None, triton_version: str, dry_run: bool, as_json: bool) -> int:
    """Import the Triton cache in TRITON_DIR: kernels, launchers and autotuning results.

    TRITON_DIR is not changed. Damaged and unfinished entries are left out, and entries that DIR already has are kept.
    Launchers are machine code, so TRITON_DIR must be yours, and nobody else may be able to write to it.

    Exit codes: 0 everything was imported, or was evicted to stay below the cap; 1 something was damaged or could not
    be stored; 2 TRITON_DIR is not a Triton cache, or is not safe.

    \b
    Examples:
      lockcache import-triton ~/.triton/cache
      lockcache import-triton --dry-run --json ~/.triton/cache /scratch/kernels
    """
    root = resolve_path(source)
    if not os.path.isdir(root):
        what = "is a file" if os.path.lexists(root) else "no such directory"
        raise click.UsageError(f"{source}: {what}; Triton keeps its kernels in ~/.triton/cache")
    guest = guest_of(root)
    if guest is None or guest.program != "triton":
        raise click.UsageError(f"{source}: not a Triton cache")
    entries = sum(1 for _ in Guest(*guest).select(Selection(), 0))
    with step_bar("importing", entries) as advance, import_target(directory, is_dry_run=dry_run) as target:
        outcomes = import_triton(guest.root, target, triton_version, advance, is_dry_run=dry_run)
    found = {"would_import" if dry_run else "imported": outcomes["imported"]}
    found |= {
        "present": outcomes["present"],
        "damaged": outcomes["damaged"],
        "dropped": outcomes["dropped"],
        "without_version": outcomes["version"],
    }
    print_facts(found, as_json, {})
    return int(outcomes["damaged"] + outcomes["dropped"] > 0)
