"""The GPU, its driver, and the versions of what compiles for it: what figures of a GPU have to be reported with.

Loads nothing but cuda.core and cuda.bindings; of the frameworks it reads what their installation says.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

from lockcache_stress.gpu.launch import find_name

__all__ = ["NOT_INSTALLED", "describe_gpu", "describe_versions", "find_version", "is_older", "why_no_cuda_core"]

#: Of what is missing.
NOT_INSTALLED: Final = "not installed"

_DRIVER: Final = "/proc/driver/nvidia/version"
# As pyproject.toml has it.
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
}


def describe_gpu() -> dict[str, str]:
    """Returns what the GPU is and what its driver; ``none`` where there is none."""
    return {"GPU": find_name() or "none", "driver": _driver()}


def describe_versions() -> dict[str, str]:
    """Returns the versions of compilers and frameworks, :data:`NOT_INSTALLED` for what is missing."""
    return {name: find_version(name) or NOT_INSTALLED for name in _PACKAGES}


def find_version(name: str) -> str | None:
    """Returns the installed version of what :func:`describe_versions` calls so, ``None`` if it is not installed."""
    for package in _PACKAGES[name]:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return _nvrtc_release() if name == "NVRTC" else None


def is_older(version: str, least: tuple[int, int]) -> bool:
    """Whether ``version`` comes before ``least``: major and minor number."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < least


def why_no_cuda_core() -> str | None:
    """Why nothing can be compiled through :mod:`lockcache.cuda` here; ``None`` if it can."""
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
    """Of CUDA that the driver speaks."""
    try:
        from cuda.bindings import driver

        status, version = driver.cuDriverGetVersion()
    except Exception:  # noqa: BLE001  without a driver the binding raises an error of its own
        return None
    return f"{version // 1000}.{version % 1000 // 10}" if int(status) == 0 and version else None


def _nvrtc_release() -> str | None:
    """Of an NVRTC that came with a toolkit and not as a wheel."""
    try:
        from lockcache.keys.versions import nvrtc_release

        return nvrtc_release()
    except (ImportError, RuntimeError, OSError):
        return None
