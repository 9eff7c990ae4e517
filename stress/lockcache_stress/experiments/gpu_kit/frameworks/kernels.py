"""CuPy, Triton and JAX: their kernels through the cache that each keeps in a directory of its own."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from lockcache_stress.experiments.gpu_kit.frameworks.framework import ELEMENTS, ON_GPU, factor_and_salt

__all__ = ["CupyKernels", "JaxKernels", "TritonKernels"]

_CUPY_SOURCE: Final = """
extern "C" __global__ void run(unsigned* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = i * {factor}u + {salt}u;
}}
"""
# Imports Triton at its top, as a source that Triton reads has to.
_TRITON_SOURCE: Final = "lockcache_stress.experiments.gpu_kit.frameworks.triton_source"


class CupyKernels:
    """Raw kernels through CuPy's compile cache, one cubin a file in ``CUPY_CACHE_DIR``."""

    def __init__(self, directory: str) -> None:
        os.environ["CUPY_CACHE_DIR"] = directory  # read when CuPy is imported
        os.environ.pop("CUPY_CACHE_IN_MEMORY", None)
        self._cupy: Any = import_module("cupy")
        self._out = self._cupy.zeros(ELEMENTS, dtype=self._cupy.uint32)
        self.place = ON_GPU

    def forget(self) -> None:
        """Modules are kept for each source."""
        self._cupy.clear_memo()

    def run(self, number: int) -> list[int]:
        """A fresh kernel object: CuPy asks its directory."""
        factor, salt = factor_and_salt(number)
        kernel = self._cupy.RawKernel(_CUPY_SOURCE.format(factor=factor, salt=salt), "run")
        self._out.data.memset(0xA5, self._out.nbytes)  # not fill(), which is a kernel in the same directory
        kernel((1,), (ELEMENTS,), (self._out, self._cupy.uint32(ELEMENTS)))
        return list(map(int, self._cupy.asnumpy(self._out)))


class TritonKernels:
    """A kernel with compile-time constants through Triton's cache, a directory for each in ``TRITON_CACHE_DIR``."""

    def __init__(self, directory: str) -> None:
        os.environ["TRITON_CACHE_DIR"] = directory
        os.environ.pop("TRITON_CACHE_MANAGER", None)
        self._triton: Any = import_module("triton")
        self._torch: Any = import_module("torch")
        self._function: Any = import_module(_TRITON_SOURCE).compute
        self._out = self._torch.zeros(ELEMENTS, dtype=self._torch.int32, device="cuda")
        self.place = ON_GPU

    def forget(self) -> None:
        """Nothing: what Triton remembers belongs to the function object, and each run has a fresh one."""

    def run(self, number: int) -> list[int]:
        """A fresh function object: Triton asks its directory."""
        factor, salt = factor_and_salt(number)
        self._out.fill_(-1)
        fresh = self._triton.jit(self._function)
        fresh[(1,)](self._out, ELEMENTS, FACTOR=factor, SALT=salt, SIZE=ELEMENTS)
        return list(map(int, self._out.cpu().tolist()))


class JaxKernels:
    """Jitted functions through JAX's persistent compilation cache, on the GPU or, without one, on the CPU."""

    def __init__(self, directory: str) -> None:
        # Else the first process takes three quarters of the GPU's memory.
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        self._jax: Any = import_module("jax")
        # Not JAX's own: what is done with its arrays, reading one number after the other too, are programs to compile.
        self._numpy: Any = import_module("numpy")
        settings = {
            "jax_compilation_cache_dir": directory,
            "jax_persistent_cache_min_compile_time_secs": 0,
            "jax_persistent_cache_min_entry_size_bytes": -1,
            # XLA's own caches would lie in folders of the same directory, and its name would be part of the key.
            "jax_persistent_cache_enable_xla_caches": "none",
        }
        for name, value in settings.items():
            self._jax.config.update(name, value)
        self._input = self._numpy.arange(ELEMENTS, dtype=self._numpy.uint32)
        platform = self._jax.devices()[0].platform
        self.place = "the CPU" if platform == "cpu" else ON_GPU

    def forget(self) -> None:
        """Compiled functions are kept for each function."""
        self._jax.clear_caches()

    def run(self, number: int) -> list[int]:
        """A fresh function: JAX asks its directory."""
        factor, salt = factor_and_salt(number)
        compute = self._jax.jit(lambda x: x * self._numpy.uint32(factor) + self._numpy.uint32(salt))
        return list(map(int, self._numpy.asarray(compute(self._input))))
