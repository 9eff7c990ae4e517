# SPDX-License-Identifier: Apache-2.0
"""The commands on directories of other programs that the daemon can keep: pyptx's, Triton's, any tree of files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache.layouts import pyptx as verifying, triton
from tests.cli.command import run
from tests.daemon import pyptx_crowd, tilelang_format, triton_format, warp_format
from tests.daemon.daemon_process import run_daemon

COUNT = 3


def fill_pyptx(root: Path) -> None:
    pyptx_crowd.store(root, range(COUNT))


def fill_triton(root: Path) -> None:
    for number in range(COUNT):
        triton_format.compile_kernel(root, number)


def fill_warp(root: Path) -> None:
    for number in range(COUNT):
        warp_format.compile_module(root, number)


def fill_tilelang(root: Path) -> None:
    for number in range(COUNT):
        tilelang_format.compile_kernel(root, number)


def fill_tree(root: Path) -> None:
    (root / "deep").mkdir()
    for number in range(COUNT):
        (root / "deep" / f"kernel {number}.bin").write_bytes(b"x" * 9000)
    # Never guessed: a daemon was started with this layout.
    assert run_daemon("--layout", "files", "--max-size", "1G", "--once", root).returncode == 0


FILL: dict[str, Callable[[Path], None]] = {
    "pyptx": fill_pyptx,
    "triton": fill_triton,
    "warp": fill_warp,
    "tilelang": fill_tilelang,
    "files": fill_tree,
}


@pytest.fixture(params=list(FILL))
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def filled(program: str, cache_path: Path) -> Path:
    cache_path.mkdir(mode=0o700)
    FILL[program](cache_path)
    return cache_path


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the clock on: files that were written just now may not go."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)


def found(*words: object) -> Any:
    ended = run(words[0], "--json", *words[1:])
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return json.loads(ended.stdout)


def listed(*words: object) -> list[dict[str, Any]]:
    ended = run("ls", "--json", *words)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return [json.loads(line) for line in ended.stdout.splitlines()]


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_it_is_measured_and_listed_and_nothing_is_changed(program: str, filled: Path) -> None:
    before = everything(filled)
    entries = listed(filled)
    stats = found("stats", filled)
    assert (stats["layout"], stats["entries"], stats["bytes"]) == (
        program, COUNT, sum(entry["size_bytes"] for entry in entries),
    )  # fmt: skip
    assert stats["accounted"] is False
    assert len(listed("--sort", "size", "--limit", "2", filled)) == 2
    assert found("top", "--once", filled)["entries"] == COUNT
    assert found("evict", "--to", "1B", "--dry-run", filled)["would_evict_entries"] == COUNT
    assert everything(filled) == before


@pytest.mark.parametrize("program", ["triton", "warp", "tilelang"], indirect=True)
def test_a_path_is_listed_by_its_last_part_unless_it_is_asked_for(program: str, filled: Path) -> None:
    names = [entry["name"] for entry in listed(filled)]
    short, full = (run("ls", *words, filled).stdout.splitlines()[1:] for words in ([], ["--full"]))
    assert {line[:12].strip() for line in short} == {name.rpartition("/")[2][:12] for name in names}
    assert all(line.startswith(name) for line, name in zip(sorted(full), sorted(names), strict=True))


def test_entries_are_removed_as_the_daemon_removes_them(
    program: str, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "_READING_SECONDS", 0.0)
    if program != "pyptx":  # whose writers stage and lock
        kept = run("clear", "--yes", filled)
        assert (kept.returncode, kept.stderr.split(":")[1]) == (0, f" {COUNT} entries stay")
        assert len(listed(filled)) == COUNT
    later(monkeypatch, 61)
    size = listed(filled)[0]["size_bytes"]
    gone = found("evict", "--to", f"{2 * size + 1000}B", "--yes", filled)
    assert (gone["evicted_entries"], gone["entries"], gone["kept_entries"]) == (1, 2, 0)
    assert found("clear", "--yes", filled)["removed_entries"] == 2
    assert found("stats", filled)["entries"] == 0


def test_a_cap_is_for_the_daemon_to_keep(program: str, filled: Path) -> None:
    ended = run("policy", "set", "--max-size", "10K", filled)
    assert (ended.returncode, ended.stderr.count("\n")) == (0, 1)
    assert f"and {program} obeys no cap" in ended.stderr
    assert json.loads(run("policy", "get", "--json", filled).stdout)["max_size_bytes"] == 10_000
    assert found("stats", filled)["max_size_bytes"] == 10_000


def test_commands_that_do_not_know_it_say_which_do(program: str, filled: Path) -> None:
    for words in (("inspect", "abcd"), ("recount",), ("pack", "/dev/null")):
        ended = run(*words, filled)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert f"is a directory of layout {program}: stats, ls, top" in ended.stderr


@pytest.mark.parametrize("program", ["triton", "warp", "tilelang", "files"], indirect=True)
def test_what_has_no_digest_is_not_called_whole(program: str, filled: Path) -> None:
    ended = run("verify", filled)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"layout {program} records no digest" in ended.stderr


@pytest.mark.parametrize("program", ["pyptx"], indirect=True)
def test_entries_of_pyptx_are_verified_and_only_repair_removes(
    program: str, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "_SETTLED_SECONDS", 0.0)
    path = sorted(filled.glob("*.cubin"))[0]
    status = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    for words, left in ((("verify",), COUNT), (("verify", "--repair"), COUNT - 1)):
        ended = run(*words, "--json", filled)
        said = json.loads(ended.stdout)
        assert (ended.returncode, said["whole"], said["corrupt"]) == (1, COUNT - 1, 1)
        assert [each["entry"] for each in said["found"]] == [path.stem]
        assert len(listed(filled)) == left


@pytest.mark.parametrize("program", ["pyptx"], indirect=True)
def test_what_pyptx_says_of_an_entry_is_shown_and_can_be_asked_for(program: str, filled: Path) -> None:
    [entry] = listed("--label", "kernel 1", filled)
    assert (entry["kind"], entry["arch"], entry["label"]) == ("cubin", "sm_90a", "kernel 1")


@pytest.mark.parametrize("program", ["files"], indirect=True)
def test_a_file_is_listed_by_its_path(program: str, filled: Path) -> None:
    shown = run("ls", "--sort", "name", filled).stdout.splitlines()[1:]
    assert [line.split(maxsplit=3)[-1] for line in shown] == [f"deep/kernel {number}.bin" for number in range(COUNT)]


def test_a_tree_that_no_daemon_kept_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for words in (("stats",), ("clear", "--yes"), ("evict", "--to", "1B", "--yes")):
        ended = run(*words, tmp_path)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == f"lockcache: {tmp_path}: holds other files (notes.txt) and is not a cache\n"
    assert everything(tmp_path) == {"notes.txt"}


@pytest.mark.parametrize("program", ["files"], indirect=True)
def test_a_tree_in_which_somebody_works_is_left_alone(
    program: str, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (filled / "deep" / ".git").mkdir()
    later(monkeypatch, 61)
    for words in (("clear", "--yes"), ("evict", "--to", "1B", "--yes")):
        ended = run(*words, filled)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "holds deep/.git: that is not a cache" in ended.stderr
    assert len(list((filled / "deep").glob("*.bin"))) == COUNT
