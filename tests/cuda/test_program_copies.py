# SPDX-License-Identifier: Apache-2.0
"""lockcache.cuda.Program on a directory whose copy lost the records: symbols of templates come back all the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.cuda

pytest.importorskip("cuda.core")

from lockcache import FileStreamProgramCache  # noqa: E402
from lockcache.cuda import Program  # noqa: E402
from tests.cli.command import run  # noqa: E402
from tests.cuda.programs import NAMES, NVVM, PLAIN, TEMPLATE, options  # noqa: E402


def copied(path: Path) -> str:
    """Returns the path of a copy as ``cp -r``, ``tar`` and ``docker COPY`` make it: without extended attributes."""
    copy = f"{path}-copied"
    subprocess.run(["cp", "-r", path, copy], check=True)
    return copy


def compile_template(cache: object, source: str = TEMPLATE) -> dict[str, bytes]:
    compiled = Program(source, "c++", options()).compile("cubin", name_expressions=NAMES, cache=cache)
    return dict(compiled.symbol_mapping)


@pytest.mark.parametrize("more", [{}, {"record_files": True}, {"compile_once": True}, {"fsync": True}], ids=str)
def test_a_copied_cache_gives_symbols_and_keeps_them(cache, cache_path: Path, more: dict[str, bool]) -> None:
    fresh = compile_template(cache)
    Program(PLAIN, "c++", options()).compile("cubin", cache=cache)
    with FileStreamProgramCache(copied(cache_path), **more) as copy:
        assert [compile_template(copy) for _ in range(3)] == [fresh] * 3
        Program(PLAIN, "c++", options()).compile("cubin", cache=copy)
        assert copy.stats().puts == 1, "what has no names is a hit"


def test_a_copied_cache_that_is_only_read_compiles_what_lost_its_symbols(cache, cache_path: Path) -> None:
    fresh = compile_template(cache)
    with FileStreamProgramCache(copied(cache_path), read_only=True) as copy:
        assert [compile_template(copy) for _ in range(2)] == [fresh] * 2
        assert copy.stats().dropped_writes == 2


@pytest.mark.parametrize("is_known", [True, False], ids=["misses copied", "misses lost"])
def test_why_says_that_an_entry_was_there_without_its_record(cache, cache_path: Path, is_known: bool) -> None:
    compile_template(cache)
    cache.close()
    copy = Path(copied(cache_path))
    if not is_known:
        (copy / "lockcache" / "misses").unlink()
    with FileStreamProgramCache(copy) as opened:
        compile_template(opened)
    said = run("why", copy).stdout
    assert "its entry was there without its record and metadata" in said
    assert "had gone" not in said
    assert ("the same key was compiled" in said) is is_known
    assert json.loads(run("why", "--json", copy).stdout)["misses"][0]["replaced"] == "no record"


@pytest.mark.parametrize("code_type", ["nvvm", "ptx"])
def test_names_that_a_compiler_ignores_need_no_symbols(cache, code_type: str) -> None:
    ptx = Program(NVVM, "nvvm", options()).compile("ptx").code.decode().rstrip("\0")
    code, target = (NVVM, "ptx") if code_type == "nvvm" else (ptx, "cubin")
    for _ in range(2):
        Program(code, code_type, options()).compile(target, NAMES, cache=cache)
    assert (cache.stats().hits, cache.stats().puts) == (1, 1)
