# SPDX-License-Identifier: Apache-2.0
"""Inspection: what entries are and what a directory holds, for people, without counting as a use.

Promises that what is inspected is not changed, but for what an operator selects and evicts, and the ring of misses. A
program that only reads and writes loads nothing of it.

May use: accounting, directory, disk, entry, eviction.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.inspect.daemon_status import keeper_of, read_status
    from lockcache.filestream.inspect.describe import FLAWS, UNKNOWN, Described, Read, Statement, Sums, add_sums
    from lockcache.filestream.inspect.describe import describe_bytes, describe_entry, find_entry, sum_up
    from lockcache.filestream.inspect.describe import find_names, flaw_of, name_namespace, read_entry, read_note
    from lockcache.filestream.inspect.describe import read_statement
    from lockcache.filestream.inspect.measure import Drift, Spread, accounted, find_drift, measured, spread, staged
    from lockcache.filestream.inspect.misses import Miss, add_misses_locked, read_misses
    from lockcache.filestream.inspect.nearest import Nearest, Neighbour, Search, Subject, consider_all, consider_seed
    from lockcache.filestream.inspect.nearest import find_nearest
    from lockcache.filestream.inspect.parallel_reads import read_ahead
    from lockcache.filestream.inspect.select import Census, Selection, select_among, choose_selected, evict_selected
    from lockcache.filestream.inspect.select import least_recent, select_counted, select_entries
else:
    __getattr__, __dir__ = door(__name__)
