"""The machine that a measurement was made on: numbers without it say nothing."""

from __future__ import annotations

import os
import platform

from lockcache import __version__
from lockcache.filestream.disk import mount_of
from lockcache_stress.gpu import NOT_INSTALLED, find_version

__all__ = ["describe_machine"]


def describe_machine(directory: str) -> dict[str, str]:
    """CPU, kernel, interpreter, file system, versions."""
    return {
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "file system": _file_system(directory),
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


def _file_system(directory: str) -> str:
    mount = mount_of(directory)
    return "unknown" if mount is None else mount.kind
