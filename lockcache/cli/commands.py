"""The commands. Each opens a directory, calls one function, prints what it gave as a table or as JSON.

Keeps looking from changing anything: what only shows or recounts opens no :class:`FileStreamProgramCache`, which evicts
from a directory over its cap, and refuses a directory that is no cache, which opening would make one.
"""

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
from lockcache.arguments import resolve_path
from lockcache.cli.kept import keeper_of
from lockcache.errors import PolicyError
from lockcache.filestream.directory import CacheDirectory, check_directory
from lockcache.filestream.layout import SHARDS, Layout
from lockcache.filestream.policy import Policy, PolicyFile
from lockcache.filestream.recovery import recount_all
from lockcache.filestream.scan import count_shard, measure_shard
from lockcache.filestream.usage import Slot
from lockcache.sizes import format_size, parse_size

__all__ = ["cli"]

_F = TypeVar("_F", bound=Callable[..., Any])

# A command waits as long as a cache does by default.
_LOCK_TIMEOUT_SECONDS = 5.0

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
    opened = _open(directory)
    cap, held = opened.policy.current().max_size_bytes, _held(opened)
    found = {"path": opened.layout.root, "bytes": held.bytes, "entries": held.entries, "max_size_bytes": cap}
    _print(found, as_json, {"bytes": _size(held.bytes), "max_size_bytes": _cap(cap)})


@cli.command()
@_directory
@_as_json
def recount(directory: str | None, as_json: bool) -> None:
    """Make the accounting say what the disk holds.

    Needed after processes were killed, or where programs that do not account (cuda.core's own cache) write the
    directory, and no daemon runs. Safe while others use the cache.
    """
    opened = _open(directory)
    repairs = recount_all(opened)
    drift, held = sum(repair.drift_bytes for repair in repairs), _held(opened)
    found = {"path": opened.layout.root, "shards_repaired": len(repairs), "drift_bytes": drift, "bytes": held.bytes}
    _print(found, as_json, {"drift_bytes": f"{drift:+}"})


@cli.command()
@_directory
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(directory: str | None, yes: bool) -> None:
    """Remove every entry. Safe while others use the cache: they miss, and compile again."""
    layout = _open(directory).layout
    if not yes:
        entries = sum(count_shard(layout, shard) for shard in range(SHARDS))
        click.confirm(f"Remove {entries} entries from {layout.root}?", abort=True)
    FileStreamProgramCache(layout.root).clear()


@cli.group()
def policy() -> None:
    """Read or set the rules of a directory: they hold for every process that uses it."""


@policy.command("get")
@_directory
@_as_json
def policy_get(directory: str | None, as_json: bool) -> None:
    """Show the policy in force."""
    opened = _open(directory)
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
    layout = Layout(resolve_path(directory))
    if not os.path.isdir(layout.root):
        raise _no_cache(layout)
    keeper = keeper_of(layout)  # before: afterwards it may have answered already
    _set_policy(layout, Policy(cap, by_operator=cap is not None))
    if keeper is not None:
        will = (
            "put its own --max-size back; stop it first" if cap is None else "obey this cap until it is started again"
        )
        click.echo(f"lockcache: a lockcache-daemon ({keeper}) keeps this directory, and will {will}", err=True)


def _set_policy(layout: Layout, policy: Policy) -> None:
    try:
        file = CacheDirectory(layout.root, _LOCK_TIMEOUT_SECONDS).policy
    except PolicyError:
        # Damaged, which is what setting it anew is for. All else of the directory was made and found in order.
        check_directory(layout)
        file = PolicyFile(layout)
    file.replace(policy)


def _open(directory: str | None) -> CacheDirectory:
    """Looking at a cache does not make one: a mistyped path is an error."""
    layout = Layout(resolve_path(directory))
    if not _is_there(layout.entries) and not _is_there(layout.own):
        raise _no_cache(layout)
    return CacheDirectory(layout.root, _LOCK_TIMEOUT_SECONDS)


def _is_there(path: str) -> bool:
    # Not os.path.exists, which takes a directory that may not be searched for one where nothing is.
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _no_cache(layout: Layout) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "there is no cache here", layout.root)


def _held(opened: CacheDirectory) -> Slot:
    """What the directory holds: as accounted, or measured where a read-only one has no accounting."""
    usage = opened.usage_if_writable()
    if usage is not None:
        return usage.total()
    slots = [measure_shard(opened.layout, shard) for shard in range(SHARDS)]
    return Slot(sum(slot.bytes for slot in slots), sum(slot.entries for slot in slots))


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
