# SPDX-License-Identifier: Apache-2.0
"""Kill points: a forked child that SIGKILLs itself in front of its n-th call to the operating system, for each n.

To die in front of call n+1 is to die behind call n, so all n together leave every state on disk that a process which
dies between two calls can leave. (Deaths within a call: ``tests/crash/test_death_within_a_system_call.py``.)
"""

from __future__ import annotations

import os
import posix
import re
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import lockcache.filestream.accounting.state
import lockcache.filestream.compile_once.lease
import lockcache.filestream.disk.locks
import lockcache.filestream.disk.recency
import lockcache.filestream.entry.reservation

# fmt: off
_CALLS: Final = (
    "access", "chmod", "close", "fstat", "fsync", "ftruncate", "getxattr", "listdir", "lstat", "mkdir", "open", "pread",
    "pwrite", "read", "rename", "rmdir", "scandir", "setxattr", "stat", "unlink", "utime", "write",
)
# fmt: on
#: The calls that change the disk, for actions that list 256 shards, most of which are empty.
CHANGES: Final = ("ftruncate", "mkdir", "pwrite", "rename", "rmdir", "setxattr", "unlink", "write")
# Functions that their modules look up once, so that replacing them in `os` would have no effect there.
_BOUND: Final = [
    (lockcache.filestream.compile_once.lease, "lock_descriptor"),
    (lockcache.filestream.disk.locks, "lock_descriptor"),
    (lockcache.filestream.disk.locks, "unlock_descriptor"),
    (lockcache.filestream.entry.reservation, "lock_descriptor"),
    (lockcache.filestream.disk.recency, "_utime"),
    (lockcache.filestream.accounting.state, "_lstat"),
    (lockcache.filestream.accounting.state, "_pread"),
    (lockcache.filestream.accounting.state, "_pwrite"),
]
_PATHS: Final = {"rename": 2}
_DELETED: Final = re.compile(r" \(deleted\)$")

# Not os._exit, which coverage replaces by a function that writes files: its calls would count as steps of the action.
_exit: Final = posix._exit

_ENDING: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

# More calls than any action takes: a guard against an action that never ends.
_MOST_CALLS: Final = 5000


def deaths(prepare: Callable[[], Callable[[], object]], calls: Sequence[str] = ()) -> Iterator[str]:
    """Run an action up to its first call, to its second, and so on. Yields the call in front of which each child died.

    ``prepare`` is called in this process before each run and returns the action, which the child runs. Ends when a
    child completed the action. Only ``calls`` are counted, if any are given.
    """
    for number in range(1, _MOST_CALLS):
        died_at = die(prepare(), number, calls)
        if died_at is None:
            return
        yield f"call {number}: {died_at}"
    raise RuntimeError(f"the action does not end within {_MOST_CALLS} calls")


def die(action: Callable[[], object], number: int, calls: Sequence[str] = ()) -> str | None:
    """Run ``action`` in a child that dies in front of its ``number``-th call. Returns that call; ``None`` without one.

    The call comes with the paths of its files, also where it has their descriptors: ``rename(/a, /b)``.
    """
    receiver, sender = os.pipe()
    child = 0
    try:
        # Callbacks run around a fork (logging has one), and an error that a signal raises in a callback is lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            child = os.fork()
            if not child:
                os.close(receiver)
                _act_and_exit(action, number, calls, sender)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(sender)
        with open(receiver, "rb") as file:
            said = file.read().decode()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        # The signal that ends this process may not reach the child, which would write into a directory that is removed.
        if child:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        raise
    if status == -signal.SIGKILL:
        return said
    if status:
        raise RuntimeError(f"the action failed: {said}")
    return None


def _act_and_exit(action: Callable[[], object], number: int, calls: Sequence[str], sender: int) -> None:
    code = 1
    try:
        _arm(number, calls, sender)
        action()
        code = 0
    except BaseException:  # noqa: BLE001 - it is the parent's
        os.write(sender, traceback.format_exc().encode())
    finally:
        _exit(code)  # after any error too: the child must not return into its copy of the caller's stack


def _arm(number: int, calls: Sequence[str], sender: int) -> None:
    write, kill, me = os.write, os.kill, os.getpid()
    readlink = os.readlink
    left = number

    def arm(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                write(sender, f"{name}({', '.join(files_of(name, args, kwargs, readlink))})".encode())
                kill(me, signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    replace_calls(arm, calls)


def replace_calls(
    make: Callable[[str, Callable[..., Any]], Callable[..., Any]],
    calls: Sequence[str] = (),
    more: Sequence[tuple[Any, str]] = (),
) -> None:
    """Put ``make(name, call)`` in the place of each call that is a step, in this process, for good.

    Of ``calls`` alone, if any are given. ``more``: further functions that a module looked up, as the module and a name.
    """
    for name in calls or _CALLS:
        for function in (name, "closerange") if name == "close" else (name,):  # closerange closes, and reports no error
            setattr(os, function, make(name, getattr(os, function)))
    for module, bound in (*_BOUND, *more):
        name = bound.lstrip("_")
        if name in calls or not calls:
            # The function from the module, because the one in `os` is replaced by now and would count twice.
            setattr(module, bound, make(name, getattr(module, bound)))


def files_of(
    name: str, args: Sequence[Any], options: dict[str, Any], readlink: Callable[[str], str] = os.readlink
) -> list[str]:
    """Returns the paths of the files of a call, also where it has their descriptors."""
    return [_file(each, options, readlink) for each in args[: _PATHS.get(name, 1)]]


def _file(given: Any, options: dict[str, Any], readlink: Callable[[str], str]) -> str:
    """Returns the path of the file that a call names by its path or its descriptor."""
    if isinstance(given, int):
        return _DELETED.sub("", readlink(f"/proc/self/fd/{given}"))
    path = os.fspath(given)
    path = path.decode() if isinstance(path, bytes) else path
    folder = options.get("dir_fd", options.get("src_dir_fd"))
    return path if folder is None else f"{readlink(f'/proc/self/fd/{folder}')}/{path}"
