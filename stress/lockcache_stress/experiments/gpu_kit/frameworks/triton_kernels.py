"""Triton: a kernel with compile-time constants through its cache, a directory for each in ``TRITON_CACHE_DIR``."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from lockcache_stress.experiments.gpu_kit.frameworks.framework import ELEMENTS, ON_GPU, factor_and_salt

__all__ = ["TritonKernels"]

# Imports Triton at its top, as a source that Triton reads has to.
_SOURCE: Final = "lockcache_stress.experiments.gpu_kit.frameworks.triton_source"


class TritonKernels:
    """As :class:`~.framework.Kernels`."""

    def __init__(self, directory: str) -> None:
        os.environ["TRITON_CACHE_DIR"] = directory
        os.environ.pop("TRITON_CACHE_MANAGER", None)
        self._triton: Any = import_module("triton")
        self._torch: Any = import_module("torch")
        self._function: Any = import_module(_SOURCE).compute
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
