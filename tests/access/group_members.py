"""Two real users of one real group, and what each does in a process of its own.

The processes are forked, with everything imported that they will want: the interpreter may lie where no other user may
go (in root's home), so that they could neither start it nor import from it.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from lockcache import FileStreamProgramCache
from tests.programs import import_all

_T = TypeVar("_T")

# Numbers that no account here has: the kernel knows no others, and nothing has to be added to the system.
GROUP: Final = 54321
ALICE: Final = 54001
BOB: Final = 54002
#: No member of the group.
MALLORY: Final = 54003


def become(uid: int) -> None:
    """Be that user, for good: for a child."""
    os.setgroups([GROUP] if uid in (ALICE, BOB) else [])
    os.setgid(uid)
    os.setuid(uid)


def as_member(path: Path, use: Callable[[FileStreamProgramCache], _T], **arguments: Any) -> Callable[[], _T]:
    """Returns what a member does with the cache at ``path``, as a function for :func:`run_as`."""

    def work() -> _T:
        with FileStreamProgramCache(path, group=True, **arguments) as cache:
            return use(cache)

    return work


def run_as(uid: int, work: Callable[[], _T], *, umask: int = 0o077) -> _T:
    """Returns the result of ``work`` in a child that is ``uid``; an error of it is raised here."""
    import_all()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        outcome: tuple[bool, Any] = (False, None)
        try:
            become(uid)
            os.umask(umask)
            outcome = (True, work())
        except BaseException as error:  # noqa: BLE001 - it is the parent's
            traceback.print_exc()
            outcome = (False, error)
        finally:
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(outcome, pipe)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        blob = pipe.read()
    os.waitpid(child, 0)
    is_well, result = pickle.loads(blob)
    if not is_well:
        raise result
    return result


@contextmanager
def start_as(uid: int, work: Callable[[], object]) -> Iterator[int]:
    """Yields the pid of a child that is ``uid``, has done ``work`` and then waits. Killed at the end, if it lives."""
    import_all()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become(uid)
            os.umask(0o077)
            work()
            os.write(writer, b"done")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    try:
        assert os.read(reader, 4) == b"done"
        yield child
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextmanager
def run_meanwhile_as(uid: int, work: Callable[[], object]) -> Iterator[int]:
    """Yields the pid of a child that is ``uid`` and at ``work``, for as long as the block lasts. Killed at the end."""
    import_all()
    child = os.fork()
    if child == 0:
        try:
            become(uid)
            os.umask(0o077)
            work()
        finally:
            os._exit(1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
