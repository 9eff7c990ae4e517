# SPDX-License-Identifier: Apache-2.0
"""Times warm kernels in Triton's own cache and in lockcache, by turns in one process."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.cache import FileCacheManager, get_cache_manager
from triton_program import kernel

from lockcache.integrations.triton import LockcacheManager

ROUNDS, KERNELS = 40, 8
TARGET = GPUTarget("cuda", 90, 32)


def source(number: int) -> ASTSource:
    signature = {"p": "*i32", "constant": "constexpr"}
    return ASTSource(fn=kernel, signature=signature, constexprs={(1,): number * 7919 + 100_003})


def compile_seconds(manager: type, number: int) -> float:
    """Returns the seconds that a program waits for ``triton.compile``."""
    knobs.cache.manager_class = manager
    began = time.perf_counter()
    triton.compile(source(number), target=TARGET)
    return time.perf_counter() - began


def read_seconds(manager: type, key: str) -> float:
    """Returns the seconds of a look-up in the cache and of reading its files."""
    knobs.cache.manager_class = manager
    began = time.perf_counter()
    found = get_cache_manager(key).get_group("kernel.json")
    for path in found.values():
        Path(path).read_bytes()
    return time.perf_counter() - began


keys = [triton.compile(source(number), target=TARGET).hash for number in range(KERNELS)]
for manager in (FileCacheManager, LockcacheManager):
    for number in range(KERNELS):
        compile_seconds(manager, number)
found = {"compile": {"own": [], "ours": []}, "read": {"own": [], "ours": []}}
for _ in range(ROUNDS):
    for number, key in enumerate(keys):
        for name, manager in (("own", FileCacheManager), ("ours", LockcacheManager)):
            found["compile"][name].append(compile_seconds(manager, number))
            found["read"][name].append(read_seconds(manager, key))
print(
    json.dumps(
        {what: {name: statistics.median(seconds) for name, seconds in each.items()} for what, each in found.items()}
    )
)
