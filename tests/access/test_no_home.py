# SPDX-License-Identifier: Apache-2.0
"""Users without a home, as containers with random uids have them: each program says what to set."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, LockcacheError, NoDefaultDirError, SQLiteProgramCache
from lockcache.arguments import warn_once
from lockcache.cli import program
from lockcache.integrations import pyptx
from lockcache.integrations.adapter import install, open_shared
from lockcache_daemon import command as daemon
from tests.access.group_members import MALLORY, run_as

pytestmark = pytest.mark.root

#: The environment of such a user; the first cannot name a directory, the others can make none there.
HOMELESS = [{}, {"HOME": "/"}, {"HOME": "/nonexistent"}, {"XDG_CACHE_HOME": "/nonexistent"}]
NAMELESS: dict[str, str] = HOMELESS[0]


def as_homeless(work: Callable[[], Any], home: dict[str, str] = NAMELESS, **variables: str) -> Any:
    """Returns the result of ``work`` in a process of a user without a home, and the warnings that it logged."""

    def child() -> tuple[Any, list[str]]:
        os.environ.clear()
        os.environ.update({"PATH": os.defpath, "LOCKCACHE_DIR": "", **home, **variables})
        warn_once.cache_clear()
        logged, log = _Logged(), logging.getLogger("lockcache")
        log.addHandler(logged)
        return work(), logged.lines

    return run_as(MALLORY, child)


class _Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def said_by(main: Callable[[Sequence[str]], int], *words: str) -> Callable[[], tuple[int, str]]:
    """Returns a function that runs a program, and returns its exit code and what it wrote to stderr."""

    def work() -> tuple[int, str]:
        err = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            return main(words), err.getvalue()

    return work


#: Those who are to have a directory below a home that is not there, and the words that say so.
TILDE: list[tuple[dict[str, str], str]] = [
    ({"LOCKCACHE_DIR": "~/x"}, "LOCKCACHE_DIR is '~/x', and no home directory"),
    ({"LOCKCACHE_DIR": "~"}, "LOCKCACHE_DIR is '~', and no home directory"),
    ({"LOCKCACHE_DIR": "~/x", "HOME": "here"}, "LOCKCACHE_DIR is '~/x', and HOME is 'here', not an absolute path"),
    ({"LOCKCACHE_DIR": "~nobody-here/x"},
     "LOCKCACHE_DIR is '~nobody-here/x', and there is no user 'nobody-here' with a home directory"),
]  # fmt: skip
SET_IT = ": set it to an absolute path"


@pytest.mark.parametrize("variables, why", TILDE, ids=str)
def test_a_variable_below_no_home_is_like_no_home(variables: dict[str, str], why: str) -> None:
    def use() -> tuple[bytes, int, str]:
        for kind in (FileStreamProgramCache, SQLiteProgramCache, FileStreamProgramCache):
            with kind() as cache:
                code = cache.get_or_compute("k", lambda: b"code")
        with pytest.raises(NoDefaultDirError) as caught:
            FileStreamProgramCache(read_only=False)
        return code, len(cache), str(caught.value)

    found, warnings = as_homeless(use, variables)
    assert found == (b"code", 0, why + SET_IT)
    assert warnings == [f"{why}{SET_IT}; this program stores nothing"]


@pytest.mark.parametrize("variables, why", TILDE, ids=str)
def test_commands_name_a_variable_below_no_home(variables: dict[str, str], why: str) -> None:
    (code, said), _ = as_homeless(said_by(program.run, "run", "--", "sh", "-c", "exit $LOCKCACHE_DISABLE"), variables)
    assert (code, said) == (1, f"lockcache: {why}{SET_IT}; the command goes on without lockcache\n")
    for words in COMMANDS:
        assert as_homeless(said_by(program.run, *words), variables)[0] == (2, f"lockcache: {why}{SET_IT}\n")
    (code, said), _ = as_homeless(said_by(daemon.run, "--once", "--max-size", "1G"), variables)
    assert (code, said) == (2, f"lockcache-daemon: DIR: {why}{SET_IT}\n")


@pytest.mark.parametrize(
    "path, advice",
    [
        ("~/x", "no home directory; name an absolute path"),
        ("~nobody-here/x", "home directory; for a name that begins with ~ write ./~nobody-here/x"),
    ],
)
def test_a_path_that_a_caller_names_below_no_home_is_a_mistake(path: str, advice: str) -> None:
    def use() -> str:
        with pytest.raises(ValueError, match="home directory") as caught:
            FileStreamProgramCache(path)
        assert said_by(program.run, "run", "--dir", path, "--", "true")()[0] == 2
        return str(caught.value)

    found, warnings = as_homeless(use)
    assert found.endswith(advice)
    assert warnings == []


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME"])
def test_a_home_that_is_not_absolute_is_named(name: str) -> None:
    said = f"{name} is 'here', not an absolute path: set LOCKCACHE_DIR or name a directory"
    (code, words), _ = as_homeless(said_by(program.run, "stats"), {name: "here"})
    assert (code, words) == (2, f"lockcache: {said}\n")
    found, [warning] = as_homeless(lambda: FileStreamProgramCache().get("k"), {name: "here"})
    assert (found, warning) == (None, f"{said}; this program stores nothing")


@pytest.mark.parametrize("home", HOMELESS, ids=str)
def test_a_cache_keeps_nothing_and_warns_once(home: dict[str, str]) -> None:
    def use() -> tuple[bytes, bytes | None, int, int]:
        for _ in range(2):
            with FileStreamProgramCache() as cache:
                code = cache.get_or_compute("k", lambda: b"code")
                cache["other"] = b"code"
                stats = cache.stats()
        return code, cache.get("k"), stats.misses, stats.dropped_writes

    found, warnings = as_homeless(use, home)
    assert found == (b"code", None, 1, 2)
    [warning] = warnings
    assert "set LOCKCACHE_DIR" in warning


def test_sqlite_keeps_nothing_and_warns_once() -> None:
    def use() -> tuple[bytes, int]:
        SQLiteProgramCache().close()
        with SQLiteProgramCache() as cache:
            return cache.get_or_compute("k", lambda: b"code"), len(cache)

    found, [warning] = as_homeless(use)
    assert found == (b"code", 0)
    assert "set LOCKCACHE_DIR" in warning


def test_pyptx_keeps_its_entries_in_memory_and_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    key = pyptx.CacheKey("f", (), (), "sm_90")

    def use() -> tuple[str, bool]:
        pyptx.DEFAULT_CACHE_DIR = pyptx._find_default()
        pyptx.CubinCache()
        cache = pyptx.CubinCache()
        cache.put(pyptx.CacheEntry(key, "ptx", None))
        found = cache.get(key)
        assert found is not None
        return found.ptx_source, cache.stats().entries == 1

    found, [warning] = as_homeless(use)
    assert found == ("ptx", True)
    assert "set PYPTX_CACHE_DIR" in warning


def test_who_asks_for_a_directory_to_write_to_gets_an_error() -> None:
    def use() -> str:
        with pytest.raises(LockcacheError) as caught:
            FileStreamProgramCache(read_only=False)
        assert isinstance(caught.value, OSError)
        return str(caught.value)

    assert as_homeless(use) == ("no home directory: set LOCKCACHE_DIR or name a directory", [])


def test_a_framework_goes_on_with_its_own_cache_and_one_warning() -> None:
    def use() -> list[bool]:
        return [install("some", lambda: open_shared("some", "1.0", None, None)) for _ in range(2)]

    found, [warning] = as_homeless(use)
    assert found == [False, False]
    assert "some goes on with its own cache" in warning
    assert "set LOCKCACHE_DIR" in warning


@pytest.mark.parametrize("home", HOMELESS, ids=str)
def test_lockcache_run_runs_its_command_and_says_why_it_does_nothing_else(home: dict[str, str]) -> None:
    (code, said), _ = as_homeless(said_by(program.run, "run", "--", "sh", "-c", "exit $LOCKCACHE_DISABLE"), home)
    assert code == 1
    assert "set LOCKCACHE_DIR or name a directory; the command goes on without lockcache" in said
    assert said.count("\n") == 1


COMMANDS = [
    ["clear", "--yes"], ["config"], ["doctor"], ["evict", "--to", "1G"], ["inspect", "3f2a"], ["ls"], ["pack", "-"],
    ["path"], ["policy", "get"], ["recount"], ["rm", "3f2a"], ["stats"], ["top", "--once"], ["verify"], ["why", "k"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_command_says_in_one_line_what_to_set(words: list[str]) -> None:
    (code, said), _ = as_homeless(said_by(program.run, *words))
    assert (code, said) == (2, "lockcache: no home directory: set LOCKCACHE_DIR or name a directory\n")


def test_the_daemon_says_in_one_line_what_to_set() -> None:
    (code, said), _ = as_homeless(said_by(daemon.run, "--once", "--max-size", "1G"))
    assert code == 2
    assert said == "lockcache-daemon: DIR: no home directory: set LOCKCACHE_DIR or name a directory\n"


def test_a_new_directory_on_a_disk_without_inodes_keeps_nothing_and_warns_once(
    mount_tmpfs: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    disk = mount_tmpfs("size=1m,nr_inodes=2")
    (disk / "file").touch()
    warn_once.cache_clear()
    for _ in range(2):
        with FileStreamProgramCache(disk / "cache") as cache:
            assert cache.get_or_compute("k", lambda: b"code") == b"code"
    with pytest.raises(OSError, match="No space left"):
        FileStreamProgramCache(disk / "cache", read_only=False)
    assert [record.getMessage() for record in caplog.records] == [
        f"{disk}/cache: No space left on device; this program stores nothing"
    ]
