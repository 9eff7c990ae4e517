# SPDX-License-Identifier: Apache-2.0
"""Keys of compilations, tried with the real NVRTC: different where the output is, and the same where it can only be.

``pairs`` changes one thing of a compilation at a time, ``moves`` puts a program and its headers somewhere else.
``programs`` draws what is moved, ``places`` lays it down,
``tables`` judges. Promises that no directory is left when a run ends.

May use: gpu, run.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.keys.moves import Moved, try_moves
    from lockcache_stress.experiments.keys.pairs import Changed, Outcome, try_pairs
    from lockcache_stress.experiments.keys.programs import Names
    from lockcache_stress.experiments.keys.tables import moves_numbers, pairs_numbers, tabulate_moves, tabulate_pairs

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
