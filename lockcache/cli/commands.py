"""The commands. Each opens a cache, calls one method, prints what it gave as a table or as JSON."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from lockcache import FileStreamProgramCache, LockcacheError, __version__
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.location import resolve_path
from lockcache.filestream.policy import Policy
from lockcache.sizes import format_size, parse_size

__all__ = ["cli"]

_F = TypeVar("_F", bound=Callable[..., Any])

_EPILOG = "DIR defaults to $LOCKCACHE_DIR, else to lockcache in the user cache directory."


class _OneLineErrors(click.Group):
    """Shows a user's mistakes (an unsafe directory, a file in the way) as one line, not as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (LockcacheError, OSError, ValueError) as error:
            raise click.ClickException(str(error)) from error


def _directory(command: _F) -> _F:
    argument = click.argument("directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
    return argument(command)


def _as_json(command: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


@click.group(cls=_OneLineErrors, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Look after a directory of compiled GPU programs that many processes share.

    \b
    Examples:
      lockcache stats
      lockcache policy set --max-size 10G /scratch/kernels
      lockcache recount /scratch/kernels
    """


@cli.command()
@_directory
def path(directory: str | None) -> None:
    """Print the cache directory that would be used, absolute."""
    click.echo(resolve_path(directory))


@cli.command()
@_directory
@_as_json
def stats(directory: str | None, as_json: bool) -> None:
    """Show how full a cache is, against its cap."""
    cache = _open(directory)
    now = cache.stats()
    found = {"path": cache.path, "bytes": now.bytes, "entries": now.entries, "max_size_bytes": cache.max_size_bytes}
    _print(found, as_json, {"bytes": _size(now.bytes), "max_size_bytes": _cap(cache.max_size_bytes)})


@cli.command()
@_directory
@_as_json
def recount(directory: str | None, as_json: bool) -> None:
    """Make the accounting say what the disk holds.

    Needed after processes were killed, or where programs that do not account (cuda.core's own cache) write the
    directory, and no daemon runs. Safe while others use the cache.
    """
    cache = _open(directory)
    repairs = cache.recount()
    drift = sum(repair.drift_bytes for repair in repairs)
    found = {"path": cache.path, "shards_repaired": len(repairs), "drift_bytes": drift, "bytes": cache.stats().bytes}
    _print(found, as_json, {"drift_bytes": f"{drift:+}"})


@cli.command()
@_directory
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(directory: str | None, yes: bool) -> None:
    """Remove every entry. Safe while others use the cache: they miss, and compile again."""
    cache = _open(directory)
    if not yes:
        click.confirm(f"Remove {len(cache)} entries from {cache.path}?", abort=True)
    cache.clear()


@cli.group()
def policy() -> None:
    """Read or set the rules of a directory: they hold for every process that uses it."""


@policy.command("get")
@_directory
@_as_json
def policy_get(directory: str | None, as_json: bool) -> None:
    """Show the policy in force."""
    opened = _open_directory(directory)
    now = opened.policy.current()
    found = {"path": opened.layout.root, "max_size_bytes": now.max_size_bytes, "by_operator": now.by_operator}
    _print(found, as_json, {"max_size_bytes": _cap(now.max_size_bytes)})


@policy.command("set")
@_directory
@click.option("--max-size", required=True, metavar="SIZE", help="The cap: 10G, 512M, 1.5T, 10GiB; or 'none'.")
def policy_set(directory: str | None, max_size: str) -> None:
    """Set the cap. Running processes obey from their next write; a program's own max_size_bytes does not replace it.

    \b
    G means 10^9 bytes and GiB 2^30.
    """
    cap = None if max_size == "none" else parse_size(max_size)
    _open_directory(directory).policy.replace(Policy(cap, by_operator=cap is not None))


def _open(directory: str | None) -> FileStreamProgramCache:
    _must_exist(directory)
    return FileStreamProgramCache(directory)


def _open_directory(directory: str | None) -> CacheDirectory:
    _must_exist(directory)
    return CacheDirectory(resolve_path(directory), lock_timeout_seconds=5.0)


def _must_exist(directory: str | None) -> None:
    """Looking at a cache does not make one: a mistyped path is an error."""
    found = resolve_path(directory)
    if not os.path.isdir(found):
        raise FileNotFoundError(errno.ENOENT, "there is no cache here", found)


def _print(found: dict[str, Any], as_json: bool, shown: dict[str, str]) -> None:
    if as_json:
        click.echo(json.dumps(found))
        return
    table = Table(show_header=False, box=None)
    for name, value in {**found, **shown}.items():
        table.add_row(name.replace("_", " ").removesuffix(" bytes"), str(value))
    Console(soft_wrap=True).print(table)


def _size(number: int) -> str:
    return f"{format_size(number)} ({number} bytes)"


def _cap(number: int | None) -> str:
    return "none" if number is None else _size(number)
