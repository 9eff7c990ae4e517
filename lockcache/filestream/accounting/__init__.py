# SPDX-License-Identifier: Apache-2.0
"""Bytes: what is accounted for, what the disk holds, what programs counted, and the policy.

Promises one definition of what an entry counts for (:func:`measure_shard`), for writers, the daemon and operators
alike, and a state page whose sum never says less than the disk holds, as long as locks work.

May use: policy, disk.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.accounting.ages import Ages
    from lockcache.filestream.accounting.change import ShardChange
    from lockcache.filestream.accounting.counters import SECTOR_BYTES, CountersCodec, HeldCounters, read_counters
    from lockcache.filestream.accounting.counters import read_since
    from lockcache.filestream.accounting.head import HEAD_BYTES, NOT_COUNTED, Head, decode_head, encode_head
    from lockcache.filestream.accounting.network_pages import NfsPage, ReopenedPage
    from lockcache.filestream.accounting.pages import FirstCount, open_page, part_from_original
    from lockcache.filestream.accounting.run_counts import RunCounts, counts_of_run, note_own_cache
    from lockcache.filestream.accounting.run_record import RUN_HEAD, RUN_VARIABLE, RunPart, append_parts
    from lockcache.filestream.accounting.run_record import note_missing_parts, read_run
    from lockcache.filestream.accounting.scan import ANY_TIME_NS, Found, ShardFolders, bytes_beside, count_shard
    from lockcache.filestream.accounting.scan import has_entry, measure_shard, measure_shard_in_full, names_in
    from lockcache.filestream.accounting.scan import quarantined_files, scan_records, scan_shard, scan_views
    from lockcache.filestream.accounting.scan import staged_files
    from lockcache.filestream.accounting.state import FILE_BYTES, PAGE_BYTES, Slot, StatePage, Sums, bytes_in
    from lockcache.filestream.accounting.state import encode_page, folder_of, head_of, is_of, read_state, replace_state
    from lockcache.filestream.accounting.state import slots_in, space_of, sums_in, total_of, write_state
    from lockcache.filestream.accounting.stated_policy import GuestPolicy, StatedPolicy
    from lockcache.filestream.accounting.worth import UNKNOWN, Worth, read_worth
else:
    __getattr__, __dir__ = door(__name__)
