"""Bytes: what is accounted for, what the disk holds, what programs counted, the policy, and the daemon that keeps it.

Promises one definition of what an entry counts for (:func:`measure_shard`), for writers, the daemon and operators
alike, and a state page whose sum never says less than the disk holds, as long as locks work.

May use: policy, disk.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.accounting.counters import Counters, CountersReport, Report, read_counters, read_since
    from lockcache.filestream.accounting.counters import report_at_end, reset_counters
    from lockcache.filestream.accounting.daemon_status import keeper_of, read_status
    from lockcache.filestream.accounting.head import HEAD_BYTES, NOT_COUNTED, Head, decode_head, encode_head
    from lockcache.filestream.accounting.measure import Drift, Spread, accounted, find_drift, measured, spread, staged
    from lockcache.filestream.accounting.misses import Miss, read_misses
    from lockcache.filestream.accounting.network_pages import NfsPage, ReopenedPage
    from lockcache.filestream.accounting.page import CountersPage
    from lockcache.filestream.accounting.parallel_reads import read_ahead
    from lockcache.filestream.accounting.run_counts import RunCounts, counts_of_run, note_own_cache
    from lockcache.filestream.accounting.run_record import RUN_HEAD, RUN_VARIABLE, RunPart, append_parts
    from lockcache.filestream.accounting.run_record import note_missing_parts, read_run
    from lockcache.filestream.accounting.scan import ANY_TIME_NS, Found, ShardFolders, bytes_beside, bytes_of_entry
    from lockcache.filestream.accounting.scan import bytes_on_disk, count_shard, folder_bytes, has_entry, measure_shard
    from lockcache.filestream.accounting.scan import names_in, quarantined_files, scan_records, scan_shard, scan_views
    from lockcache.filestream.accounting.scan import staged_files
    from lockcache.filestream.accounting.state import (
        FILE_BYTES,
        PAGE_BYTES,
        Slot,
        StatedPolicy,
        StatePage,
        bytes_in,
        encode_page,
    )
    from lockcache.filestream.accounting.state import (
        folder_of,
        head_of,
        is_of,
        read_state,
        replace_state,
        slots_in,
        space_of,
        total_of,
    )
    from lockcache.filestream.accounting.state import write_state
    from lockcache.filestream.accounting.summary import saved_in_words
else:
    __getattr__, __dir__ = door(__name__)
