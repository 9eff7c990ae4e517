# SPDX-License-Identifier: Apache-2.0
"""The machine, its GPU and driver, and the versions of compilers, without which figures mean nothing.

With a GPU, loads and launches cached code and reads the results; links also without a GPU. All code that touches the
device is here. Only programs for the device's own architecture can be loaded. Imports only cuda.core and cuda.bindings;
reads the versions of frameworks from their installed metadata.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final

from lockcache import __version__
from lockcache.filestream.disk import mount_of
from lockcache_stress.gpu.kernels import LAUNCHED

#: The version of a package that is missing.
NOT_INSTALLED: Final = "not installed"

_DRIVER: Final = "/proc/driver/nvidia/version"
# The same as in pyproject.toml.
_LEAST_CUDA_CORE: Final = (1, 2)
_PACKAGES: Final = {
    "cuda-core": ("cuda-core",),
    "cuda-bindings": ("cuda-bindings",),
    "NVRTC": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12"),
    "nvJitLink": ("nvidia-nvjitlink", "nvidia-nvjitlink-cu13", "nvidia-nvjitlink-cu12"),
    "CuPy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "Triton": ("triton",),
    "JAX": ("jax",),
    "torch": ("torch",),
    "numba-cuda": ("numba-cuda",),
    "CuTe": ("nvidia-cutlass-dsl",),
    "cuTile": ("cuda-tile",),
}
_NOT_COMPUTED: Final = 0xA5


def describe_gpu() -> dict[str, str]:
    """Returns the GPU and its driver; ``none`` where there is none."""
    return {"GPU": find_name() or "none", "driver": _driver()}


def describe_versions() -> dict[str, str]:
    """Returns the versions of compilers and frameworks, :data:`NOT_INSTALLED` for what is missing."""
    return {name: find_version(name) or NOT_INSTALLED for name in _PACKAGES}


def find_version(name: str) -> str | None:
    """Returns the version of a package by its name in :func:`describe_versions`; ``None`` if it is not installed."""
    for package in _PACKAGES[name]:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return _nvrtc_release() if name == "NVRTC" else None


def is_older(version: str, least: tuple[int, int]) -> bool:
    """Returns whether ``version`` comes before ``least``, by major and minor number."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < least


def why_no_cuda_core() -> str | None:
    """Returns why nothing can be compiled through :mod:`lockcache.cuda` here; ``None`` if it can."""
    version = find_version("cuda-core")
    if version is None:
        return "cuda.core is not installed"
    if is_older(version, _LEAST_CUDA_CORE):
        return f"cuda.core {version} is too old: {'.'.join(map(str, _LEAST_CUDA_CORE))} is needed"
    try:
        import lockcache.cuda  # noqa: F401
    except ImportError as error:
        return f"cuda.core {version} cannot be used: {error}"
    if find_version("NVRTC") is None:
        return "NVRTC is not installed"
    return None


def _driver() -> str:
    try:
        with open(_DRIVER) as file:
            found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", file.read())
    except OSError:
        found = None
    versions = [found[1]] if found else []
    release = _cuda_release()
    return ", ".join([*versions, *([f"CUDA {release}"] if release else [])]) or "none"


def _cuda_release() -> str | None:
    """Returns the release of CUDA that the driver supports."""
    try:
        from cuda.bindings import driver

        status, version = driver.cuDriverGetVersion()
    except Exception:  # noqa: BLE001  without a driver the binding raises an error of its own
        return None
    return f"{version // 1000}.{version % 1000 // 10}" if int(status) == 0 and version else None


def _nvrtc_release() -> str | None:
    """Returns the release of an NVRTC that came with a toolkit and not as a wheel."""
    try:
        from lockcache.keys.versions import nvrtc_release

        return nvrtc_release()
    except (ImportError, RuntimeError, OSError):
        return None


def describe_machine(directory: str) -> dict[str, str]:
    """Returns CPU, kernel, interpreter, file system, versions."""
    mount = mount_of(directory)
    return {
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "file system": "unknown" if mount is None else mount.kind,
        "lockcache": __version__,
        "cuda-core": find_version("cuda-core") or NOT_INSTALLED,
        "load": "{:.1f} {:.1f} {:.1f}".format(*os.getloadavg()),
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def find_arch() -> str | None:
    """Returns the first GPU's architecture as ``sm_90``, or ``None`` where there is no GPU, driver or cuda.core."""
    device = _find_device()
    return None if device is None else "sm_{}{}".format(*device.compute_capability)


def find_name() -> str | None:
    """Returns the first GPU's name, or ``None`` where :func:`find_arch` finds none."""
    device = _find_device()
    return None if device is None else str(device.name)


def _find_device() -> Any:
    try:
        from cuda.core import Device

        device = Device(0)
        device.set_current()
    except Exception:  # noqa: BLE001  no driver, no device, no package: each has an error type of its own, and all mean no GPU
        return None
    return device


def link_cubin(units: Sequence[Any], arch: str) -> Any:
    """Link units of LTO-IR. Returns the cubin as an ``ObjectCode``."""
    from cuda.core import Linker, LinkerOptions

    linker = Linker(*units, options=LinkerOptions(arch=arch, link_time_optimization=True))
    try:
        return linker.link("cubin")
    finally:
        linker.close()


class Launcher:
    """Runs kernels ``run(unsigned* out, unsigned n)`` on the first GPU."""

    def __init__(self) -> None:
        from cuda.core import Device

        self._device: Any = Device(0)
        self._device.set_current()
        self._stream: Any = self._device.create_stream()
        self._buffer: Any = self._device.allocate(4 * LAUNCHED, stream=self._stream)

    def launch(self, cubin: bytes) -> list[int]:
        """Returns the result of the kernel in ``cubin``."""
        from cuda.core import ObjectCode

        return self.run(self.load(ObjectCode.from_cubin(cubin)))

    def load(self, code: Any, name: str = "run") -> Any:
        """Returns a kernel of the ``ObjectCode``, whose module stays loaded for as long as the kernel is held."""
        return code.get_kernel(name)

    def run(self, kernel: Any) -> list[int]:
        """Returns the result of a loaded kernel."""
        from cuda.core import LaunchConfig, launch

        self._buffer.fill(_NOT_COMPUTED, stream=self._stream)  # so that no older result passes for that of this kernel
        config = LaunchConfig(grid=1, block=LAUNCHED)
        launch(self._stream, config, kernel, self._buffer, ctypes.c_uint32(LAUNCHED))
        self._stream.sync()
        return self._read()

    def _read(self) -> list[int]:
        from cuda.bindings import driver

        numbers = (ctypes.c_uint32 * LAUNCHED)()
        result = driver.cuMemcpyDtoH(ctypes.addressof(numbers), int(self._buffer.handle), ctypes.sizeof(numbers))[0]
        if int(result) != 0:
            raise RuntimeError(f"the result could not be copied from the GPU: {result}")
        return list(numbers)
