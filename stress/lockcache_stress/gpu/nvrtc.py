# SPDX-License-Identifier: Apache-2.0
"""Compiling with the real NVRTC through cuda.core, and the reference cubins with which reads are compared.

References are compiled before the run, in processes of their own and without any cache. NVRTC gives the same bytes for
the same source and options in every process, so a cubin that differs was damaged or belongs to another key.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable
from typing import Final

from lockcache.errors import how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.gpu.kernels import ARCHS, Slot, compile_uncached, program_options
from lockcache_stress.processes import start_pool

_BINARY: Final = "references"
_INDEX: Final = "references.json"


def has_nvrtc() -> bool:
    """Returns whether cuda.core and NVRTC can be used here."""
    try:
        supported_archs()
    except (ImportError, RuntimeError, OSError):
        return False
    return True


def need_archs(what: str, otherwise: str = "") -> tuple[str, ...]:
    """Returns :func:`supported_archs`. Raises :class:`UnusableError` that begins with ``what``, without NVRTC."""
    try:
        return supported_archs()
    except (ImportError, RuntimeError, OSError) as error:
        raise UnusableError(f"{what} cuda.core and NVRTC ({error}): {how_to_install('cuda')}{otherwise}") from error


def supported_archs() -> tuple[str, ...]:
    """Returns those of :data:`ARCHS` that this NVRTC compiles for."""
    from cuda.bindings import nvrtc

    result, archs = nvrtc.nvrtcGetSupportedArchs()
    if int(result) != 0:
        raise RuntimeError(f"NVRTC does not say what it compiles for: {result}")
    known = {f"sm_{arch}" for arch in archs}
    return tuple(arch for arch in ARCHS if arch in known)


def compile_cubin(slot: Slot, variant: int) -> bytes:
    """Compile a slot without any cache."""
    return bytes(compile_uncached(slot.kernel.source(variant), program_options(slot.arch)).code)


def program_key(slot: Slot, token: bytes) -> bytes:
    """Returns the cache key of a slot, made from its first variant. ``token`` distinguishes the keys of runs."""
    from lockcache import make_program_cache_key

    source, options = slot.kernel.source(0), program_options(slot.arch)
    return make_program_cache_key(
        code=source, code_type="c++", options=options, target_type="cubin", extra_digest=token
    )


def compile_references(slots: list[Slot], folder: str, progress: Callable[[int, int], None]) -> None:
    """Compile every variant of every slot, in as many processes as there are cores, into one file in ``folder``."""
    work = [(slot, variant) for slot in slots for variant in range(slot.variants)]
    index: list[tuple[int, int]] = []
    with start_pool(min(len(work), os.cpu_count() or 1)) as pool, open(os.path.join(folder, _BINARY), "wb") as file:
        for done, cubin in enumerate(pool.imap(_compile, work, chunksize=2), 1):
            index.append((file.tell(), len(cubin)))
            file.write(cubin)
            progress(done, len(work))
    with open(os.path.join(folder, _INDEX), "w") as file_json:
        json.dump(index, file_json)


class References:
    """The reference cubins, mapped from the file: all workers share one copy."""

    def __init__(self, slots: list[Slot], folder: str) -> None:
        with open(os.path.join(folder, _INDEX)) as file_json:
            index = iter(json.load(file_json))
        with open(os.path.join(folder, _BINARY), "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._places = [[next(index) for _ in range(slot.variants)] for slot in slots]

    def __len__(self) -> int:
        """Returns the number of slots."""
        return len(self._places)

    def total_bytes(self) -> int:
        """Returns the bytes of all keys with their first variants."""
        return sum(places[0][1] for places in self._places)

    def __getitem__(self, key: int) -> list[bytes]:
        """Returns the cubins of slot number ``key``, by variant."""
        return [self._map[start : start + size] for start, size in self._places[key]]


def _compile(work: tuple[Slot, int]) -> bytes:
    return compile_cubin(*work)
