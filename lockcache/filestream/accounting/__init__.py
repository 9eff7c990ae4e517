"""Bytes: what is accounted for, what the disk holds, what programs counted, and the daemon that keeps it.

Promises one definition of what an entry counts for (:func:`measure_shard`), for writers, the daemon and operators
alike, and a usage page whose sum never says less than the disk holds, as long as locks work.

May use: disk.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.accounting.counters import *
    from lockcache.filestream.accounting.daemon_status import *
    from lockcache.filestream.accounting.measure import *
    from lockcache.filestream.accounting.misses import *
    from lockcache.filestream.accounting.page import *
    from lockcache.filestream.accounting.parallel_reads import *
    from lockcache.filestream.accounting.run_counts import *
    from lockcache.filestream.accounting.run_record import *
    from lockcache.filestream.accounting.scan import *
    from lockcache.filestream.accounting.summary import *
    from lockcache.filestream.accounting.usage import *
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "counters": "Counters CountersReport Report read_counters read_since report_at_end reset_counters",
            "daemon_status": "keeper_of read_status",
            "measure": "Drift Spread accounted find_drift measured spread staged",
            "misses": "Miss read_misses",
            "page": "CountersPage",
            "run_counts": "RunCounts counts_of_run note_own_cache",
            "run_record": "RUN_HEAD RUN_VARIABLE RunPart append_parts note_missing_parts read_run",
            "scan": (
                "ANY_TIME_NS Found ShardFolders bytes_beside bytes_of_entry bytes_on_disk count_shard folder_bytes "
                "has_entry measure_shard names_in quarantined_files scan_records scan_shard scan_views staged_files"
            ),
            "summary": "saved_in_words",
            "usage": "NfsPage ReopenedPage Slot UsagePage encode_page total_of",
            "parallel_reads": "read_ahead",
        },
    )
