# SPDX-License-Identifier: Apache-2.0
"""``lockcache run``: a command whose frameworks compile on lockcache, with nothing changed in it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Mapping
from itertools import starmap
from typing import TYPE_CHECKING, Final

import click

from lockcache.arguments import (
    coerce_file,
    coerce_read_only,
    default_cap,
    is_asked_for,
    is_disabled,
    resolve_path,
    unknown_in_words,
    unknown_variables,
    variables_left_alone,
)
from lockcache.cli import options
from lockcache.cli.open_directory import LOCK_TIMEOUT_SECONDS, no_cache, other_things
from lockcache.cli.output import plain, reason, say
from lockcache.cli.running.child import WAITED_FOR, end_as, run_child
from lockcache.cli.running.daemon import daemon_for
from lockcache.cli.running.ranks import is_first
from lockcache.cli.running.record import RecordedRun
from lockcache.cli.running.report import NOT_AS_FEW_COMPILES, describe_run, exceeded
from lockcache.cli.running.seeded import SeededRun, missing_seed
from lockcache.cli.signals import held_back
from lockcache.doctor.path_source import check_variables
from lockcache.errors import LockcacheError, NoDefaultDirError
from lockcache.integrations.environment import FRAMEWORKS, hooked, variables_for
from lockcache.lowlevel import CacheDirectory, Layout, is_cache
from lockcache.remote import parse_url, refuse_settings, require_client
from lockcache.remote.manifest import read_manifest
from lockcache.reports import Trace

if TYPE_CHECKING:
    from lockcache.integrations.kept_folders import Pattern


def _value(text: str) -> str:
    if text == "--":
        raise ValueError("'--' begins CMD, and the value before it is missing")
    return text


_is_value = options.parsed_by(_value)


def _pattern(text: str) -> Pattern:
    from lockcache.cli.running.kept import parse  # for runs with --keep only

    return parse(_value(text))


_OFF: Final = "lockcache was off, as LOCKCACHE_DISABLE says"

_HELP: Final = """Run CMD so that its frameworks use lockcache, without changes to CMD.

cuda.core, JAX, Triton, Inductor, CuPy, numba-cuda, numba-cuda-mlir, Warp, CuTe DSL, cuTile, FlashInfer and torch's
C++ extensions store what they compile, and Helion what it tuned, in one directory, which all processes share: each
kernel is compiled once. Variables that you set yourself take precedence. Signals go to CMD, and its exit code is
returned. At the end, one line shows what the processes of CMD did: kernels that they found, compiled and waited
for, the processor time that was not spent, and frameworks that went on with their own cache. Under srun or mpiexec,
the last rank of a node prints it, for all of them. If the directory cannot be used, a warning says why, and CMD
runs without lockcache. Options that can only be a mistake are an error, and CMD does not run: --dir is a file or
holds other files, --seed or --manifest is in a missing folder.

--max-size counts as LOCKCACHE_MAX_SIZE does: below what a program states, and below a cap that an operator set. It
stays the directory's cap until a program states another one, or 'lockcache policy set' does.

With --daemon, one rank of each node starts a lockcache-daemon, which keeps the directory below its cap until CMD
has ended in all ranks of the node. If another daemon manages the directory, this one waits, and takes over when the
other ends.

With --seed, the directory, which should be on a disk of the node, starts with the kernels of a bundle: one process
of each node copies the file once. With --promote, the last process of the node to end adds the new kernels to that
file, for the next job; the file need not exist yet. It grows to half of the directory's cap at most, which is what a
seed may take; then the oldest kernels are left out.

