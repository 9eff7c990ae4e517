# SPDX-License-Identifier: Apache-2.0
"""Frameworks: runs the kernels of each through the cache that it keeps in a directory of its own.

CuPy, Triton, JAX, numba-cuda, CuTe DSL and cuTile; :mod:`.rows` says which rows each has. Kernel number k
computes ``i * (k + 3) + 1009 * k`` for i in 0 to 63: small numbers, which fit into every integer type.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol

from lockcache_stress.gpu import find_version, is_older

#: The number of kernels that fill the directory; the cap is half of what they take.
KERNELS: Final = 24
#: The number of elements that each kernel computes.
ELEMENTS: Final = 64
#: The place of kernels that are launched.
ON_GPU: Final = "the GPU"

_CUPY_SOURCE: Final = """
extern "C" __global__ void run(unsigned* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = i * {factor}u + {salt}u;
}}
"""
# Modules of their own, because a source that a framework reads has to import the framework at its top.
_SOURCES: Final = "lockcache_stress.experiments.gpu_kit.frameworks"


class Kernels(Protocol):
    """A framework in one process, with its cache in the directory that it was opened for."""

    #: The device on which it computes.
    place: str

    def forget(self) -> None:
        """Drop the kernels in memory, so that the next use asks the directory."""
        ...

    def run(self, number: int) -> list[int]:
        """Returns what the kernel ``number`` computed."""
        ...


@dataclass(frozen=True)
class Framework:
    """One framework."""

    name: str
    #: The layout's name for ``lockcache-daemon --layout``.
    layout: str
    #: The modules that have to be importable.
    modules: tuple[str, ...]
    #: The oldest version that has what this module relies on.
    least: tuple[int, int]
    needs_gpu: bool
    #: Opens the framework for a directory, in a process that uses it.
    open: Callable[[str], Kernels]
    #: The names of errors that it is known to raise when an entry is removed while being read; no other may occur.
    may_raise: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        """The name of its row."""
        return self.name.lower()

    @property
    def adapter(self) -> str:
        """The name of its module in lockcache.integrations, where it has one."""
        return self.row.partition("-")[0]

    def why_not(self, gpu_arch: str | None) -> str | None:
        """Returns why the framework cannot be run here; ``None`` if it can."""
        version = find_version(self.name)
        if version is None:
            return f"{self.name} is not installed"
        if is_older(version, self.least):
            return f"{self.name} {version} is too old: {'.'.join(map(str, self.least))} is needed"
        missing = [module for module in self.modules if find_spec(module) is None]
        if missing:
            return f"{self.name} needs {', '.join(missing)} here, which is not installed"
        return "no GPU" if self.needs_gpu and gpu_arch is None else None


def _factor_and_salt(number: int) -> tuple[int, int]:
    """Returns the two constants by which kernel ``number`` differs from the others."""
    return number + 3, 1009 * number


def expected(number: int) -> list[int]:
    """Returns the right result of kernel ``number``."""
    factor, salt = _factor_and_salt(number)
    return [i * factor + salt for i in range(ELEMENTS)]


class CupyKernels:
    """Raw kernels through CuPy's compile cache, one cubin a file in ``CUPY_CACHE_DIR``."""

    def __init__(self, directory: str) -> None:
        os.environ["CUPY_CACHE_DIR"] = directory  # read when CuPy is imported
        os.environ.pop("CUPY_CACHE_IN_MEMORY", None)
        self._cupy: Any = import_module("cupy")
        self._out = self._cupy.zeros(ELEMENTS, dtype=self._cupy.uint32)
        self.place = ON_GPU

    def forget(self) -> None:
        """Drop the modules, which CuPy keeps for each source."""
        self._cupy.clear_memo()

    def run(self, number: int) -> list[int]:
        """Run a new kernel object, so that CuPy asks its directory."""
        factor, salt = _factor_and_salt(number)
        kernel = self._cupy.RawKernel(_CUPY_SOURCE.format(factor=factor, salt=salt), "run")
        self._out.data.memset(0xA5, self._out.nbytes)  # fill() would be another kernel in the same directory
        kernel((1,), (ELEMENTS,), (self._out, self._cupy.uint32(ELEMENTS)))
        return list(map(int, self._cupy.asnumpy(self._out)))


class TritonKernels:
    """A kernel with compile-time constants through Triton's cache, a directory for each in ``TRITON_CACHE_DIR``."""

    def __init__(self, directory: str) -> None:
        os.environ["TRITON_CACHE_DIR"] = directory
        os.environ.pop("TRITON_CACHE_MANAGER", None)
        self._triton: Any = import_module("triton")
        self._torch: Any = import_module("torch")
        self._function: Any = import_module(f"{_SOURCES}.triton_source").compute
        self._out = self._torch.zeros(ELEMENTS, dtype=self._torch.int32, device="cuda")
        self.place = ON_GPU

    def forget(self) -> None:
        """Do nothing: Triton keeps kernels with the function object, and each run has a new one."""

    def run(self, number: int) -> list[int]:
        """Run a new function object, so that Triton asks its directory."""
        factor, salt = _factor_and_salt(number)
        self._out.fill_(-1)
        fresh = self._triton.jit(self._function)
        fresh[(1,)](self._out, ELEMENTS, FACTOR=factor, SALT=salt, SIZE=ELEMENTS)
        return list(map(int, self._out.cpu().tolist()))


