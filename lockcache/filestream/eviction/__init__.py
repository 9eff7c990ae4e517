# SPDX-License-Identifier: Apache-2.0
"""Eviction: chooses entries and removes them to make room.

Promises the evictor's half of invariant 3 (hard cap): no more goes than is needed plus a small batch, one shard lock is
held at a time, and an entry that was used since it was chosen stays. Which entries go first is decided in one place.

May use: accounting, directory, disk, entry, policy, repair.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.eviction.choose import BATCH_SHARE, Choice, Goal, Need, choose_victims
    from lockcache.filestream.eviction.choose import first_enough
    from lockcache.filestream.eviction.evict import all_entries, choose_of_all, evict_to_limit, sweep
    from lockcache.filestream.eviction.pins import MOST_PINS, TooManyPinsError, change_pins, most_pinned_bytes
    from lockcache.filestream.eviction.pins import pinned_bytes, pinned_sizes, protected
    from lockcache.filestream.eviction.pins import stated_limit_bytes, unpinned
    from lockcache.filestream.eviction.remove import Evicted, remove_victims
    from lockcache.filestream.eviction.value import Ranked, rank
else:
    __getattr__, __dir__ = door(__name__)
