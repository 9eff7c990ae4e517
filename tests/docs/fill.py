# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.docs.fill DIR...`: the cache of the documents' examples, with small values in place of programs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from lockcache import Entry, FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.disk.layout import entry_name

_DAY_NS = 86_400 * 10**9
# By key: bytes, kind, arch, compiler, days since the last use, milliseconds of compiling.
_ENTRIES = {
    "scale": (4_000, "cubin", "sm_90", "nvrtc 13.5.37", 0, 40),
    "softmax-34417": (300_000, "cubin", "sm_90", "nvrtc 13.5.37", 2, 1_500),
    "gemm": (90_000, "cubin", "sm_90a", "nvrtc 13.5.37", 9, 900),
    "sort-40": (3_000, "ptx", "sm_70", "nvrtc 12.4.99", 40, 30),
    "sort": (60_000, "cubin", "sm_70", "nvrtc 12.4.99", 50, 1_200),
}


def fill(root: str) -> None:
    with FileStreamProgramCache(root) as cache:
        for key, (size, kind, arch, compiler, days, cost_ms) in _ENTRIES.items():
            parts = {"compiler": compiler, "option arch": arch, "code": f"{{{key}}}"}
            state(key.encode(), parts, f"{key.partition('-')[0]}<float>")
            metadata = {"kind": kind, "arch": arch, "compiler": compiler, "compile_cost_ns": cost_ms * 10**6}
            cache.put_entry(key, Entry(key.encode() * (size // len(key)), metadata))
            name = entry_name(key.encode())
            used_ns = time.time_ns() - days * _DAY_NS
            os.utime(Path(cache.path, "entries", name[:2], name[2:]), ns=(used_ns, used_ns))


if __name__ == "__main__":
    for directory in sys.argv[1:]:
        fill(directory)
