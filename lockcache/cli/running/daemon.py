"""The daemon of ``lockcache run --daemon``: one for the ranks of a node, until the last of them ends.

However they end: a daemon of one process alone is ended by the kernel with that process, one of several by the lock
that they share, which the kernel frees.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

import click

from lockcache.arguments import configured_cap, default_cap
from lockcache.cli.output import plain, say
from lockcache.cli.running.ranks import Leaving, is_first, is_rank, staying, wait_for_last
from lockcache.errors import how_to_install
from lockcache.lowlevel import Layout, PolicyFile

_LOCK: Final = "run-daemon"
_PR_SET_PDEATHSIG: Final = 1

_PROGRAM: Final = """
import sys
sys.path = [path for path in sys.path if path]  # not where CMD is run: somebody may have put modules there
from lockcache.cli.running.daemon import end_with
end_with(sys.argv.pop(1))
from lockcache_daemon.cli import main
main()
"""


@contextlib.contextmanager
def daemon_for(layout: Layout, directory: str | None, max_size: str | None) -> Iterator[None]:
    """Run a daemon for the directory while any rank of this node is in this block. A daemon that cannot start reports
    why.

    Raises :class:`click.UsageError` if the daemon is not installed, or has no cap to keep.
    """
    words = _words(layout, directory, max_size) if is_first() else None
    leaving, process = Leaving(), None
    try:
        with staying(layout, _LOCK) if is_rank() else contextlib.nullcontext(leaving) as leaving:
            if words is not None:
                process = _start(layout.root if leaving.is_shared else str(os.getpid()), words)
            yield
            if process is not None and process.poll():
                say(f"the daemon ended with exit code {process.returncode}, and kept no cap")
    finally:
        if process is not None and (leaving.is_last or not leaving.is_shared):
            process.terminate()
            process.wait()


def _words(layout: Layout, directory: str | None, max_size: str | None) -> list[str]:
    if importlib.util.find_spec("lockcache_daemon") is None or importlib.util.find_spec("pydantic") is None:
        raise click.UsageError(f"--daemon: {how_to_install('daemon')}")
    policy = PolicyFile(layout).load()
    stated = policy.max_size_bytes if policy.by_operator else None  # counts over all that a job asks for
    cap = stated or max_size or configured_cap() or policy.max_size_bytes or default_cap(directory)
    if cap is None:
        raise click.UsageError(f"--daemon: {plain(layout.root)} has no cap; give --max-size")
    return ["--standby", "--max-size", cap if isinstance(cap, str) else f"{cap}B", layout.root]


def _start(life: str, words: list[str]) -> subprocess.Popen[bytes]:
    # In a session of its own: Ctrl-C is for the command, and the daemon stays until the command has ended.
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, life, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_with(life: str) -> None:
    """Send SIGTERM when the process of this number ends, or the last rank of the directory of this name.

    Runs in the process that is to become the daemon.
    """
    if not life.isdecimal():
        threading.Thread(target=_end_with_last, args=(Layout(life),), daemon=True).start()
        return
    import ctypes  # where it is needed

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(life):
        sys.exit(0)


def _end_with_last(layout: Layout) -> None:
    try:
        wait_for_last(layout, _LOCK)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
