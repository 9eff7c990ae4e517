# SPDX-License-Identifier: Apache-2.0
"""Programs with headers, compiled with and without a server."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("cuda.core")

from cuda.core import ProgramOptions
from cuda.pathfinder import find_nvidia_header_directory

from lockcache import FileStreamProgramCache
from lockcache.compile_server import Request, identity_here
from lockcache.cuda import Program
from lockcache.keys import versions, working_directory

HALF = "#include <cuda_fp16.h>\n"


class Result(NamedTuple):
    code: bytes
    mapping: dict[Any, Any]
    log: str
    #: What a hit gives, from what was stored.
    hit: tuple[bytes, dict[Any, Any], str]


def cudart() -> str:
    found = find_nvidia_header_directory("cudart")
    assert found is not None
    return str(found)


def kernel(number: int) -> str:
    return f'{HALF}extern "C" __global__ void k(__half *x) {{ int unused; *x = __float2half({number}.f); }}\n'


def request() -> Request:
    """Returns what :func:`compiled` asks a server for :func:`kernel`."""
    path = versions.nvrtc_path()
    assert path is not None
    options = ProgramOptions(arch="sm_90", include_path=cudart()).as_bytes("nvrtc", "cubin")
    directories: list[Any] = working_directory()
    return Request(
        path, versions.nvrtc().hex(), tuple(map(os.fsdecode, options)), "default_program", "cubin", HALF,
        tuple(map(os.fsdecode, directories)), identity_here(), (),
    )  # fmt: skip


def compiled(
    source: str, folder: Path, mode: str, target: str = "cubin", names: tuple[Any, ...] = (), **options: Any
) -> Result:
    """Compile in a new cache with ``$LOCKCACHE_COMPILE_SERVER`` set to ``mode``."""
    given = ProgramOptions(**{"arch": "sm_90", "include_path": cudart(), **options})
    before = os.environ.get("LOCKCACHE_COMPILE_SERVER", "off")
    os.environ["LOCKCACHE_COMPILE_SERVER"] = mode
    try:
        with FileStreamProgramCache(folder) as cache:
            made, hit = [_once(cache, source, given, target, names) for _ in range(2)]
            assert cache.stats().hits == 1
    finally:
        os.environ["LOCKCACHE_COMPILE_SERVER"] = before
    return Result(*made, hit)


def _once(
    cache: FileStreamProgramCache, source: str, options: ProgramOptions, target: str, names: tuple[Any, ...]
) -> tuple[bytes, dict[Any, Any], str]:
    log = io.StringIO()
    found = Program(source, "c++", options).compile(target, names, log, cache=cache)
    return bytes(found.code), dict(found.symbol_mapping), log.getvalue()


def children_of(pid: int) -> list[int]:
    """Returns the processes that a process started and that are there."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_running(pid: int) -> bool:
    """Returns whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
