"""The scenarios, one module each."""

from __future__ import annotations

from typing import Final

from lockcache_stress.plan import Scenario
from lockcache_stress.scenarios import (
    big_values,
    distinct_keys,
    evict_rewrite,
    kill,
    overshoot,
    reader_writer,
    recency,
    record_files,
    rot,
    same_key,
    single_flight,
    takeover,
)

__all__ = ["BYTE_SCENARIOS"]

#: Those that need nothing but a file system, in the order in which ``all`` runs them.
BYTE_SCENARIOS: Final[tuple[Scenario, ...]] = (
    same_key.SCENARIO,
    distinct_keys.SCENARIO,
    reader_writer.SCENARIO,
    evict_rewrite.SCENARIO,
    kill.SCENARIO,
    big_values.SCENARIO,
    overshoot.SCENARIO,
    record_files.SCENARIO,
    rot.SCENARIO,
    recency.SCENARIO,
    single_flight.SCENARIO,
    takeover.SCENARIO,
)
