# SPDX-License-Identifier: Apache-2.0
"""Telemetry: what a process counts and compiles, for OpenTelemetry and for profilers that read NVTX.

Loaded only where a program calls it or ``$LOCKCACHE_TELEMETRY`` names it. Promises that nothing is counted twice: the
counters are those of the process's reports, read when a reader of OpenTelemetry asks; that a hit does nothing for it;
and that what is missing or fails here costs a line in the log, and no program its kernel (invariant 7, never take the
job down).

May use: serving, reports, arguments, sizes.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.telemetry.asked import configured_telemetry, obey
    from lockcache.telemetry.nvtx import mark_ranges
    from lockcache.telemetry.opentelemetry import export_counters
else:
    __getattr__, __dir__ = door(__name__)
