"""Verification over time: every entry of a directory is verified again and again, at a bounded rate.

Promises a bounded share of the processor and the disk, and that what is corrupt is put out of the way.

May use: observe, pace, stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.scrub.part import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "part": "make_scrubber scrub_once",
        },
    )
