# SPDX-License-Identifier: Apache-2.0
"""Kernels, NVRTC and the GPU: sources, reference cubins, and launches of cached code.

Promises reference bytes that were compiled without a cache, and that only ``machine`` touches the device.

May use: errors, processes.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.gpu.kernels import LAUNCHED, Kernel, Pair, Slot, Template, compile_uncached
    from lockcache_stress.gpu.kernels import find_runtime_headers, make_pairs, make_slots, make_templates
    from lockcache_stress.gpu.kernels import program_options
    from lockcache_stress.gpu.machine import NOT_INSTALLED, Launcher, describe_gpu, describe_machine, describe_versions
    from lockcache_stress.gpu.machine import find_arch, find_version, is_older, link_cubin, why_no_cuda_core
    from lockcache_stress.gpu.nvrtc import References, compile_cubin, compile_references, has_nvrtc, need_archs
    from lockcache_stress.gpu.nvrtc import program_key

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
