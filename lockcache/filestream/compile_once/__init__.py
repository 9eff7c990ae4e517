# SPDX-License-Identifier: Apache-2.0
"""Compile-once: of all callers that miss a key, in all processes, one computes and the others wait for its entry.

Promises that waiting ends: when the entry is published, when the holder dies or gives up, and at the latest when the
holder is overdue.

May use: accounting, disk, entry.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.compile_once.implicit import ImplicitTurns
    from lockcache.filestream.compile_once.lease import LeaseTurn, reap_lease
    from lockcache.filestream.compile_once.turns import CompileOnce
else:
    __getattr__, __dir__ = door(__name__)
