"""Kill points: a forked child that SIGKILLs itself in front of its n-th call to the operating system, for each n.

Dying in front of call n+1 is dying behind call n, so going through all n leaves every state on disk that a process
which dies between two calls can leave. (What dies within one: ``tests/crash/test_death_within_a_system_call.py``.)
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

import lockcache.filestream.accounting.usage
import lockcache.filestream.compile_once.lease
import lockcache.filestream.disk.locks
import lockcache.filestream.disk.recency
import lockcache.filestream.entry.staging

# fmt: off
_CALLS: Final = (
    "access", "chmod", "close", "fstat", "fsync", "ftruncate", "getxattr", "listdir", "lstat", "mkdir", "open", "pread",
    "pwrite", "read", "rename", "rmdir", "scandir", "setxattr", "stat", "unlink", "utime", "write",
)
# fmt: on
#: The calls that change the disk: for actions that look into 256 shards, most of which are empty.
CHANGES: Final = ("ftruncate", "mkdir", "pwrite", "rename", "rmdir", "setxattr", "unlink", "write")
# Looked up once by the modules that call them, so that replacing them in `os` would not reach those.
_BOUND: Final = [
    (lockcache.filestream.compile_once.lease, "lock_descriptor"),
    (lockcache.filestream.disk.locks, "lock_descriptor"),
    (lockcache.filestream.disk.locks, "unlock_descriptor"),
    (lockcache.filestream.entry.staging, "lock_descriptor"),
    (lockcache.filestream.disk.recency, "_utime"),
    (lockcache.filestream.accounting.usage, "_lstat"),
    (lockcache.filestream.accounting.usage, "_pread"),
    (lockcache.filestream.accounting.usage, "_pwrite"),
]
_PATHS: Final = {"rename": 2}
_DELETED: Final = re.compile(r" \(deleted\)$")

# Not os._exit, in whose place coverage puts one that writes files: its calls would be steps of the action.
_exit: Final = posix._exit

_ENDING: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

# No action takes so many calls; a guard against an action that never ends.
_MOST_CALLS: Final = 5000


def deaths(prepare: Callable[[], Callable[[], object]], calls: Sequence[str] = ()) -> Iterator[str]:
    """Run an action to its first call, to its second, ...: yields what each child died in front of.

    ``prepare`` is called in this process before each run and returns the action, which runs in the child. Ends when a
    child came through without dying. Only ``calls`` are counted, if any are given.
    """
    for number in range(1, _MOST_CALLS):
        died_at = die(prepare(), number, calls)
        if died_at is None:
            return
        yield f"call {number}: {died_at}"
    raise RuntimeError(f"the action does not end within {_MOST_CALLS} calls")


def die(action: Callable[[], object], number: int, calls: Sequence[str] = ()) -> str | None:
    """Run ``action`` in a child that dies in front of its ``number``-th call; which that was, ``None`` if none.

    Described as the call and the files it is about, descriptors by what they are open on: ``rename(/a, /b)``.
    """
    receiver, sender = os.pipe()
    child = 0
    try:
        # Callbacks run around a fork (logging has one), and what a signal raises within one is lost.
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
        # It may know nothing of what ends us, and would go on writing into a directory that is being removed.
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
        _exit(code)  # whatever came: nothing may reach the caller's stack, of which this is a copy


def _arm(number: int, calls: Sequence[str], sender: int) -> None:
    write, kill, me = os.write, os.kill, os.getpid()
    readlink = os.readlink
    left = number

    def arm(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                files = ", ".join(_file(each, kwargs, readlink) for each in args[: _PATHS.get(name, 1)])
                write(sender, f"{name}({files})".encode())
                kill(me, signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    for name in calls or _CALLS:
        for function in (name, "closerange") if name == "close" else (name,):  # a close that reports no errors
            setattr(os, function, arm(name, getattr(os, function)))
    for module, bound in _BOUND:
        name = bound.lstrip("_")
        if name in calls or not calls:
            # From the module: what `os` has by now counts already.
            setattr(module, bound, arm(name, getattr(module, bound)))


def _file(given: Any, options: dict[str, Any], readlink: Callable[[str], str]) -> str:
    """Returns the path that a call is about."""
    if isinstance(given, int):
        return _DELETED.sub("", readlink(f"/proc/self/fd/{given}"))
    path = os.fspath(given)
    path = path.decode() if isinstance(path, bytes) else path
    folder = options.get("dir_fd", options.get("src_dir_fd"))
    return path if folder is None else f"{readlink(f'/proc/self/fd/{folder}')}/{path}"
