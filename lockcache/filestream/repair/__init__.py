# SPDX-License-Identifier: Apache-2.0
"""Repair: recounting what the accounting has wrong, reaping what dead writers left, verifying and quarantining entries.

Promises invariant 5 (death is free) together with :mod:`..accounting`: whatever killed processes leave is found and
given back, by any process, and nothing that a living one owns is touched.

May use: accounting, compile_once, directory, disk, entry.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.repair.abandoned import look_at_staged
    from lockcache.filestream.repair.quarantine import empty_quarantine, measure_quarantine, trim_quarantine
    from lockcache.filestream.repair.recount import Repair, reap, recount_all, recount_drifted, recount_shard
    from lockcache.filestream.repair.recount import recount_unless_busy
    from lockcache.filestream.repair.verify import OwnEntries, Verdict, Verifiable, verify_in_steps
else:
    __getattr__, __dir__ = door(__name__)