With --remote (redis://, s3://, http://...), entries that the directory lacks are read from a server, and new
entries are sent to it: one process of all hosts compiles a kernel. To test the server: lockcache doctor --remote
URL.

With --manifest the processes of CMD add the keys that they look up to a list. At the next start the first process
of a node fetches from the server what the directory lacks of them, all at once and in the background.

With --keep, folders of a program that lockcache has no adapter for are entries too: a cache with a folder for each
kernel. PATTERN is the path of these folders, in single quotes and with '/' at its end; '*' stands for any one name,
and the path may begin with the name of a variable. Stored folders are restored before CMD starts. New folders are
stored once they are renamed to their place, or at the end if CMD ends with exit code 0.

With --trace, FILE gets an event for each compilation and each wait of all processes, as soon as it has ended, so a
process that is killed leaves a usable file: open it with https://ui.perfetto.dev or speedscope. If FILE is a trace
already, events are added, also by other ranks. On several nodes give each a file of its own.

With --most-compiles, CMD is a test of a warm cache: if it succeeds, but its processes on this node compiled more
than N kernels, the exit code is 3, and one line names the first of them. It is 3 as well where nobody knows how
many: lockcache was off, no process found or compiled any, or a framework went on with its own cache.

\b
Examples:
  lockcache run -- python train.py
  lockcache run --dir /scratch/kernels --max-size 10G -- python -m server
  srun lockcache run -- python train.py
  lockcache run --daemon --max-size 10G -- ./all-tests
  srun lockcache run --remote redis://cache.example -- python train.py
  srun lockcache run --remote redis://cache --manifest job.manifest -- ./job
  lockcache run --most-compiles 0 -- pytest tests/gpu
  lockcache run --trace start.json -- python serve.py
  srun lockcache run --dir /tmp/k --seed /lustre/k.lcb --promote -- ./job
  lockcache run --keep 'DG_JIT_CACHE_DIR/cache/*/' -- python serve.py
"""


@click.command("run", help=_HELP, context_settings={"allow_interspersed_args": False})
@click.option(
    "--dir", "directory", metavar="DIR", callback=_is_value, help="The directory. [default: that of lockcache path]"
)
@click.option("--max-size", metavar="SIZE", callback=options.checked_size, help='The cap for CMD, such as "10G".')
@click.option("--daemon", is_flag=True, help="Run a daemon until CMD ends; it keeps the directory below its cap.")
@click.option(
    "--seed", metavar="FILE", callback=_is_value, help="The bundle to start from; its kernels are not compiled."
)
@click.option("--promote", is_flag=True, help="At the end, add what was compiled to the bundle of --seed.")
@click.option(
    "--remote", metavar="URL", callback=_is_value, help="A server behind the directory, which other hosts share."
)
@click.option(
    "--manifest",
    metavar="FILE",
    callback=_is_value,
    help="Record the keys that CMD looks up; fetch them at the next start.",
)
@click.option(
    "--keep",
    metavar="PATTERN",
    multiple=True,
    callback=options.each(_pattern),
    help="Keep folders of another program's cache, such as 'DG_JIT_CACHE_DIR/cache/*/'.",
)
@click.option(
    "--most-compiles",
    metavar="N",
    type=options.WholeNumber(min=0),
    help="End with 3 if CMD succeeds and compiles more than N kernels.",
)
@click.option(
    "--trace",
    metavar="FILE",
    callback=_is_value,
    help="Add a timeline of compilations and waits to FILE.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no line at the end.")
@click.argument("words", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    directory: str | None,
    max_size: str | None,
    daemon: bool,
    seed: str | None,
    promote: bool,
    remote: str | None,
    manifest: str | None,
    keep: tuple[Pattern, ...],
    most_compiles: int | None,
    trace: str | None,
    quiet: bool,
    words: tuple[str, ...],
) -> int:
    """Run CMD, as the help above says. Returns the exit code."""
    bundle = None if seed is None and not promote else SeededRun(seed, promotes=promote)
    stated = (
        _remote_variables(remote)
        | _listed(manifest)
        | _traced(trace)
        | ({} if bundle is None else {"LOCKCACHE_SEED": bundle.path})
    )
    wrong = _wrong_variable(stated)
    try:
        variables = _variables(directory, max_size, stated)
        layout = Layout(resolve_path(directory))
    except NoDefaultDirError as error:
        why = wrong or ("" if is_disabled() else str(error))  # which needs no directory
        return _go_without(words, why, "" if why or quiet else _OFF, most_compiles)
    if directory is not None:  # a slip of this very command, unlike a variable that is set for all
        _refuse_other(layout, directory)
    _say("" if wrong else missing_seed(bundle), *starmap(unknown_in_words, unknown_variables(os.environ).items()))
    why, nothing = wrong or _why_unusable(layout, directory), contextlib.nullcontext()
    if why:
        return _go_without(words, why, "", most_compiles)
    run = _keeping(keep, layout, quiet=quiet)
    if bundle is not None:
        bundle.prepare(layout.root, max_size)
    kept = daemon_for(layout, directory, max_size) if daemon else nothing
    used = nothing if bundle is None else bundle.used(layout, quiet=quiet)
    status, recorded = _run_recorded(words, variables, layout, kept, used, run)
    if is_disabled():
        return _end_without(status, "" if quiet else _OFF, most_compiles)
    if recorded.is_last and not quiet:
        say(f"{_describe(recorded)}; in {layout.root}")
    return _judge(end_as(status), recorded, most_compiles)


def _go_without(words: tuple[str, ...], why: str, at_end: str, most_compiles: int | None) -> int:
    _say(why and f"{why}; the command goes on without lockcache")
    _wait_for_children()
    nothing = contextlib.nullcontext()
    status = _run_in(words, _without_lockcache(os.environ), nothing)
    return _end_without(status, at_end, most_compiles)


def _end_without(status: int, at_end: str, most_compiles: int | None) -> int:
    """Returns the exit code of a command that ran without lockcache: nobody knows what that compiled."""
    _say(at_end)
    code = end_as(status)
    if code or most_compiles is None:
        return code
    _say("--most-compiles: lockcache was not in use, so nothing is known of what was compiled")
    return NOT_AS_FEW_COMPILES


def _describe(recorded: RecordedRun) -> str:
    why = recorded.why_unknown
    return f"nothing is known of what its processes did: {why}" if why else describe_run(recorded.parts or [])


def _judge(code: int, recorded: RecordedRun, most_compiles: int | None) -> int:
    """Returns the exit code of a command that ended with ``code``. Of several ranks, the last one judges."""
    if code or most_compiles is None or recorded.parts is None:
        return code
    why = recorded.why_unknown or exceeded(recorded.parts, most_compiles)
    if not why:
        return code
    say(f"--most-compiles: {why}")
    return NOT_AS_FEW_COMPILES


def _say(*lines: str) -> None:
    """Print what is true of all ranks of a node, once."""
    for line in filter(None, lines if is_first() else ()):
        say(line)


def _run_recorded(
    words: tuple[str, ...],
    variables: Mapping[str, str],
    layout: Layout,
    kept: contextlib.AbstractContextManager[None],
    used: contextlib.AbstractContextManager[None],
    run: Callable[[tuple[str, ...], Mapping[str, str], set[int]], int],
) -> tuple[int, RecordedRun]:
    """Run CMD while the directory is ``kept``, and count what its processes do; its wait status and the record."""
    _wait_for_children()
    with kept:  # which refuses the command, if that is a mistake, before any file is made
        recorded = RecordedRun(layout, words, is_read_only=is_disabled() or coerce_read_only("auto") is True)
        environment = hooked({**os.environ, **variables, **recorded.variables}, FRAMEWORKS)
        with recorded.used():
            status = _run_in(words, environment, used, run)
    return status, recorded


def _run_in(
    words: tuple[str, ...],
    environment: Mapping[str, str],
    used: contextlib.AbstractContextManager[None],
    run: Callable[[tuple[str, ...], Mapping[str, str], set[int]], int] = run_child,
) -> int:
    """Run CMD while the bundle is ``used``; its wait status."""
    # Until all is done: the exit code is the command's, whatever comes after its end.
    with held_back(WAITED_FOR) as mask, used:
        return run(words, environment, mask)


def _wait_for_children() -> None:
    """Have the kernel report the ends of children: where they are ignored, nobody would hear of the command's."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _keeping(
    keep: tuple[Pattern, ...], layout: Layout, *, quiet: bool
) -> Callable[[tuple[str, ...], Mapping[str, str], set[int]], int]:
    """Returns what runs CMD, and keeps its folders if there are any to be kept."""
    if not keep or is_disabled():
        return run_child
    from lockcache.cli.running.kept import KeptFolders  # for runs with --keep only

    return KeptFolders(keep, layout, quiet=quiet).run_child


