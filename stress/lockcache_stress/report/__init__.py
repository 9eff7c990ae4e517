# SPDX-License-Identifier: Apache-2.0
"""Reports of a run, on the terminal and as files, ``--report FILE.html`` and ``--junit FILE.xml``.

Promises that a file which cannot be had is refused before the run, so that an hour of work never ends in "not
installed" or "no such directory". Files need the ``report`` extra, which is imported only for runs that write files.

May use: bench, errors, gpu, judge, run.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.report.content import Ran, Written
    from lockcache_stress.report.files import Files
    from lockcache_stress.report.finish import finishing
    from lockcache_stress.report.terminal import print_bench, print_json, print_outcome, print_summary, print_tabled
    from lockcache_stress.report.terminal import print_replay, print_table, showing

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
