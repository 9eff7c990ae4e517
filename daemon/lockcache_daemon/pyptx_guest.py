"""pyptx's directory as a walk needs it: what :class:`PyptxFiles` lacks, since no program but the daemon asks for it."""

from __future__ import annotations

import contextlib
import os

from lockcache.integrations.pyptx_files import PyptxFiles

__all__ = ["PyptxGuest"]


class PyptxGuest(PyptxFiles):
    """As :class:`.files.Files`. Its writers lock and stage, so that nothing has to settle before it may go."""

    settle_seconds = 0.0

    @property
    def is_pending(self) -> bool:
        """Never: what is evicted is gone at once."""
        return False

    def finish(self) -> bool:
        """Nothing is left to do after an eviction."""
        return False

    def glance(self) -> object:
        """All files are in one folder, and every write renames into it."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self.root).st_mtime_ns
        return 0
