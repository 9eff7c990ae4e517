# SPDX-License-Identifier: Apache-2.0
"""Verification over time: every entry of a directory is verified again and again, at a bounded rate.

Promises a bounded share of the processor and the disk, and that corrupt entries go into quarantine.

May use: throttle, stores, settings.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.scrub.scrub import make_scrubber, scrub_once
else:
    __getattr__, __dir__ = door(__name__)
