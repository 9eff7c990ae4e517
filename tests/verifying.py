# SPDX-License-Identifier: Apache-2.0
"""Verification of a whole shard, for tests."""

from __future__ import annotations

from collections.abc import Iterator

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.repair.verify import OwnEntries, Verdict, verify_entry


def verify_shard(directory: CacheDirectory, shard: int, *, repair: bool = False) -> Iterator[Verdict]:
    """Yields a verdict for each entry of a shard that is still there when it is verified."""
    for name in OwnEntries(directory).names(shard):
        verdict = verify_entry(directory, name, repair=repair)
        if verdict is not None:
            yield verdict
