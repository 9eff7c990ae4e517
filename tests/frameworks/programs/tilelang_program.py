# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles and runs with TileLang on the CPU, in TileLang's own cache. The kernels are numbers.

``everything``: stores too what only a GPU lets TileLang make, a result of tuning and a device binary, as TileLang does.
"""

from __future__ import annotations

import hashlib
import sys

import tilelang
import tilelang.cpu.language as T  # noqa: N812
import torch
from protocol import run
from tilelang.autotuner.param import AutotuneResult
from tilelang.autotuner.tuner import AutoTuner
from tilelang.cache.cuda_binary_cache import CUDABinaryCache
from tilelang.cache.kernel_cache import KernelCache
from tilelang.jit.kernel import JITKernel

tilelang.set_log_level("ERROR")
compiled = []
_compile = JITKernel._compile_and_create_adapter


def _counted(*args, **options):
    compiled.append(1)
    return _compile(*args, **options)


JITKernel._compile_and_create_adapter = _counted


def _forget() -> None:
    """Have TileLang ask its directory again."""
    for cache in KernelCache.__subclasses__():
        if cache._instance is not None:
            cache._instance._memory_cache.clear()


def compile_kernel(number: int) -> bool:
    @T.prim_func
    def scale(a: T.Tensor((8,), "float32"), b: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            for i in T.serial(8):
                b[i] = a[i] * number

    _forget()
    kernel = tilelang.compile(scale, out_idx=[1], target="c")
    if "everything" in sys.argv:
        key = hashlib.sha256(b"%d" % number).hexdigest()
        result = AutotuneResult(config={}, func=scale, kernel=kernel, libcode="", latency=1.0, ref_latency=1.0)
        result.save_to_disk(AutoTuner._get_cache_dir() / key)
        CUDABinaryCache.save(key, "cubin", b"code %d" % number)
    a = torch.arange(8, dtype=torch.float32)
    return bool((kernel(a) == a * number).all())


run(compile_kernel, compiled, False)
