# SPDX-License-Identifier: Apache-2.0
"""The record of a run: the file in which the processes of the command count, made before it and read after it.

All ranks of one job on a node share a file, in the directory, where processes in other containers find it too. The last
of them to end reads and removes it. Where the directory may not be written, each rank has one of its own, in a private
temporary folder.

Keeps invariant 5 (death is free): the file is locked by those who will read it, so what killed ones left is recognised
and removed by a later run. Keeps invariant 7 (never take the job down): where there can be no file, the command runs
without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Final

from lockcache.cli.running.ranks import is_first, is_rank, name_job, share
from lockcache.errors import in_words
from lockcache.filestream.accounting import RUN_HEAD, RUN_VARIABLE, RunPart, append_parts, note_missing_parts, read_run
from lockcache.filestream.disk import (
    UPDATE,
    Descriptor,
    age_seconds_of,
    is_alone,
    myself,
    open_folder,
)
from lockcache.lowlevel import Layout

_log = logging.getLogger("lockcache")

# Of a file that the last rank of another job removes at that moment.
_ATTEMPTS: Final = 10
# Where locks exclude nobody, a file that was not written for so long is nobody's.
_ABANDONED_SECONDS: Final = 86_400.0
_MOST_REAPED: Final = 100


class RecordedRun:
    """The record of one run, in the eyes of one rank."""

    def __init__(self, layout: Layout, words: Sequence[str], *, is_read_only: bool) -> None:
        """Make the record. ``is_read_only``: not in the directory, which the command only reads."""
        self._layout: Layout | None = layout
        self._lock = Descriptor()
        self._folder = self._path = ""
        #: What the processes counted, once they ended; ``None``: a later rank reads it, or nobody can.
        self.parts: list[RunPart] | None = None
        #: Why it is not known what they did; empty otherwise.
        self.why_unknown = ""
        try:
            if not is_read_only:
                self._make_shared(layout, words)
        except OSError as error:
            _log.debug("%s: no record of the run there: %s", layout.root, error)
        if not self._path:
            self._make_private()

    @property
    def variables(self) -> dict[str, str]:
        """The variable by which the command's processes find the record."""
        return {RUN_VARIABLE: self._path} if self._path else {}

    @property
    def is_last(self) -> bool:
        """Whether this rank speaks for the others, once the run has ended."""
        return self.parts is not None and (self._layout is not None or is_first())

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Run the command in this block; at its end :attr:`parts` are read, and the record is removed."""
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._end()
            self._lock.close()
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        if not self._path:
            return
        if self._layout is not None:
            # Raises while another rank runs: see :func:`.ranks.staying`.
            fcntl.flock(self._lock.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            self.parts = read_run(self._layout, self._path)
        except OSError as error:
            self.parts, self.why_unknown = [], in_words(error)
        if self._layout is not None:
            self._layout.reach.unlink(self._path)
        outer = os.environ.get(RUN_VARIABLE)
        if outer:  # of a ``lockcache run`` around this one, whose processes these are as well
            append_parts(outer, self.parts)
            if self.why_unknown:
                note_missing_parts(outer)

    def _make_shared(self, layout: Layout, words: Sequence[str]) -> None:
        layout.reach.make_folder(layout.runs)
        _reap(layout)
        path = f"{layout.runs}/{_name_of(words)}"
        for _ in range(_ATTEMPTS):
            lock = Descriptor()
            try:
                layout.reach.open_or_create(path, UPDATE, lock)
                _begin(lock.number)
                if _is_at(layout, lock.number, path):
                    self._lock, self._path = lock, path
                    return
            finally:
                if self._lock is not lock:
                    lock.close()
        raise BlockingIOError(f"{path} is removed again and again")

    def _make_private(self) -> None:
        self._layout = None
        try:
            self._folder = tempfile.mkdtemp(prefix="lockcache-run-")
            path = os.path.join(self._folder, "record")
            with open(path, "xb") as file:
                file.write(RUN_HEAD)
            self._path = path
        except OSError as error:
            self.parts, self.why_unknown = [], in_words(error)


def _name_of(words: Sequence[str]) -> str:
    """Returns the name that all ranks of this job on this node, and no others, give to their record."""
    if not is_rank():
        return secrets.token_hex(16)
    parts = [myself().host, str(os.geteuid()), *name_job(), *words]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def _begin(fd: int) -> None:
    """Take the lock, shared with the other ranks. The first one begins the file, which a killed run may have left.

    Raises :class:`OSError`.
    """
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_alone(fd):
            raise FileExistsError("not a record of a run")
        os.ftruncate(fd, 0)
        os.pwrite(fd, RUN_HEAD, 0)
    share(fd)


def _is_at(layout: Layout, fd: int, path: str) -> bool:
    """Returns whether an open file still has its name: the last rank of another job may have removed it."""
    try:
        with layout.reach.open(path, UPDATE) as now:
            return os.path.samestat(os.fstat(now), os.fstat(fd))
    except FileNotFoundError:
        return False


def _reap(layout: Layout) -> None:
    """Remove what killed runs left, a day after its last change."""
    with contextlib.suppress(OSError), open_folder(layout.root, "lockcache", "runs") as folder_fd:
        for name in os.listdir(folder_fd)[:_MOST_REAPED]:
            if age_seconds_of(folder_fd, name) > _ABANDONED_SECONDS:
                with contextlib.suppress(OSError), layout.reach.open(f"{layout.runs}/{name}", UPDATE) as fd:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=folder_fd)
