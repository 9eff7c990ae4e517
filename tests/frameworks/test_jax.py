# SPDX-License-Identifier: Apache-2.0
"""JAX on lockcache: what JAX does not store nobody waits for, and JAX's own cache where lockcache stores nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.frameworks.support import Programs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

#: A program without a line of lockcache. It prints, for each program that XLA compiles, how many turns others wait for.
PROGRAM = """
import json, os, sys
import jax, numpy as np
from jax._src import compiler

# In JAX 0.4 it has another name.
name = "backend_compile_and_load" if hasattr(compiler, "backend_compile_and_load") else "backend_compile"
turns, compile_ = [], getattr(compiler, name)

def counted(*args, **options):
    leases = f"{os.environ['LOCKCACHE_DIR']}/lockcache/leases"
    turns.append(len(os.listdir(leases)) if os.path.isdir(leases) else 0)
    return compile_(*args, **options)

setattr(compiler, name, counted)
exec(sys.argv[2])
for number in range(int(sys.argv[1])):
    jax.jit(lambda x: x * 3 + number).lower(np.ones(3, np.float32)).compile()
print(json.dumps(turns))
"""
BY_ENTRY_POINT = {"LOCKCACHE_JAX": "1"}


def compiled(programs: Programs, number: int, line: str = "", **variables: str) -> list[int]:
    """For each program of ``number`` that was compiled, how many turns there were then. ``line`` is run before."""
    found: list[int] = json.loads(programs.call("-c", PROGRAM, str(number), line, **BY_ENTRY_POINT | variables))
    return found


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs("jax", tmp_path)


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """The variable that has JAX keep a cache of its own."""
    return {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "own")}


def test_jax_finds_the_adapter_by_its_entry_point_if_a_variable_says_so(programs: Programs) -> None:
    assert compiled(programs, 2, LOCKCACHE_JAX="0") == compiled(programs, 2, LOCKCACHE_JAX="") == [0, 0]
    assert not programs.directory.exists()
    assert compiled(programs, 2) == [1, 1]
    assert compiled(programs, 2) == []


def test_what_jax_finds_too_cheap_to_store_is_not_stored_and_nobody_waits(programs: Programs) -> None:
    variables = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000"}
    for _ in range(2):
        assert compiled(programs, 2, **variables) == [0, 0]
    compiled(programs, 1)
    assert compiled(programs, 2, **variables) == [0], "what is there is read"


def test_the_second_process_of_a_distributed_program_reads_and_stores_nothing(programs: Programs) -> None:
    second = "jax.devices(); from jax._src import distributed; distributed.global_state.process_id = 1"
    for _ in range(2):
        assert compiled(programs, 2, second) == [0, 0]
    compiled(programs, 1)
    assert compiled(programs, 2, second) == [0]


def test_where_lockcache_is_off_jax_keeps_its_own_cache(programs: Programs, own: dict[str, str]) -> None:
    for turns in ([0, 0], []):
        assert compiled(programs, 2, LOCKCACHE_DISABLE="1", **own) == turns
    assert not programs.directory.exists()


def test_behind_a_directory_that_is_only_read_jax_keeps_its_own_cache(programs: Programs, own: dict[str, str]) -> None:
    for turns in ([0], []):
        assert compiled(programs, 1, LOCKCACHE_READONLY="1", **own) == turns
    assert not programs.directory.exists()
    assert compiled(programs, 2) == [1, 1]
    for turns in ([0], []):
        assert compiled(programs, 3, LOCKCACHE_READONLY="1", **own) == turns
    assert compiled(programs, 3) == [1], "nothing was stored in it"


@pytest.mark.parametrize("name", ["own", "later"])
def test_after_a_failure_jax_goes_on_with_the_cache_that_the_program_names_by_then(
    programs: Programs, own: dict[str, str], tmp_path: Path, name: str
) -> None:
    line = f"""
from lockcache.integrations.adapter import installed
from lockcache.integrations.jax import install
install()
if {name == "later"}:
    jax.config.update("jax_compilation_cache_dir", {str(tmp_path / name)!r})
installed("jax").has_failed = True
"""
    for turns in ([0, 0], []):
        assert compiled(programs, 2, line, **own) == turns
    assert {path.name for path in tmp_path.iterdir() if path.name in ("own", "later")} == {name}


def test_a_program_that_calls_back_takes_no_turn(programs: Programs) -> None:
    for compiled in (2, 1):  # the first one is compiled by each process, as without lockcache
        [found] = programs.run(1, range(2), program="jax_callbacks")
        assert (found["wrong"], found["failed"]) == (0, 0), found
        assert found["compiled"] == compiled


@pytest.mark.parametrize("kind", ["own", "lockcache"])
def test_jax_compares_what_it_compiles_with_what_is_stored_if_its_option_says_so(
    programs: Programs, own: dict[str, str], kind: str
) -> None:
    has_error = "from jax._src import compilation_cache as c; print(hasattr(c, 'CacheVerificationError'))"
    if programs.call("-c", has_error) == "False\n":
        pytest.skip(
            "this JAX has no such option, or (0.9.1) warns, of each program for the CPU even with its own cache"
        )
    variables = {"JAX_COMPILATION_CACHE_CHECK_CONTENTS": "1"}
    variables |= {"LOCKCACHE_DISABLE": "1", **own} if kind == "own" else {}
    assert len(compiled(programs, 2, **variables)) == 2
    before = stored(programs.directory)
    assert compiled(programs, 2, **variables) == [0, 0], "each is compiled once more, and nobody waits"
    assert stored(programs.directory) == before
    other = "from jax._src import compilation_cache as c; f = c.combine_executable_and_time; "
    other += "c.combine_executable_and_time = lambda executable, seconds: f(executable + b'other', seconds)"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        compiled(programs, 2, other, **variables)
    assert "CacheVerificationError: Persistent compilation cache inconsistency for key" in failed.value.stderr


@pytest.mark.parametrize("xla_caches", ["xla_gpu_per_fusion_autotune_cache_dir", "all", "none"])
def test_what_jax_stored_itself_is_found_after_an_import(
    programs: Programs, own: dict[str, str], tmp_path: Path, xla_caches: str
) -> None:
    own["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = xla_caches
    assert compiled(programs, 2, LOCKCACHE_JAX="0", **own) == [0, 0]
    found = json.loads(programs.call("-m", "lockcache", "import-jax", "--json", str(tmp_path / "own")))
    assert (found["imported"], found["damaged"]) == (2, 0)
    assert compiled(programs, 3, **own) == [1], "only what is new"
    (tmp_path / "own").rename(tmp_path / "away")
    assert compiled(programs, 3) == [], "all of it has the adapter's keys now"


def test_what_was_imported_is_found_where_nothing_is_stored(programs: Programs, own: dict[str, str]) -> None:
    assert compiled(programs, 1, LOCKCACHE_JAX="0", **own) == [0]
    programs.call("-m", "lockcache", "import-jax", own["JAX_COMPILATION_CACHE_DIR"])
    before = stored(programs.directory)
    assert compiled(programs, 1, LOCKCACHE_READONLY="1", **own) == []
    expensive = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000"}
    assert compiled(programs, 1, **expensive, **own) == []
    assert stored(programs.directory) == before


def stored(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Returns the entries of a directory by name: of each the inode and the content."""
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in directory.glob("entries/*/*")}
