# SPDX-License-Identifier: Apache-2.0
"""The first example of the README on a directory of root's that its user may only read."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.access.group_members import MALLORY, run_as

pytestmark = [pytest.mark.cuda, pytest.mark.root]

cuda_core = pytest.importorskip("cuda.core")

from cuda.core import ProgramOptions  # noqa: E402

from lockcache import FileStreamProgramCache, ProgramCacheResource  # noqa: E402
from lockcache.cuda import Program  # noqa: E402

STORED = 'extern "C" __global__ void stored(int *p) { *p = 1; }'
NEW = 'extern "C" __global__ void added(int *p) { *p = 2; }'
PROGRAMS = {"cuda.core": cuda_core.Program, "lockcache.cuda": Program}


def compiled(kind: str, code: str, cache: ProgramCacheResource | None) -> bytes:
    return bytes(PROGRAMS[kind](code, "c++", ProgramOptions(arch="sm_90")).compile("cubin", cache=cache).code)


@pytest.fixture
def golden() -> Iterator[Path]:
    """A cache of root's that everybody may read."""
    with tempfile.TemporaryDirectory(prefix="lockcache-test-") as parent:
        os.chmod(parent, 0o755)
        path = Path(parent, "cache")
        with FileStreamProgramCache(path) as cache:
            for kind in PROGRAMS:
                compiled(kind, STORED, cache)
        subprocess.run(["chmod", "-R", "a+rX", str(path)], check=True)
        yield path


def used(path: Path, kind: str, **arguments: object) -> Callable[[], tuple[bytes, bytes, int, int]]:
    def use() -> tuple[bytes, bytes, int, int]:
        with FileStreamProgramCache(path, **arguments) as cache:  # type: ignore[arg-type]
            found, new = compiled(kind, STORED, cache), compiled(kind, NEW, cache)
            return found, new, cache.stats().hits, cache.stats().dropped_writes

    return use


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("compile_once", [False, True])
def test_another_user_gets_what_is_stored_and_what_he_compiles(golden: Path, kind: str, compile_once: bool) -> None:
    expected = compiled(kind, STORED, None), compiled(kind, NEW, None)
    *codes, hits, dropped = run_as(MALLORY, used(golden, kind, compile_once=compile_once))
    assert (*codes, hits, dropped) == (*expected, 1, 1)
    with pytest.raises(PermissionError, match="read_only=False asks for both"):
        run_as(MALLORY, used(golden, kind, read_only=False))
