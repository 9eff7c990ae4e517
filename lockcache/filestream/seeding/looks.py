"""Looks at a seed's file: when a process of this host compared it last with the directory's copy."""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

from lockcache.filestream.disk import READ, Layout, open_below

__all__ = ["Look", "was_looked_at"]

_LOOKED_SECONDS: Final = 60.0


class Look(NamedTuple):
    """A look at a file."""

    path: str
    #: The cap that it has to fit.
    cap: int | None
    #: Whether only signed entries are served, so that it may be anybody's.
    is_signed: bool

    def end(self, layout: Layout) -> None:
        """State that somebody looked. Requires: the seed's lock."""
        with open_below(layout, layout.seed_lock, READ) as fd:
            os.utime(fd)


def was_looked_at(layout: Layout) -> bool:
    """Whether a process of this host looked at the seed's file within the last minute."""
    try:
        looked = os.stat(layout.seed_lock, follow_symlinks=False).st_mtime
    except OSError:
        return False
    # Nor in the future, by a clock that was set back.
    return 0 <= time.time() - looked < _LOOKED_SECONDS