class NumbaKernels:
    """Kernels of numba-cuda with its cache in ``NUMBA_CACHE_DIR``."""

    def __init__(self, directory: str) -> None:
        os.environ["NUMBA_CACHE_DIR"] = directory  # read when numba is imported
        self._cuda: Any = import_module("numba.cuda")
        self._out = self._cuda.to_device(import_module("numpy").zeros(ELEMENTS, "uint32"))
        self.place = ON_GPU

    def forget(self) -> None:
        """Do nothing: numba keeps kernels with the function object, and each run has a new one."""

    def run(self, number: int) -> list[int]:
        """Run a new function object, so that numba asks its directory."""
        (factor, salt), cuda = _factor_and_salt(number), self._cuda

        def compute(out: Any) -> None:
            i = cuda.grid(1)
            if i < out.size:
                out[i] = i * factor + salt

        cuda.jit(cache=True)(compute)[1, ELEMENTS](self._out)
        return list(map(int, self._out.copy_to_host()))


class CuteKernels:
    """A kernel of CuTe DSL with compile-time constants through ``cute.compile``, which caches nothing by itself."""

    def __init__(self, directory: str) -> None:
        os.environ["CUTE_DSL_CACHE_DIR"] = directory
        self._cute: Any = import_module("cutlass.cute")
        self._torch: Any = import_module("torch")
        self._launch: Any = import_module(f"{_SOURCES}.cute_source").launch
        self._out = self._torch.zeros(ELEMENTS, dtype=self._torch.int32, device="cuda")
        self.place = ON_GPU

    def forget(self) -> None:
        """Do nothing: each run compiles."""

    def run(self, number: int) -> list[int]:
        """Compile the function for its constants, and call what was compiled."""
        self._out.fill_(-1)
        given = self._cute.runtime.from_dlpack(self._out)
        compiled = self._cute.compile(self._launch, given, *_factor_and_salt(number), ELEMENTS)
        self._torch.cuda.synchronize()  # it is launched on the default stream
        compiled(given)
        return list(map(int, self._out.cpu().tolist()))


class CutileKernels:
    """A kernel of cuTile with compile-time constants through its cache, a database in ``CUDA_TILE_CACHE_DIR``."""

    def __init__(self, directory: str) -> None:
        os.environ["CUDA_TILE_CACHE_DIR"] = directory  # read when cuTile is imported
        self._tile: Any = import_module("cuda.tile")
        self._torch: Any = import_module("torch")
        self._function: Any = import_module(f"{_SOURCES}.cutile_source").compute
        self._out = self._torch.zeros(ELEMENTS, dtype=self._torch.int32, device="cuda")
        self.place = ON_GPU

    def forget(self) -> None:
        """Do nothing: cuTile keeps kernels with the kernel object, and each run has a new one."""

    def run(self, number: int) -> list[int]:
        """Run a new kernel object, so that cuTile asks its cache."""
        self._out.fill_(-1)
        given = (self._out, *_factor_and_salt(number), ELEMENTS)
        self._tile.launch(self._torch.cuda.current_stream(), (1,), self._tile.kernel(self._function), given)
        return list(map(int, self._out.cpu().tolist()))


class JaxKernels:
    """Jitted functions through JAX's persistent compilation cache, on the GPU or, without one, on the CPU."""

    def __init__(self, directory: str) -> None:
        # Otherwise the first process takes three quarters of the GPU's memory.
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        self._jax: Any = import_module("jax")
        # Not JAX's own arrays, because every operation on them, also reading a number, is a program to compile.
        self._numpy: Any = import_module("numpy")
        settings = {
            "jax_compilation_cache_dir": directory,
            "jax_persistent_cache_min_compile_time_secs": 0,
            "jax_persistent_cache_min_entry_size_bytes": -1,
            # XLA's own caches would be folders of the same directory, whose name would become part of the key.
            "jax_persistent_cache_enable_xla_caches": "none",
        }
        for name, value in settings.items():
            self._jax.config.update(name, value)
        self._input = self._numpy.arange(ELEMENTS, dtype=self._numpy.uint32)
        platform = self._jax.devices()[0].platform
        self.place = "the CPU" if platform == "cpu" else ON_GPU

    def forget(self) -> None:
        """Drop the compiled functions, which JAX keeps for each function."""
        self._jax.clear_caches()

    def run(self, number: int) -> list[int]:
        """Run a new function, so that JAX asks its directory."""
        factor, salt = _factor_and_salt(number)
        compute = self._jax.jit(lambda x: x * self._numpy.uint32(factor) + self._numpy.uint32(salt))
        return list(map(int, self._numpy.asarray(compute(self._input))))
