# SPDX-License-Identifier: Apache-2.0
"""The ranks of a node: of the processes that a launcher starts there, the first one does what is done once, and one is
the last to end.

The launcher's variables tell which is the first. The last is whichever finds no other in a lock that all of them share.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from typing import Final

from lockcache.filestream.disk import UPDATE, Descriptor
from lockcache.lowlevel import Layout

# The variables of srun, mpiexec (Open MPI, MPICH, Intel MPI) and torchrun with this process's number on its node.
_VARIABLES: Final = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "LOCAL_RANK")
# Those that name the job: of PMIx (Open MPI), and of srun, whose ranks may be started by shells.
_JOBS: Final = (("PMIX_NAMESPACE",), ("SLURM_JOB_ID", "SLURM_STEP_ID"))
# The value that some launchers set without ranks.
_NO_RANK: Final = "-1"

_MOMENT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.01


def is_rank() -> bool:
    """Returns whether a launcher started this process, and maybe others on this node."""
    return bool(_numbers())


def is_first() -> bool:
    """Returns whether no other rank of this node has a smaller number."""
    return _numbers() <= {"0"}


def _numbers() -> set[str]:
    return {os.environ.get(name, _NO_RANK) for name in _VARIABLES} - {_NO_RANK}


def name_job() -> Sequence[str]:
    """Returns what the ranks of one job on this node have in common, and those of another job have not.

    Where the launcher does not name the job, that is the process which started all of its ranks here.
    """
    for names in _JOBS:
        found = [os.environ.get(name, "") for name in names]
        if all(found):
            return found
    return [str(os.getppid())]


class Leaving:
    """The state of a :func:`staying` block."""

    #: Whether the other processes know of this one.
    is_shared = False
    #: Whether this process was the last one, once it has ended.
    is_last = False


@contextlib.contextmanager
def staying(layout: Layout, name: str) -> Iterator[Leaving]:
    """Count this block among those of ``name`` on this host. :attr:`Leaving.is_last` marks the last one to end.

    All blocks share a lock, which the kernel releases for a killed process. If several blocks end at once, one of them
    is the last. Where locks do not work, or the directory may not be written, none is the last.
    """
    leaving, lock = Leaving(), Descriptor()
    with contextlib.suppress(OSError):
        _open(layout, name, lock)
        share(lock.number)
        leaving.is_shared = True
    try:
        yield leaving
    finally:
        with contextlib.suppress(OSError, ValueError):
            # The kernel releases the shared lock first. So of two processes that arrive here at once, the later one
            # finds no other holder.
            fcntl.flock(lock.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leaving.is_last = True
        lock.close()


def wait_for_last(layout: Layout, name: str) -> None:
    """Return when no block of :func:`staying` of that ``name`` is left. Raises :class:`OSError`.

    A process that ends at that moment may then not count as the last one: callers that wait for a name do not use that.
    """
    with contextlib.closing(Descriptor()) as lock:
        _open(layout, name, lock)
        fcntl.flock(lock.number, fcntl.LOCK_EX)


def _open(layout: Layout, name: str, lock: Descriptor) -> None:
    layout.reach.make_folder(layout.locks)
    layout.reach.open_or_create(f"{layout.locks}/{name}", UPDATE, lock)


def share(fd: int) -> None:
    """Take the lock, shared with others. Waits for a process that ends and holds it alone for a moment, but no longer.

    Raises :class:`OSError`.
    """
    until = time.monotonic() + _MOMENT_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS)
