# SPDX-License-Identifier: Apache-2.0
"""The daemon of ``lockcache run --daemon``: one for the ranks of a node, until the last of them ends.

However they end: a daemon of one process alone is ended by the kernel with that process, one of several by the lock
that they share, which the kernel frees.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

import click

from lockcache import FileStreamProgramCache
from lockcache.arguments import PROGRAM_VARIABLES, configured_cap, default_cap, variables_left_alone
from lockcache.cli.output import plain, say
from lockcache.cli.running.ranks import Leaving, is_first, is_rank, staying, wait_for_last
from lockcache.errors import LockcacheError, in_words
from lockcache.lowlevel import Layout, StatedPolicy
from lockcache.sizes import parse_size

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
    is_wanted = is_first() and _has_cap(layout, directory, max_size)
    leaving, process = Leaving(), None
    try:
        with staying(layout, _LOCK) if is_rank() else contextlib.nullcontext(leaving) as leaving:
            if is_wanted:
                process = _start(layout.root if leaving.is_shared else str(os.getpid()), layout)
            yield
            if process is not None and process.poll():
                say(f"the daemon ended with exit code {process.returncode}, and kept no cap")
    finally:
        if process is not None and (leaving.is_last or not leaving.is_shared):
            process.terminate()
            process.wait()


def _has_cap(layout: Layout, directory: str | None, max_size: str | None) -> bool:
    """Put the cap in force that was asked for, as CMD's first program would. Returns whether the directory has one.

    The daemon keeps the directory's own cap: one that it was given would be an operator's, also after the run.
    """
    asked = configured_cap() if max_size is None else parse_size(max_size)
    has_cap = StatedPolicy(layout).load().max_size_bytes is not None
    cap = asked if asked is not None or has_cap else default_cap(directory)
    if cap is None and not has_cap:
        raise click.UsageError(f"--daemon: {plain(layout.root)} has no cap; give --max-size")
    try:
        if cap is not None:
            with variables_left_alone(PROGRAM_VARIABLES):
                FileStreamProgramCache(layout.root, max_size_bytes=cap, read_only=False).close()
    except (OSError, LockcacheError) as error:
        say(f"no daemon is started: {in_words(error)}")
        return False
    return True


def _start(life: str, layout: Layout) -> subprocess.Popen[bytes]:
    # In a session of its own: Ctrl-C is for the command, and the daemon stays until the command has ended.
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, life, "--standby", layout.root],
        env={name: value for name, value in os.environ.items() if name != "LOCKCACHE_MAX_SIZE"},
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
