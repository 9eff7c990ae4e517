"""``lockcache run``: a command whose frameworks compile on lockcache, with nothing changed in it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from typing import Final

import click

from lockcache.arguments import resolve_path
from lockcache.cli import options
from lockcache.cli.open_directory import no_cache
from lockcache.cli.output import plain
from lockcache.integrations.environment import FRAMEWORKS, hooked, variables_for
from lockcache.lowlevel import Counters, Layout, read_counters
from lockcache.sizes import counted

_PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
# Of the launchers srun, mpiexec (Open MPI, MPICH, Intel MPI) and torchrun: this process's number on its node.
_RANKS: Final = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "LOCAL_RANK")


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--dir", "directory", metavar="DIR", help="The directory; default: as lockcache path says.")
@click.option("--max-size", metavar="SIZE", callback=options.checked_size, help='The cap, such as "10G".')
@click.option("--quiet", "-q", is_flag=True, help="Print no line at the end.")
@click.argument("words", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(directory: str | None, max_size: str | None, quiet: bool, words: tuple[str, ...]) -> int:
    """Run CMD with its frameworks on lockcache, and nothing changed in it.

    JAX, Triton, CuPy and numba-cuda keep what they compile in one directory, which all processes share: each kernel is
    compiled once. Variables that you set yourself count over those that this sets. Signals go to CMD, and its exit code
    comes back. At the end a line says what all programs did in the directory meanwhile; under srun or mpiexec one rank
    of a node prints it.

    \b
    Examples:
      lockcache run -- python train.py
      lockcache run --dir /scratch/kernels --max-size 10G -- python -m server
      srun lockcache run -- python train.py
    """
    path, variables = resolve_path(directory), variables_for(FRAMEWORKS, directory, max_size, is_hooked=True)
    stated = {"LOCKCACHE_DIR"} if max_size is None else {"LOCKCACHE_DIR", "LOCKCACHE_MAX_SIZE"}
    own = {name: value for name, value in os.environ.items() if name in variables and name not in stated}
    layout = Layout(path)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise no_cache(directory, layout)
    before = read_counters(layout)
    status = _run(words, hooked({**os.environ, **variables, **own}, FRAMEWORKS))
    if not quiet and all(os.environ.get(name, "0") == "0" for name in _RANKS):
        click.echo(plain(f"lockcache: {_difference(before, read_counters(layout))}, in {path}"), err=True)
    return _end_as(status)


def _run(words: tuple[str, ...], environment: dict[str, str]) -> int:
    """The wait status of the command."""
    # Blocked, and asked for: a handler would not see who sent it. Ignored, nobody would hear of the command's end.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waited_for = {signal.SIGCHLD, *_PASSED_ON}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        child = _spawn(words, environment, before)
        while True:
            info = signal.sigwaitinfo(waited_for)
            if info.si_signo != signal.SIGCHLD:
                # From a process, or the end of a terminal, which is said to its first process alone. Ctrl-C and Ctrl-\\
                # the terminal sends to the command too.
                if info.si_code <= 0 or info.si_signo == signal.SIGHUP:
                    os.kill(child, info.si_signo)
                continue
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                return status
    except OSError as error:
        click.echo(f"lockcache: {plain(words[0])}: {error.strerror}", err=True)
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(words: tuple[str, ...], environment: dict[str, str], mask: set[int]) -> int:
    """Start the command as a shell would; its process ID."""
    # Python ignores these two; programs rely on dying of the first.
    undone = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawnp(words[0], words, environment, setsigmask=mask, setsigdef=undone)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script that does not say what runs it.
    script = shutil.which(words[0]) or words[0]
    return os.posix_spawn("/bin/sh", ["sh", script, *words[1:]], environment, setsigmask=mask, setsigdef=undone)


def _difference(before: Counters | None, after: Counters | None) -> str:
    older, newer = before or Counters(), after or Counters()
    hits, stored = max(0, newer.hits - older.hits), max(0, newer.puts - older.puts)
    return f"{counted(hits, 'hit')}, {stored} compiled and stored"


def _end_as(status: int) -> int:
    """The exit code of a command that ended so, as a shell has it: 128 + the number of the signal that killed it."""
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGINT:  # so that a shell's loop ends too
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code if code >= 0 else 128 - code
