# SPDX-License-Identifier: Apache-2.0
"""The wall clock steps by up to two days, forth and back, and the boot time that the kernel states with it.

So clocks step when NTP corrects them, or when a machine is resumed. Each worker has a ``/proc/stat`` of its own,
mounted over the real one in a mount namespace, whose boot time changes; the real clock is left alone. Proves that a
step makes no living writer pass for dead (invariant 5, death is free, and only death): other processes recount all the
while, which removes what dead writers left staged, and no writer loses its staged file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import tempfile
from typing import Final

from lockcache.lowlevel import CacheDirectory
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker
from lockcache_stress.trouble import needs_mounts

_KEYS = 24
_VALUE_BYTES = MIB // 2
_FARTHEST_SECONDS = 48 * 3600
_STEPS = 0.1
_RECOUNTS = 0.2

_CLONE_NEWNS: Final = 0x00020000
_MS_BIND: Final = 0x1000
_MS_REC_PRIVATE: Final = 0x4000 | 0x40000


class _BootTime:
    """This process's ``/proc/stat``."""

    def __init__(self) -> None:
        with open("/proc/stat", encoding="ascii") as file:
            self._text = file.read()
        fd, path = tempfile.mkstemp()
        self._file = os.fdopen(fd, "r+", encoding="ascii")
        self.step(0)
        libc = ctypes.CDLL(None, use_errno=True)
        with contextlib.ExitStack() as stack:
            stack.callback(os.unlink, path)  # a mounted file needs no name
            for failed in (
                libc.unshare(_CLONE_NEWNS),
                libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None),
                libc.mount(os.fsencode(path), b"/proc/stat", None, _MS_BIND, None),
            ):
                if failed:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "/proc/stat")

    def step(self, seconds: int) -> None:
        """Have the machine booted so much later than it was."""
        text = re.sub(r"^btime (\d+)", lambda found: f"btime {int(found[1]) + seconds}", self._text, flags=re.M)
        self._file.seek(0)
        self._file.write(text)
        self._file.truncate()
        self._file.flush()


def _refuse(self: CacheDirectory) -> None:
    raise RuntimeError(f"{self.layout.root}: what a living writer had staged is gone")


def make_step(worker: Worker) -> Step:
    """Returns the step: write large values and read them; the clock steps, and a recount reaps."""
    rng, boot = worker.rng, _BootTime()
    # A write whose staged file was removed makes the directory's parts again, and would succeed unnoticed.
    CacheDirectory.remake = _refuse  # type: ignore[method-assign]

    def step() -> bool:
        if rng.random() < _STEPS:
            boot.step(rng.randrange(-_FARTHEST_SECONDS, _FARTHEST_SECONDS))
            worker.count("troubles")
        if rng.random() < _RECOUNTS:
            worker.recount()
        if rng.random() < 0.7:
            worker.put(rng.randrange(_KEYS), _VALUE_BYTES)
        else:
            worker.get(rng.randrange(_KEYS))
        return True

    return step


SCENARIO = Scenario(
    "clock-step",
    "the wall clock steps by up to two days, for each process at another time, while others recount",
    make_step,
    processes=4,
    max_size_bytes=8 * MIB,
    keys=_KEYS,
    why_not=needs_mounts,
    must_happen={"troubles": "steps of clocks"},
)
