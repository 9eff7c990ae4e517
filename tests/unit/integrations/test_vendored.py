# SPDX-License-Identifier: Apache-2.0
"""The file that an engine copies: with lockcache and without it, the same calls and the same keys."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.integrations import vendored
from lockcache.integrations.vendored import OnLockcache, PlainDirectory, make_key, open_cache

KEY = make_key("my-engine 3", "source", b"options", "nvrtc 13.5", "sm_90")
_ALONE = """
import sys
import vendored
assert not any(name.startswith("lockcache") for name in sys.modules)
cache = vendored.open_cache(path=sys.argv[1])
key = vendored.make_key("my-engine 3", "source", b"options", "nvrtc 13.5", "sm_90")
print(type(cache).__name__, key.hex(), cache.get_or_compute(key, lambda: b"cubin").decode())
"""


@pytest.fixture(params=["lockcache", "plain"])
def cache(request: pytest.FixtureRequest, cache_path: Path) -> PlainDirectory | OnLockcache:
    return open_cache(path=cache_path) if request.param == "lockcache" else PlainDirectory(cache_path)


def _fail() -> bytes:
    raise AssertionError("it was compiled again")


def test_what_was_computed_is_found_by_another_process_or_object(
    cache: PlainDirectory | OnLockcache, cache_path: Path
) -> None:
    assert cache.get(KEY) is None
    assert cache.get_or_compute(KEY, lambda: b"cubin") == b"cubin"
    assert cache.get_or_compute(KEY, _fail) == b"cubin"
    again = PlainDirectory(cache_path) if isinstance(cache, PlainDirectory) else open_cache(path=cache_path)
    assert again.get(KEY) == b"cubin"
    again.put(KEY, b"other")
    assert cache.get(KEY) == b"other"


def test_an_error_of_the_compiler_is_the_programs_and_an_empty_result_is_not_stored(
    cache: PlainDirectory | OnLockcache,
) -> None:
    with pytest.raises(AssertionError, match="compiled again"):
        cache.get_or_compute(KEY, _fail)
    assert cache.get_or_compute(KEY, lambda: b"") == b""
    assert cache.get_or_compute(KEY, lambda: b"cubin") == b"cubin"


def test_it_is_lockcache_where_that_is_installed(cache_path: Path) -> None:
    assert isinstance(open_cache(path=cache_path), OnLockcache)
    open_cache(path=cache_path).put(KEY, b"cubin")
    with FileStreamProgramCache(cache_path) as directory:
        assert directory[KEY] == b"cubin"


@pytest.mark.slow
def test_a_copy_without_lockcache_runs_by_itself_with_the_same_keys(tmp_path: Path) -> None:
    shutil.copy(vendored.__file__, tmp_path / "vendored.py")
    for _ in range(2):
        # Neither site-packages nor PYTHONPATH: the standard library alone, and the copy.
        command = [sys.executable, "-S", "-E", "-c", _ALONE, tmp_path / "kernels"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.split() == ["PlainDirectory", KEY.hex(), "cubin"]


def _damage(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")


def _cut(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:10])


def _empty(entry: Path) -> None:
    entry.write_bytes(b"")


def _link(entry: Path) -> None:
    entry.rename(entry.with_suffix(".moved"))
    entry.symlink_to(entry.with_suffix(".moved"))


def _pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


def _folder(entry: Path) -> None:
    entry.unlink()
    entry.mkdir()


@pytest.mark.parametrize("change", [_damage, _cut, _empty, _link, _pipe, _folder], ids=lambda change: change.__name__)
def test_what_is_not_the_whole_entry_is_a_miss(change: Callable[[Path], None], cache_path: Path) -> None:
    cache = PlainDirectory(cache_path)
    cache.put(KEY, b"cubin")
    [entry] = (path for path in cache_path.rglob("*") if path.is_file())
    change(entry)
    assert cache.get_or_compute(KEY, lambda: b"compiled") == b"compiled"


def test_an_entry_of_another_key_is_a_miss(cache_path: Path) -> None:
    cache = PlainDirectory(cache_path)
    cache.put(KEY, b"cubin")
    other = make_key("other")
    [entry] = (path for path in cache_path.rglob("*") if path.is_file())
    target = cache_path / "plain" / other.hex()[:2] / other.hex()[2:]
    target.parent.mkdir(exist_ok=True)
    entry.rename(target)
    assert cache.get(other) is None


def test_a_directory_that_cannot_be_made_costs_the_entry_and_not_the_program(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = PlainDirectory(tmp_path / "file")
    assert cache.get_or_compute(KEY, lambda: b"cubin") == b"cubin"


def test_keys_differ_where_any_part_does() -> None:
    keys = [
        make_key("ab", "c"),
        make_key("a", "bc"),
        make_key("abc"),
        make_key(b"abc"),
        make_key("abc", ""),
        make_key(),
    ]
    assert len(set(keys)) == len(keys)


def _write_for_ever(path: Path, begun: Any) -> None:
    cache = PlainDirectory(path)
    for number in range(10**9):
        cache.put(KEY, bytes([number % 256]) * 300_000)
        begun.set()


@pytest.mark.slow
def test_readers_see_whole_entries_next_to_writers_that_are_killed(cache_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    cache = PlainDirectory(cache_path)
    for _ in range(3):
        begun = context.Event()
        writer = context.Process(target=_write_for_ever, args=(cache_path, begun))
        writer.start()
        assert begun.wait(60)
        for _ in range(100):
            found = cache.get(KEY)
            assert found is not None
            assert len(found) == 300_000
            assert found == found[:1] * 300_000
        writer.kill()
        writer.join()
        assert cache.get(KEY) is not None


def test_it_is_short_enough_to_read_and_needs_nothing_else() -> None:
    text = Path(vendored.__file__).read_text()
    assert len(text.splitlines()) <= 150
    imported = {
        line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))
    }
    assert imported <= {*sys.stdlib_module_names, "__future__"}
