"""Kernels, NVRTC and the GPU: sources, reference cubins, and launches of cached code.

Promises reference bytes that were compiled without a cache, and that only ``machine`` touches the device.

May use: errors, processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.gpu.kernels import *
    from lockcache_stress.gpu.machine import *
    from lockcache_stress.gpu.nvrtc import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "kernels": "Kernel LAUNCHED Pair Slot Template compile_uncached find_runtime_headers make_pairs make_slots "
            "make_templates program_options",
            "machine": "Launcher NOT_INSTALLED describe_gpu describe_machine describe_versions find_arch find_version "
            "is_older link_cubin why_no_cuda_core",
            "nvrtc": "References compile_cubin compile_references has_nvrtc need_archs program_key",
        },
    )
