# SPDX-License-Identifier: Apache-2.0
"""Two real users of one real group, each of whom works in a process of its own.

The processes are forked after all imports, because the interpreter may be in a folder that other users may not enter
(such as root's home), so that they could neither start it nor import from it.
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

# Numbers that no account of the system has. The kernel knows users only by their numbers, so no account is needed.
GROUP: Final = 54321
ALICE: Final = 54001
BOB: Final = 54002
#: A user who is not a member of the group.
MALLORY: Final = 54003


def become(uid: int) -> None:
    """Change this process, which must be a child, to that user for good."""
    os.setgroups([GROUP] if uid in (ALICE, BOB) else [])
    os.setgid(uid)
    os.setuid(uid)


def as_member(path: Path, use: Callable[[FileStreamProgramCache], _T], **arguments: Any) -> Callable[[], _T]:
    """Returns a function for :func:`run_as` that uses the cache at ``path`` as a member of the group."""

    def work() -> _T:
        with FileStreamProgramCache(path, group=True, **arguments) as cache:
            return use(cache)

    return work


def run_as(uid: int, work: Callable[[], _T], *, umask: int = 0o077) -> _T:
    """Returns the result of ``work`` in a child that is ``uid``. Raises the child's error."""
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
    """Yields the pid of a child that is ``uid``, has done ``work`` and then waits. The block's end kills the child."""
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
    """Yields the pid of a child that is ``uid`` and does ``work`` meanwhile. The end of the block kills the child."""
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
