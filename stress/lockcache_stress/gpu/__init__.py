"""Kernels, NVRTC and the GPU: sources, reference cubins, and launching what was read.

Promises reference bytes that no cache was involved in.

May use: processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.gpu.kernels import *
    from lockcache_stress.gpu.launch import *
    from lockcache_stress.gpu.nvrtc import *

__getattr__, __dir__ = door(
    __name__,
    {
        "kernels": "Slot make_slots",
        "launch": "Launcher find_arch",
        "nvrtc": "References compile_cubin compile_references has_nvrtc program_key supported_archs",
    },
)
