# SPDX-License-Identifier: Apache-2.0
"""Frameworks in the GPU kit: their rows, the processes that use them, and their kernels, each with its right result.

Promises that a framework that does not run here is a row that is not run, with the reason; and that ``*_source`` and
``inductor_program`` are imported only where the framework is.

May use: gpu, processes, run, trouble, zipf.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.gpu_kit.frameworks.inductor_row import run_inductor, why_no_inductor
    from lockcache_stress.experiments.gpu_kit.frameworks.rows import FRAMEWORKS, SHARED, run_framework, run_shared

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