def _refuse_other(layout: Layout, directory: str | None) -> None:
    """Raise :class:`NotADirectoryError` for what is not a cache, and is not to be made one."""
    is_other = os.path.lexists(layout.root) and not os.path.isdir(layout.root)
    with contextlib.suppress(OSError):  # nothing can be seen, and opening the directory says why
        is_other = is_other or (bool(other_things(layout.root)) and not is_cache(layout))
    if is_other:
        raise no_cache(directory, layout)


def _why_unusable(layout: Layout, directory: str | None) -> str:
    """Make the directory, as the first program in it would. Returns why it cannot be used, if it cannot."""
    try:
        _refuse_other(layout, directory)
        if not is_disabled() and coerce_read_only("auto") is not True:
            CacheDirectory(layout.root, LOCK_TIMEOUT_SECONDS, first_cap_bytes=default_cap(directory)).close()
    except (OSError, LockcacheError, ValueError) as error:
        why = reason(error)
        return why if layout.root in why else f"{layout.root}: {why}"  # which may be about a folder above it
    return ""


def _wrong_variable(stated: Collection[str]) -> str:
    """Returns what is wrong with a variable that is not ``stated`` by an option; empty if a cache can be opened."""
    try:
        with variables_left_alone(stated):
            check_variables()
    except ValueError as error:
        return str(error)
    return ""


