# SPDX-License-Identifier: Apache-2.0
"""``lockcache import-jax``: an existing directory of JAX's own, taken over."""

from __future__ import annotations

import importlib.metadata
import os

import click

from lockcache.arguments import resolve_path
from lockcache.cli import options
from lockcache.cli.commands.import_triton import import_target
from lockcache.cli.output import print_facts
from lockcache.cli.progress import step_bar
from lockcache.integrations.pyptx_directory import guest_layout
from lockcache.layouts import import_jax, jax_entries
from lockcache.lowlevel import check_directory


@click.command("import-jax")
@click.argument("source", metavar="JAX_DIR")
@options.directory
@click.option(
    "--jax-version",
    default="",
    metavar="VERSION",
    help="JAX version of the programs that will read them. [default: that of the JAX installed here]",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; count what would be imported.")
@options.as_json
def command(source: str, directory: str | None, jax_version: str, dry_run: bool, as_json: bool) -> int:
    """Import the compiled programs that JAX itself stored in JAX_DIR, its jax_compilation_cache_dir.

    JAX_DIR is not changed. Damaged entries are left out, and entries that DIR already has are kept. Compiled programs
    are machine code, so JAX_DIR must be yours, and nobody else may be able to write to it.

    JAX's keys contain the name of JAX_DIR, unless jax_persistent_cache_enable_xla_caches is none. So programs have to
    name it as before, in JAX_COMPILATION_CACHE_DIR for example, to find what was imported; what they find is stored by
    another key then, for programs that do not name it. Files state no version of JAX: what another version than VERSION
    has stored is imported too, and never found.

    Exit codes: 0 everything was imported, or was evicted to stay below the cap; 1 something was damaged or could not
    be stored; 2 JAX_DIR holds no program of JAX's, or is not safe, or no JAX is installed here and VERSION is missing.

    \b
    Examples:
      lockcache import-jax ~/.cache/jax
      lockcache import-jax --jax-version 0.10.2 ~/.cache/jax /scratch/kernels
      lockcache import-jax --dry-run --json ~/.cache/jax
    """
    root = resolve_path(source)
    if not os.path.isdir(root):
        what = "is a file" if os.path.lexists(root) else "no such directory"
        raise click.UsageError(f"{source}: {what}; JAX keeps its programs in $JAX_COMPILATION_CACHE_DIR")
    check_directory(guest_layout(root), False)
    found = jax_entries(root)
    if not found:
        raise click.UsageError(f"{source}: not JAX's own cache: it has no files NAME-KEY-cache")
    version = jax_version or _installed_version()
    with step_bar("importing", len(found)) as advance, import_target(directory, is_dry_run=dry_run) as target:
        outcomes = import_jax(root, found, target, version, advance, is_dry_run=dry_run)
    facts = {"would_import" if dry_run else "imported": outcomes["imported"]}
    facts |= {name: outcomes[name] for name in ("present", "damaged", "dropped")}
    print_facts(facts, as_json, {})
    return int(outcomes["damaged"] + outcomes["dropped"] > 0)


def _installed_version() -> str:
    try:
        return importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError:
        raise click.UsageError("no JAX is installed here: name the version of your programs, --jax-version") from None
