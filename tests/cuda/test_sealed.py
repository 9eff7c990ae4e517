# SPDX-License-Identifier: Apache-2.0
"""A sealed process that compiles with the real NVRTC and links with the real nvJitLink."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cuda

cuda_core = pytest.importorskip("cuda.core")

from cuda.core import ProgramOptions  # noqa: E402

import lockcache  # noqa: E402
from lockcache import FileStreamProgramCache, SealedError  # noqa: E402
from lockcache.cuda import Linker, Program  # noqa: E402
from tests.cli.command import run  # noqa: E402
from tests.cuda.objects import CHANGED_HELPER, HELPER, KERNEL, linker_options, units  # noqa: E402
from tests.serving_support import logging_all, reports, unsealed_process  # noqa: E402

SOURCE = 'extern "C" __global__ void gemm(float *x) { x[0] = %d; }'


@pytest.fixture(autouse=True)
def not_sealed(caplog: Any) -> Iterator[None]:
    logging_all(caplog)
    with unsealed_process():
        yield


def compile_(cache: Any, arch: str, number: int = 1, kind: Any = Program, **options: Any) -> Any:
    program = kind(SOURCE % number, "c++", ProgramOptions(arch=arch, **options))
    return program.compile("cubin", cache=cache)


def test_a_program_is_refused_before_nvrtc_sees_it(cache: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_(cache, "sm_90")
    lockcache.seal("error")
    monkeypatch.setattr(Program, "_compile_now", None)
    compile_(cache, "sm_90")
    with pytest.raises(SealedError, match="in option arch: sm_80 / sm_90"):
        compile_(cache, "sm_80")
    with pytest.raises(SealedError, match="it cannot be cached: options"):
        compile_(cache, "sm_90", time="/dev/null")
    monkeypatch.undo()
    lockcache.unseal()
    assert compile_(cache, "sm_80").code


def test_cuda_cores_own_program_is_seen_when_it_stores(cache: Any, caplog: Any) -> None:
    lockcache.seal()
    compile_(cache, "sm_90", kind=cuda_core.Program)
    compile_(cache, "sm_90", kind=cuda_core.Program)
    assert len(reports(caplog)) == 1
    lockcache.seal("error")
    with pytest.raises(SealedError, match="was compiled"):
        compile_(cache, "sm_90", 2, kind=cuda_core.Program)
    assert compile_(cache, "sm_90", 2, kind=cuda_core.Program).code, "it was stored"


def test_cuda_cores_own_program_is_refused_before_it_compiles_if_lookups_take_turns(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, compile_once=True)
    compile_(cache, "sm_90", kind=cuda_core.Program)
    lockcache.seal("error")
    assert compile_(cache, "sm_90", kind=cuda_core.Program).code
    with pytest.raises(SealedError, match="would be compiled"):
        compile_(cache, "sm_90", 2, kind=cuda_core.Program)
    assert cache.stats().entries == 1


def test_a_link_is_reported_and_refused(cache: Any, caplog: Any) -> None:
    def link(helper: str) -> Any:
        return Linker(*units("cubin", KERNEL, helper), options=linker_options()).link("cubin", cache=cache)

    lockcache.seal()
    link(HELPER)
    link(HELPER)
    assert len(reports(caplog)) == 1
    lockcache.seal("error")
    link(HELPER)
    with pytest.raises(SealedError):
        link(CHANGED_HELPER)


SERVER = """
import sys
from cuda.core import ProgramOptions
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program
cache = FileStreamProgramCache()
for number in sys.argv[1:]:
    source = 'extern "C" __global__ void gemm(float *x) { x[0] = %s; }' % number
    Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin", cache=cache)
"""


def serve(cache_path: Path, *numbers: int, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SERVER, *map(str, numbers)]
    environment = {**os.environ, "LOCKCACHE_DIR": str(cache_path), **variables}
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=120)


def test_what_a_sealed_process_missed_becomes_a_bundle_by_one_command(cache_path: Path, tmp_path: Path) -> None:
    missed, bundle = tmp_path / "missed.manifest", tmp_path / "missed.lcb"
    assert serve(cache_path, 1, 2).returncode == 0
    ended = serve(cache_path, 1, 3, 2, 4, LOCKCACHE_SEALED="warn", LOCKCACHE_SEAL_MANIFEST=str(missed))
    assert (ended.returncode, ended.stderr.count("compiled while sealed: gemm")) == (0, 2)
    made = run("bundle", "make", "--manifest", missed, "-o", bundle, cache_path)
    assert (made.returncode, made.stderr) == (0, "")
    # A new node that has the bundle compiles what it missed then no more, and the rest is refused.
    seeded = {"LOCKCACHE_SEALED": "error", "LOCKCACHE_SEED": str(bundle), "LOCKCACHE_SEAL_MANIFEST": ""}
    assert serve(tmp_path / "new", 3, 4, **seeded).returncode == 0
    refused = serve(tmp_path / "new", 1, **seeded)
    assert refused.returncode == 1
    assert "SealedError: this process is sealed, and gemm" in refused.stderr
    assert "in code: changed" in refused.stderr
    # And a manifest of other jobs takes the names.
    merged = run("manifest", "merge", "-o", tmp_path / "all.manifest", missed)
    assert merged.returncode == 0
    assert len(run("manifest", "ls", tmp_path / "all.manifest", cache_path).stdout.splitlines()) == 3
