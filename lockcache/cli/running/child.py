# SPDX-License-Identifier: Apache-2.0
"""The command of ``lockcache run``: started as a shell would, and given the signals that are meant for it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import Final

from lockcache.cli.output import say
from lockcache.cli.signals import FATAL

#: The signals that :func:`run_child` fetches, without a handler.
WAITED_FOR: Final = frozenset({signal.SIGCHLD, *FATAL})
# A terminal sends these to all its processes in the foreground, the command too.
_OF_THE_KEYBOARD: Final = (signal.SIGINT, signal.SIGQUIT)
# A thread that does not hold SIGCHLD back may take it, and then nothing says that the command has ended.
_LOOK_SECONDS: Final = 1.0
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126


def run_child(words: tuple[str, ...], environment: Mapping[str, str], mask: set[int]) -> int:
    """Run the command, which gets ``mask``. Returns its wait status. Requires: :data:`WAITED_FOR` is held back.

    Signals are fetched, because a handler would not see which process sent them.
    """
    try:
        child = _spawn(words, environment, mask)
    except OSError as error:
        say(f"{words[0]}: {error.strerror}")
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
    while True:
        info = signal.sigtimedwait(WAITED_FOR, _LOOK_SECONDS)
        if info is not None and info.si_signo != signal.SIGCHLD:
            _pass_on(info, child)
            continue
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            return status


def _pass_on(info: signal.struct_siginfo, child: int) -> None:
    # The kernel's number is above 0: a key was pressed, a terminal went, or the alarm rings that was set before exec.
    if info.si_code > 0 and info.si_signo in _OF_THE_KEYBOARD:
        return
    with contextlib.suppress(PermissionError):  # it became another user
        os.kill(child, info.si_signo)


def _spawn(words: tuple[str, ...], environment: Mapping[str, str], mask: set[int]) -> int:
    """Start the command as a shell would. Returns its process ID."""
    # Python ignores these two; programs rely on being ended by the first.
    undone = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawnp(words[0], words, environment, setsigmask=mask, setsigdef=undone)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script that does not name its interpreter.
    script = shutil.which(words[0]) or words[0]
    return os.posix_spawn("/bin/sh", ["sh", script, *words[1:]], environment, setsigmask=mask, setsigdef=undone)


def end_as(status: int) -> int:
    """Returns the exit code for a wait status, like a shell: 128 + the number of the signal that killed the command."""
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGINT:  # so that a shell's loop ends too
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code if code >= 0 else 128 - code
