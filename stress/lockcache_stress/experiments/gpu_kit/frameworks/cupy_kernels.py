"""CuPy: raw kernels through its compile cache, one cubin a file in ``CUPY_CACHE_DIR``."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from lockcache_stress.experiments.gpu_kit.frameworks.framework import ELEMENTS, ON_GPU, factor_and_salt

__all__ = ["CupyKernels"]

_SOURCE: Final = """
extern "C" __global__ void run(unsigned* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = i * {factor}u + {salt}u;
}}
"""


class CupyKernels:
    """As :class:`~.framework.Kernels`."""

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
        kernel = self._cupy.RawKernel(_SOURCE.format(factor=factor, salt=salt), "run")
        self._out.data.memset(0xA5, self._out.nbytes)  # not fill(), which is a kernel in the same directory
        kernel((1,), (ELEMENTS,), (self._out, self._cupy.uint32(ELEMENTS)))
        return list(map(int, self._cupy.asnumpy(self._out)))
