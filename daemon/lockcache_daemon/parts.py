"""What else the daemon does for each directory, as its settings say. The one place where such things are added."""

from __future__ import annotations

from functools import partial

from lockcache_daemon.scrubber import make_scrubber
from lockcache_daemon.settings import DirectorySettings, Settings
from lockcache_daemon.store import MakePart
from lockcache_daemon.watching import Watching

__all__ = ["parts_for"]


def parts_for(settings: Settings, directory: DirectorySettings) -> tuple[MakePart, ...]:
    """In the order in which they have their turn."""
    scrub = partial(make_scrubber, rate_bytes=directory.scrub_rate)
    return scrub, partial(Watching, seeks_standouts=settings.metrics is not None)
