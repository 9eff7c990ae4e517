# SPDX-License-Identifier: Apache-2.0
"""``lockcache ls``, run as an operator runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from tests.cli.command import LOCKCACHE, give_to_somebody, run, run_as_somebody
from tests.cli.terminal import OnTerminal

PTX = b"// Cuda compilation tools, release 12.4, V12.4.1\n.version 8.4\n.target sm_75\n"


@pytest.fixture
def filled(cache_path: Path) -> Path:
    """a: oldest, most expensive. b: largest. c: only its bytes tell what it is."""
    with FileStreamProgramCache(cache_path) as cache:
        cache.put_entry("a", Entry(b"x" * 10, {"kind": "cubin", "arch": "sm_90", "compile_cost_ns": 2 * 10**9}))
        cache.put_entry("b", Entry(b"x" * 5000, {"kind": "ltoir", "arch": "sm_100a", "compiler": "nvrtc 13.5"}))
        cache["c"] = PTX
    for place, key in enumerate(b"abc"):
        use_ns = (1_000 + place) * 10**9
        os.utime(path_of(cache_path, bytes([key])), ns=(use_ns, use_ns))
    return cache_path


def path_of(root: Path, key: bytes) -> Path:
    name = entry_name(key)
    return root / "entries" / name[:2] / name[2:]


def listed(*arguments: object) -> str:
    """The keys that are listed, in order."""
    ended = run("ls", "--json", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    keys = {entry_name(key.encode()): key for key in "abc"}
    return "".join(keys[json.loads(line)["name"]] for line in ended.stdout.splitlines())


@pytest.mark.parametrize(
    "options, expected",
    [
        ((), "cba"),
        (("--reverse",), "abc"),
        (("--sort", "size"), "bca"),
        (("--sort", "age"), "abc"),
        (("--sort", "age", "--reverse"), "cba"),
        (("--sort", "cost", "--limit", "1"), "a"),
        (("--sort", "name"), "".join(sorted("abc", key=lambda key: entry_name(key.encode())))),
        (("--sort", "size", "--reverse", "--limit", "2"), "ac"),
        (("--kind", "ptx"), "c"),
        (("--arch", "90"), "a"),
        (("--compiler", "nvrtc 13.*"), "b"),
        (("--older-than", "30d"), "cba"),
        (("--older-than", "30d", "--kind", "cubin", "--arch", "sm_100a"), ""),
    ],
)
def test_order_and_filters(options: tuple[str, ...], expected: str, filled: Path) -> None:
    assert listed(*options, filled) == expected


def test_without_an_order_a_limit_still_holds(filled: Path) -> None:
    assert len(listed("--sort", "none", "--limit", "2", filled)) == 2
    assert sorted(listed("--sort", "none", filled)) == ["a", "b", "c"]


def test_lines_for_people_have_columns(filled: Path) -> None:
    heading, *lines = run("ls", filled).stdout.splitlines()
    assert " ".join(heading.split()) == "NAME SIZE USED AGE COST KIND ARCH COMPILER KERNEL"
    [line] = [line for line in lines if line.startswith(entry_name(b"a")[:12])]
    assert line.split()[1:3] == ["10", "B"]
    assert line.split()[-5:] == ["2.0s", "cubin", "sm_90", "-", "-"]
    assert entry_name(b"a") in run("ls", "--full", filled).stdout


@pytest.mark.parametrize(
    "columns, heads",
    [
        (80, "NAME SIZE USED AGE COST KIND ARCH KERNEL"),
        (60, "NAME SIZE USED ARCH KERNEL"),
        (250, "NAME SIZE USED AGE COST KIND ARCH COMPILER KERNEL"),
    ],
)
def test_no_line_is_longer_than_the_terminal(columns: int, heads: str, filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        cache.get_or_compute("long", lambda: PTX, label="kernel<" + "float, " * 30 + ">")
    with OnTerminal("ls", filled, columns=columns) as terminal:
        assert terminal.end() == 0
    heading, *lines = terminal.said.decode().replace("\r", "").splitlines()
    assert " ".join(heading.split()) == heads
    assert all(len(line) <= columns for line in lines)
    assert any(line.endswith("…") for line in lines) == (columns < 250)


def test_a_program_is_shown_by_its_name(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache.get_or_compute("labelled", lambda: b"x", label="saxpy \x1b[31m")
        cache.put_entry("symbols", Entry(b"x", {"symbol_mapping": {"axpy<int>": "_Z4axpyIiEvv"}}))
        cache["bytes"] = b".version 9.5\n.target sm_90\n.visible .entry scale(\n)\n"
    lines = {json.loads(line)["name"]: json.loads(line) for line in run("ls", "--json", cache_path).stdout.splitlines()}
    assert lines[entry_name(b"labelled")]["label"] == "saxpy \x1b[31m"
    assert lines[entry_name(b"symbols")]["label"] == "axpy<int>"
    assert lines[entry_name(b"bytes")]["label"] == "scale"
    shown = run("ls", cache_path).stdout
    assert "saxpy \\x1b[31m\n" in shown
    assert "kernel        axpy<int>" in run("inspect", "symbols", cache_path).stdout


def test_metadata_with_control_characters_reaches_no_terminal(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache.put_entry("evil", Entry(b"x", {"kind": "\x1b[2J", "arch": "sm\n90", "compiler": "\x9b31m\u202e"}))
    shown = run("ls", cache_path).stdout
    assert len(shown.splitlines()) == 2
    assert shown.replace("\n", "").isprintable()
    assert shown.isascii()


def test_a_damaged_record_is_shown_and_says_nothing(filled: Path) -> None:
    os.truncate(path_of(filled, b"a"), 3)
    [line] = [line for line in run("ls", filled).stdout.splitlines() if line.startswith(entry_name(b"a")[:12])]
    assert line.split()[-6:] == ["-", "-", "damaged", "-", "-", "-"]


@pytest.mark.root
def test_an_entry_that_may_not_be_read_is_unreadable_and_not_damaged(open_path: Path) -> None:
    with FileStreamProgramCache(open_path / "cache") as cache:
        cache["a"] = PTX
        cache["b"] = PTX
        cache.put_entry("c", Entry(PTX, {"log": "x" * 70_000}))  # in a separate file
    give_to_somebody(open_path)
    path_of(open_path / "cache", b"a").chmod(0)
    record = path_of(open_path / "cache", b"c")
    Path(str(record).replace("/entries/", "/lockcache/records/")).chmod(0)
    ended = run_as_somebody("ls", "--json", open_path / "cache")
    records = {line["name"]: line["record"] for line in map(json.loads, ended.stdout.splitlines())}
    assert records == {entry_name(b"a"): "unreadable", entry_name(b"b"): "whole", entry_name(b"c"): "unreadable"}
    shown = run_as_somebody("ls", open_path / "cache").stdout
    [line] = [line for line in shown.splitlines() if line.startswith(entry_name(b"a")[:12])]
    assert line.split()[-4:] == ["unreadable", "-", "-", "-"]


def test_ctrl_c_ends_a_listing_without_a_traceback(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        for number in range(3000):
            cache[f"k{number}"] = b"x"
    # 3,000 lines do not fit into a pipe: it waits for us in the middle of them.
    command = [LOCKCACHE, "ls", "--full", str(cache_path)]
    listing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert listing.stdout is not None
    assert listing.stdout.readline().startswith(b"NAME")
    listing.send_signal(signal.SIGINT)
    _, errors = listing.communicate(timeout=60)
    assert (listing.returncode, errors.strip()) == (130, b"")
