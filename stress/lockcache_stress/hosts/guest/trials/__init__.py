# SPDX-License-Identifier: Apache-2.0
"""Trials on two hosts, one module each; each yields the numbers that it counted, and no verdict.

Promises that no process of a trial is left when it ends.

May use: plan, run.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.hosts.guest.trials.registry import RUNS

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
