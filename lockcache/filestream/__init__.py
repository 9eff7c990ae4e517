# SPDX-License-Identifier: Apache-2.0
"""The file-stream store: a directory of compiled programs that any number of processes share.

Promises the parts that :mod:`lockcache.composition` joins, and the seven invariants of ``docs/design.md``: a hit is
whole, the last write wins, the cap is a cap, readers never wait, death is free, locks coordinate and nothing rests on
them, the cache never takes the job down. It knows nothing of servers. Programs that inspect, keep or repair directories
use :mod:`lockcache.lowlevel`.

Rooms, each of which uses only those before it: disk, bundle_format, policy, accounting, seed_marks, directory_policy,
directory, entry, bundle, compile_once, repair, eviction, admission, seeding, writer, viewer, inspect. Next to them is
output: files that users name.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.admission import apply_policy
    from lockcache.filestream.bundle_format import START_BYTES, begins
    from lockcache.filestream.bundle_format import EntryHead, Place, bundle_bytes, entry_bytes
    from lockcache.filestream.closures import ClosureFile
    from lockcache.filestream.directory import CacheDirectory
    from lockcache.filestream.entry import ViewPath
    from lockcache.filestream.output import WAIT_FOR_TURN_SECONDS, open_output, turn_to_replace
    from lockcache.filestream.policy import PRIORITIES, PRIORITY_WORDS, Policy, Priority, Seed, configured_priority
    from lockcache.filestream.seed_marks import has_seed
    from lockcache.filestream.seeding import attach_seed, detach_if_too_large, detach_seed, largest_bundle_bytes
    from lockcache.filestream.seeding import replace_policy
    from lockcache.filestream.viewer import Viewer
    from lockcache.filestream.writer import EntryWriter, Outcome, Writer, Written
else:
    __getattr__, __dir__ = door(__name__)
