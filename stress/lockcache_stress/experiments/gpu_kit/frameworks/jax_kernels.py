"""JAX: jitted functions through its persistent compilation cache, on the GPU or, without one, on the CPU."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from lockcache_stress.experiments.gpu_kit.frameworks.framework import ELEMENTS, ON_GPU, factor_and_salt

__all__ = ["JaxKernels"]


class JaxKernels:
    """As :class:`~.framework.Kernels`."""

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
