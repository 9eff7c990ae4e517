# SPDX-License-Identifier: Apache-2.0
"""Freshness of a seed: which file a process of this host compared last with the directory's copy, and when.

Bundles exist so that not every rank asks their file system. So a process that looked at the file states this in the
lock file of seeds: the path, what else decides, and whether the directory has that file's copy now. Within a minute no
process looks again, neither at a file that was copied, nor at one that cannot be copied. A missing file is looked for
each time.

Keeps invariant 5 (death is free): a check counts once it has ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import Final, NamedTuple

from lockcache.filestream.disk import READ, UPDATE, Layout, is_alone

__all__ = ["FreshnessCheck", "is_stuck", "was_checked", "was_refused"]

_LOOKED_SECONDS: Final = 60.0

_BEGUN: Final = b"?"
_ATTACHED: Final = b"+"
_REFUSED: Final = b"-"
_DIGEST_BYTES: Final = 32


class FreshnessCheck(NamedTuple):
    """The comparison of a file with the directory's copy."""

    path: str
    #: The cap that it has to fit.
    cap: int | None
    #: Whether only signed entries are served, so that any user may own the file.
    is_signed: bool

    def begin(self, layout: Layout) -> None:
        """State which file is looked at: at the end there may be no block for it. Requires: the seed's lock."""
        self._state(layout, _BEGUN)

    def end(self, layout: Layout, *, is_attached: bool) -> None:
        """State how it ended. Requires: the seed's lock."""
        self._state(layout, _ATTACHED if is_attached else _REFUSED)

    def _state(self, layout: Layout, how: bytes) -> None:
        # If this cannot be stated, the next process looks again.
        with contextlib.suppress(OSError), layout.reach.open(layout.seed_lock, UPDATE) as fd:
            if is_alone(fd):  # else the file has another name, which somebody planted
                os.pwrite(fd, self._of_path() + self._of_rest() + how, 0)

    def _of_path(self) -> bytes:
        return _digest(os.fsencode(self.path))

    def _of_rest(self) -> bytes:
        return _digest(b"%s %d" % (str(self.cap).encode(), self.is_signed))


def is_stuck(layout: Layout) -> bool:
    """Returns whether a process began with a file more than a minute ago and has not ended.

    It was stopped, or the file is on a file system that hangs. A process that died holds no lock any more.
    """
    stated, age_seconds = _read_state(layout)
    return stated[2 * _DIGEST_BYTES :] == _BEGUN and abs(age_seconds) >= _LOOKED_SECONDS


def was_checked(layout: Layout, check: FreshnessCheck) -> bool:
    """Returns whether the file was copied, or found unchanged since its copy, within the last minute."""
    stated = _stated(layout)
    return stated[:_DIGEST_BYTES] == check._of_path() and stated[2 * _DIGEST_BYTES :] == _ATTACHED


def was_refused(layout: Layout, check: FreshnessCheck) -> bool:
    """Returns whether the same request found the file unusable within the last minute."""
    return _stated(layout) == check._of_path() + check._of_rest() + _REFUSED


def _stated(layout: Layout) -> bytes:
    """Returns what the last check stated; empty if it is older than a minute."""
    stated, age_seconds = _read_state(layout)
    # Not if it is in the future, by a clock that was set back.
    return stated if 0 <= age_seconds < _LOOKED_SECONDS else b""


def _read_state(layout: Layout) -> tuple[bytes, float]:
    """Returns what was stated last, and how long ago."""
    try:
        with layout.reach.open(layout.seed_lock, READ) as fd:
            return os.pread(fd, 2 * _DIGEST_BYTES + 1, 0), time.time() - os.fstat(fd).st_mtime
    except OSError:
        return b"", 0.0


def _digest(what: bytes) -> bytes:
    return hashlib.sha256(what).hexdigest()[:_DIGEST_BYTES].encode()
