"""Frameworks with caches of their own, which lockcache-daemon keeps under a cap while their kernels are launched.

Each framework is imported only in the processes that use it. Promises that a framework which is missing or too old is
said, and is not a failure.

May use: gpu, processes, run, trouble, zipf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.gpu_kit.frameworks.framework import *
    from lockcache_stress.experiments.gpu_kit.frameworks.running import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "framework": "Framework",
            "running": "FRAMEWORKS run_framework",
        },
    )
