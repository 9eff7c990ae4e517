# SPDX-License-Identifier: Apache-2.0
"""A TileLang cache (``$TILELANG_CACHE_DIR``, ``~/.tilelang/cache``): the folder of a kernel, of what was tuned, or of a
device binary is one entry.

They are in ``VERSION/PLATFORM-MACHINE/kernels`` and ``autotuner``, and in ``VERSION/cuda-binaries``; each is written in
``.staging`` next to them, and renamed into place. TileLang verifies what it reads, compiles again what it does not find
whole, and reads the sources of a kernel only when a program asks for them. Of the results of tuning it opens file after
file, and raises if they are removed meanwhile.
"""

from __future__ import annotations

import re
from typing import Final

from lockcache.layouts.folders.scan import EntryFolder, Program
from lockcache.layouts.openat import find_homes, read_start_in

_VERSION: Final = r"\d+\.\d+\w*(?:\.[\w.-]+)?"
_PLATFORM: Final = r"[a-z]\w*-\w+"

_SOURCES: Final = ("device_kernel.cu", "device_kernel.py")
# The first lines have the target, and the declaration of the kernel follows the includes.
_SOURCE_BYTES: Final = 4096
_ARCH: Final = re.compile(rb'^// tilelang target: .*"arch"\s*:\s*"(\w+)"')
_KERNEL: Final = re.compile(rb"\b([A-Za-z_]\w*_kernel(?:_\d+)?)\s*\(")


def _describe(fd: int, entry: EntryFolder) -> tuple[str | None, str | None]:
    name = next((name for name in _SOURCES if name in entry.files), None)
    start = b"" if name is None else read_start_in(fd, name, entry.files[name], _SOURCE_BYTES) or b""
    arch, kernel = _ARCH.search(start), _KERNEL.search(start)
    return arch and arch[1].decode(), kernel and kernel[1].decode()


#: TileLang's kernels, results of tuning and device binaries.
TILELANG: Final = Program(
    name="tilelang",
    homes=(
        (_VERSION, _PLATFORM, r"kernels|autotuner|\.staging"),
        (_VERSION, r"\w+-binaries"),
        (_VERSION, r"\.staging", r"\w+-binaries"),
    ),
    # Followed by the writer's process and a number while it is being written.
    folder=r"[0-9a-f]{64}(?:[_.]\d+[_.][0-9a-f]+)?",
    unfinished=r".*/\.staging/.*",
    binaries=(".so", ".fatbin", ".aibin", ".cubin"),
    metadata=("params.json", "metadata.json"),
    describe=_describe,
    # Kernels of NVRTC and of CuTe DSL are modules of Python, which is left where they are.
    inner=("__pycache__",),
)


def is_tilelang(root_fd: int) -> bool:
    """Returns whether TileLang was here: importing it makes these folders."""
    homes = set(find_homes(root_fd, TILELANG.homes)[0])
    return any(home.endswith("/kernels") and home.replace("/kernels", "/.staging") in homes for home in homes)
