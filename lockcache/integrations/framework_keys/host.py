# SPDX-License-Identifier: Apache-2.0
"""The host that machine code is compiled for: the instructions of its CPU, and its C library.

For adapters whose frameworks compile for the host on which they run, and whose keys do not say which one that is.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from typing import Final

__all__ = ["c_library", "cpu_features"]

_MOST_BYTES: Final = 1 << 20
# Of the lines of /proc/cpuinfo on x86 and Arm.
_FEATURES: Final = ("flags", "Features")


@functools.cache
def cpu_features() -> str:
    """Returns a digest of the instructions that this host's CPU has; its architecture where they cannot be read."""
    lines = []
    try:
        with open("/proc/cpuinfo", errors="replace") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        pass
    found = {line for line in lines if line.partition(":")[0].strip() in _FEATURES}
    text = "\n".join([platform.machine(), *sorted(found)])
    return hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()[:16]


@functools.cache
def c_library() -> str:
    """Returns the version of the C library that a library built here may need, and the architecture."""
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # another C library
        version = "-".join(platform.libc_ver())
    return f"{version} {platform.machine()}"
