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


@pytest.mark.parametrize("kind", PROGRAMS)
def test_so_does_root_on_a_read_only_mount(golden: Path, kind: str) -> None:
    expected = compiled(kind, STORED, None), compiled(kind, NEW, None)
    subprocess.run(["mount", "--bind", golden, golden], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", golden], check=True)
        assert used(golden, kind)() == (*expected, 1, 1)
    finally:
        subprocess.run(["umount", "-l", golden], check=True)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_with_caches_switched_off_programs_just_compile(
    golden: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = compiled(kind, STORED, None), compiled(kind, NEW, None)
    monkeypatch.setenv("LOCKCACHE_DISABLE", "1")
    *codes, hits, _ = used(golden, kind)()
    assert (*codes, hits) == (*expected, 0)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_is_renewed_replaces_what_is_stored(golden: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [*files] = [file for file in golden.glob("entries/*/*") if file.is_file()]
    before = {file: file.stat().st_ino for file in files}
    monkeypatch.setenv("LOCKCACHE_RECACHE", "1")
    with FileStreamProgramCache(golden) as cache:
        assert compiled(kind, STORED, cache) == compiled(kind, STORED, cache) == compiled(kind, STORED, None)
        assert (cache.stats().puts, cache.stats().hits) == (1, 1)
    assert sum(file.stat().st_ino != inode for file, inode in before.items()) == 1