def _without_lockcache(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables for a CMD whose caches, too, are to be off: none of them is to raise, or to be another."""
    return {name: value for name, value in environment.items() if not name.startswith("LOCKCACHE_")} | {
        "LOCKCACHE_DISABLE": "1"
    }


def _variables(directory: str | None, max_size: str | None, behind: dict[str, str]) -> dict[str, str]:
    """The variables that CMD gets: what was asked for (``behind``), and of the others those that are not set."""
    stated = {"LOCKCACHE_DIR", *behind} if max_size is None else {"LOCKCACHE_DIR", "LOCKCACHE_MAX_SIZE", *behind}
    # Else JAX's own cache would be set for lockcache. A word that is not yes or no is reported later.
    frameworks = () if is_asked_for("LOCKCACHE_DISABLE") else FRAMEWORKS
    variables = variables_for(frameworks, directory, max_size, is_hooked=True) | behind
    if frameworks:
        variables["LOCKCACHE_COMPILE_SERVER"] = "auto"
    return {name: value for name, value in variables.items() if name in stated or name not in os.environ}


def _remote_variables(remote: str | None) -> dict[str, str]:
    """The variable for a server. Raises :class:`ValueError` for what is not one, or whose client is not installed."""
    if remote is None:
        return {}
    try:
        url = parse_url(remote)
        require_client(url)
        refuse_settings(url)
    except ModuleNotFoundError as error:
        raise click.UsageError(str(error)) from None
    return {"LOCKCACHE_REMOTE": remote}


def _traced(trace: str | None) -> dict[str, str]:
    """The variable for a timeline, whose file is made. Raises :class:`OSError`, :class:`ValueError`."""
    if trace is None:
        return {}
    path = coerce_file("--trace", trace)
    Trace.begin_file(path)
    return {"LOCKCACHE_TRACE": path}


def _listed(manifest: str | None) -> dict[str, str]:
    """The variable for a manifest. Raises :class:`ValueError`, and :class:`click.UsageError` for a missing folder."""
    if manifest is None:
        return {}
    path = coerce_file("--manifest", manifest)
    if not os.path.isdir(os.path.dirname(path)):
        raise click.UsageError(f"--manifest: {plain(os.path.dirname(path))}: there is no such directory")
    if os.path.lexists(path):
        read_manifest(path)  # what is something else is refused here, once, and not by each process
    return {"LOCKCACHE_MANIFEST": path}
