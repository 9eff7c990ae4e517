"""``lockcache run``: a command whose frameworks compile on lockcache, with nothing changed in it."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import click

from lockcache.arguments import coerce_file, configured_cap, default_cap, resolve_path
from lockcache.cli import options
from lockcache.cli.open_directory import no_cache, refuse_other_things
from lockcache.cli.output import plain
from lockcache.cli.seeded_run import SeededRun
from lockcache.cli.signals import held_back
from lockcache.errors import how_to_install
from lockcache.filestream.accounting import saved_in_words
from lockcache.filestream.manifest import read_manifest
from lockcache.filestream.remote import parse_url, require_client
from lockcache.integrations.environment import FRAMEWORKS, hooked, variables_for
from lockcache.lowlevel import Counters, Layout, PolicyFile, read_counters
from lockcache.sizes import counted

_PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_WAITED_FOR: Final = (signal.SIGCHLD, *_PASSED_ON)
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
# Of the launchers srun, mpiexec (Open MPI, MPICH, Intel MPI) and torchrun: this process's number on its node.
_RANKS: Final = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "LOCAL_RANK")


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--dir", "directory", metavar="DIR", help="The directory. [default: that of lockcache path]")
@click.option("--max-size", metavar="SIZE", callback=options.checked_size, help='The cap, such as "10G".')
@click.option("--daemon", is_flag=True, help="Run a daemon until CMD ends; it keeps the directory below its cap.")
@click.option("--seed", metavar="FILE", help="The bundle to start from; its programs are not compiled.")
@click.option("--promote", is_flag=True, help="At the end, add what was compiled to the bundle of --seed.")
@click.option("--remote", metavar="URL", help="A server behind the directory, which other hosts share.")
@click.option("--manifest", metavar="FILE", help="Record the keys that CMD looks up; fetch them at the next start.")
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
    quiet: bool,
    words: tuple[str, ...],
) -> int:
    """Run CMD so that its frameworks use lockcache, without changes to CMD.

    JAX, Triton, Inductor, CuPy, numba-cuda and Warp store what they compile in one directory, which all processes
    share: each kernel is compiled once. Variables that you set yourself take precedence. Signals go to CMD, and its
    exit code is returned. At the end, one line shows what all programs did in the directory meanwhile: hits,
    compilations, and the compile time that was saved. Under srun or mpiexec, one rank of a node prints it.

    With --daemon, one rank of each node runs a lockcache-daemon until CMD ends. If another daemon manages the
    directory, this one waits, and takes over when the other ends. The cap stays in the directory's policy. A cap that
    an operator set before takes precedence over --max-size.

    With --seed, the directory, which should be on a disk of the node, starts with the programs of a bundle: one
    process of each node copies the file once. With --promote, the process of the node that ends last adds the new
    programs to that file, for the next job; the file need not exist yet. It grows to half of the directory's cap at
    most, which is what a seed may take; then the oldest programs leave.

    With --remote (redis://, s3://, http://...), entries that the directory lacks are read from a server, and new
    entries are sent to it: one process of all hosts compiles a kernel. To test the server: lockcache doctor --remote
    URL.

    With --manifest the processes of CMD add the keys that they look up to a list. At the next start the first process
    of a node fetches from the server what the directory lacks of them, all at once and in the background.

    \b
    Examples:
      lockcache run -- python train.py
      lockcache run --dir /scratch/kernels --max-size 10G -- python -m server
      srun lockcache run -- python train.py
      lockcache run --daemon --max-size 10G -- ./all-tests
      srun lockcache run --remote redis://cache.example -- python train.py
      srun lockcache run --remote redis://cache --manifest job.manifest -- ./job
      srun lockcache run --dir /tmp/k --seed /lustre/k.lcb --promote -- ./job
    """
    bundle = None if seed is None and not promote else SeededRun(seed, promotes=promote)
    variables = _variables(directory, max_size, _behind(remote) | _listed(manifest))
    layout = _prepared(directory, max_size, bundle, variables)
    before, is_first = read_counters(layout), _is_first()
    kept = _daemon(layout, directory, max_size) if daemon and is_first else contextlib.nullcontext()
    status = _run_in(layout, words, variables, kept, bundle, quiet=quiet)
    if not quiet and is_first:
        said = f"lockcache: {_difference(before, read_counters(layout))}, in {layout.root}"
        with contextlib.suppress(OSError):  # a full disk, or a reader who went away: the exit code is CMD's
            click.echo(plain(said), err=True)
    return _end_as(status)


def _is_first() -> bool:
    """Whether no other rank of this node has a smaller number; -1 is set by some where there are no ranks."""
    return all(os.environ.get(name, "0") in ("0", "-1") for name in _RANKS)


def _run_in(
    layout: Layout,
    words: tuple[str, ...],
    variables: dict[str, str],
    kept: contextlib.AbstractContextManager[None],
    bundle: SeededRun | None,
    *,
    quiet: bool,
) -> int:
    """Run CMD while the directory is ``kept``, from and into the bundle, if there is one."""
    environment = hooked({**os.environ, **variables}, FRAMEWORKS)
    # Ignored, nobody would hear of the command's end.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Until all is done: the exit code is the command's, whatever comes after its end.
    with kept, held_back(_WAITED_FOR) as mask:
        if bundle is None:
            return _run(words, environment, mask)
        try:
            with bundle.used(layout):
                return _run(words, environment, mask)
        finally:  # also where CMD could not be started: others of this node may have compiled
            bundle.promote(layout, quiet=quiet)


def _prepared(
    directory: str | None, max_size: str | None, bundle: SeededRun | None, variables: dict[str, str]
) -> Layout:
    """The directory, made where CMD begins with a bundle, which ``variables`` then name.

    Raises :class:`NotADirectoryError` for what is not a cache, and is not to be made one.
    """
    layout = Layout(resolve_path(directory))
    if os.path.lexists(layout.root) and not os.path.isdir(layout.root):
        raise no_cache(directory, layout)
    refuse_other_things(layout)
    if bundle is not None:
        bundle.prepare(layout.root, max_size)
        variables["LOCKCACHE_SEED"] = bundle.path
    return layout


def _variables(directory: str | None, max_size: str | None, behind: dict[str, str]) -> dict[str, str]:
    """The variables that CMD gets: what was asked for (``behind``), and of the others those that are not set."""
    stated = {"LOCKCACHE_DIR", *behind} if max_size is None else {"LOCKCACHE_DIR", "LOCKCACHE_MAX_SIZE", *behind}
    variables = variables_for(FRAMEWORKS, directory, max_size, is_hooked=True) | behind
    return {name: value for name, value in variables.items() if name in stated or name not in os.environ}


def _behind(remote: str | None) -> dict[str, str]:
    """The variable for a server. Raises :class:`ValueError` for what is not one, or whose client is not installed."""
    if remote is None:
        return {}
    try:
        require_client(parse_url(remote))
    except ModuleNotFoundError as error:
        raise click.UsageError(str(error)) from None
    return {"LOCKCACHE_REMOTE": remote}


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


# Ends with the process that started it, however that ends: asked for by the daemon's own process, before it is one.
_START_DAEMON: Final = """
import sys
sys.path = [path for path in sys.path if path]  # not where CMD is run: somebody may have put modules there
import ctypes, os, signal
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], *sys.argv[3:]])
"""
_BE_DAEMON: Final = """
import sys
sys.path = [path for path in sys.path if path]
from lockcache_daemon.cli import main
sys.exit(main())
"""


@contextlib.contextmanager
def _daemon(layout: Layout, directory: str | None, max_size: str | None) -> Iterator[None]:
    """A daemon for the directory, for as long as this block. Where it cannot start it says so itself."""
    if importlib.util.find_spec("lockcache_daemon") is None or importlib.util.find_spec("pydantic") is None:
        raise click.UsageError(f"--daemon: {how_to_install('daemon')}")
    policy = PolicyFile(layout).load()
    stated = policy.max_size_bytes if policy.by_operator else None  # counts over all that a job asks for
    cap = stated or max_size or configured_cap() or policy.max_size_bytes or default_cap(directory)
    if cap is None:
        raise click.UsageError(f"--daemon: {plain(layout.root)} has no cap; give --max-size")
    words = ["--standby", "--max-size", cap if isinstance(cap, str) else f"{cap}B", layout.root]
    # In a session of its own: Ctrl-C is for the command, and the daemon stays until that has ended.
    process = subprocess.Popen(
        [sys.executable, "-c", _START_DAEMON, str(os.getpid()), _BE_DAEMON, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
        if process.poll():
            click.echo(f"lockcache: the daemon ended with exit code {process.returncode}, and kept no cap", err=True)
    finally:
        process.terminate()
        process.wait()


def _run(words: tuple[str, ...], environment: dict[str, str], mask: set[int]) -> int:
    """The wait status of the command, which gets ``mask``. Requires: signals are held back.

    They are asked for, because a handler would not see who sent them.
    """
    try:
        child = _spawn(words, environment, mask)
        while True:
            info = signal.sigwaitinfo(_WAITED_FOR)
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
    saved = saved_in_words(hits, newer.saved_ns - older.saved_ns)
    return f"{counted(hits, 'hit')}, {stored} compiled and stored{saved}"


def _end_as(status: int) -> int:
    """The exit code of a command that ended so, as a shell has it: 128 + the number of the signal that killed it."""
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGINT:  # so that a shell's loop ends too
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code if code >= 0 else 128 - code
