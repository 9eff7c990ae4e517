"""As same-key, with the records in separate files: payload and record are then two renames, and one unit.

Proves invariants 1 and 2 where the file system has no extended attributes.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario
from lockcache_stress.scenarios.same_key import make_step

__all__ = ["SCENARIO"]

SCENARIO = Scenario(
    "record-files",
    "every process writes and reads one key, its record in a file of its own",
    make_step,
    processes=8,
    max_size_bytes=8 * MIB,
    keys=1,
    extra={"cache": {"record_files": True}},
)
