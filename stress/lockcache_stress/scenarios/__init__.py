# SPDX-License-Identifier: Apache-2.0
"""Scenarios: workers on one directory and what is made to go wrong there, one module each.

Promises that each carries its own settings and checks, in its ``SCENARIO``; :mod:`.registry` lists them.

May use: errors, gpu, judge, plan, run, trouble, zipf.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.scenarios.registry import BYTE_SCENARIOS, NVRTC_STEP, TROUBLE_SCENARIOS

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
