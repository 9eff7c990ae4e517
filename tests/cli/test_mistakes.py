# SPDX-License-Identifier: Apache-2.0
"""Errors that an operator can fix: one line on stderr that names it, exit code 2, and nothing made or changed."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.cli.program import COMMANDS
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.locks import ProcessLock
from tests.cli.command import LOCKCACHE, run
from tests.cli.terminal import OnTerminal
from tests.matrix_sampling import all_but
from tests.state_pages import make_newer, policy_of, state_of

# How each command that takes a directory is called. A new command has to be added here.
ON_A_DIRECTORY = {
    "bundle": ("bundle", "make", "-o", "/dev/null"),
    "clear": ("clear", "--yes"),
    "evict": ("evict", "--to", "1G"),
    "inspect": ("inspect", "a"),
    "ls": ("ls",),
    "manifest": ("manifest", "make", "-o", "/dev/null"),
    "pack": ("pack", "/dev/null"),
    "pin": ("pin", "--list", "--dir"),
    "policy": ("policy", "get"),
    "recount": ("recount",),
    "rm": ("rm", "a", "--dir"),
    "stats": ("stats",),
    "top": ("top",),
    "unpin": ("unpin", "a", "--dir"),
    "verify": ("verify",),
    "why": ("why", "--last"),
}
WITHOUT_A_DIRECTORY = {
    "completion",
    "config",
    "doctor",
    "env",
    "import-jax",
    "import-triton",
    "key",
    "path",
    "promote",
    "run",
    "unpack",
}


def refused(ended: subprocess.CompletedProcess[str], named: object) -> None:
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert ended.stderr.startswith("lockcache: ")
    assert ended.stderr.count("\n") == 1
    assert str(named) in ended.stderr


def test_every_command_is_in_these_tables() -> None:
    assert set(ON_A_DIRECTORY) | WITHOUT_A_DIRECTORY == set(COMMANDS)


def _nothing(filled: Path) -> tuple[Path, object]:
    return filled.parent / "missing", filled.parent / "missing"


def _odd_name(filled: Path) -> tuple[Path, object]:
    return filled.parent / "\x1b[2Jgone\n", "gone"


def _a_file(filled: Path) -> tuple[Path, object]:
    file = filled.parent / "file"
    file.write_text("")
    return file, file


def _below_a_file(filled: Path) -> tuple[Path, object]:
    below = _a_file(filled)[0] / "below"
    return below, below


def _newer(filled: Path) -> tuple[Path, object]:
    make_newer(filled)
    return filled, "format 4"


def _unsafe(filled: Path) -> tuple[Path, object]:
    filled.chmod(0o777)
    return filled, f"chmod -R go-w {filled}"


@pytest.mark.parametrize("command", all_but(["stats"], ON_A_DIRECTORY))
@pytest.mark.parametrize("make", [_nothing, _odd_name, _a_file, _below_a_file, _newer, _unsafe])
def test_a_directory_that_is_none_is_named_with_what_to_do_and_left_as_it_is(
    command: str, make: Callable[[Path], tuple[Path, object]], filled: Path
) -> None:
    path, named = make(filled)
    before = sorted(filled.parent.rglob("*"))
    ended = run(*ON_A_DIRECTORY[command], path)
    refused(ended, named)
    assert "\x1b" not in ended.stderr
    assert sorted(filled.parent.rglob("*")) == before


@pytest.mark.long
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_teaches_by_examples(command: str) -> None:
    shown = run(command, "--help")
    assert shown.returncode == 0
    assert "Examples:" in shown.stdout
    assert f"lockcache {command}" in shown.stdout.split("Examples:")[1]


@pytest.mark.parametrize(
    "arguments",
    all_but(
        [("--help",), ("stats", "--json", "{filled}"), ("pack", "-", "{filled}")],
        [("--help",), ("stats", "{filled}"), ("stats", "--json", "{filled}"), ("path",), ("pack", "-", "{filled}")],
    ),
)
def test_a_reader_who_goes_away_is_no_traceback(arguments: tuple[str, ...], filled: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [LOCKCACHE, *(argument.format(filled=filled) for argument in arguments)]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [(), ("policy",)])
def test_a_group_without_a_command_is_answered_with_its_help(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"Usage: {' '.join(['lockcache', *arguments])} ")


@pytest.mark.parametrize("command", ["pack", "unpack"])
def test_a_bundle_is_neither_written_to_a_terminal_nor_read_from_one(command: str, filled: Path) -> None:
    with OnTerminal(command, "-", filled) as terminal:
        assert terminal.end() == 2
    assert b"pipe" in terminal.said
    assert terminal.said.count(b"\n") == 1
    assert len(FileStreamProgramCache(filled)) == 2


@pytest.mark.long
def test_a_lock_that_hangs_is_no_mistake_of_who_typed_the_command(filled: Path) -> None:
    layout = Layout(str(filled))
    os.unlink(layout.state)  # so that the next process has to make it, under the lock
    busy = ProcessLock(layout.directory_lock, 1.0)
    with busy:
        ended = run("recount", filled)
    busy.close()
    assert ended.returncode == 1
    assert ended.stderr.startswith("lockcache: ")
    assert "held this lock" in ended.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "program, arguments, code",
    [
        ("lockcache", ["stats", "DIR"], 1),
        ("lockcache", ["--help"], 1),
        ("lockcache-daemon", ["--help"], 2),
        ("lockcache-stress", ["--help"], 1),
        ("lockcache-stress", ["distinct-keys", "--processes", "1", "--seconds", "0.1", "--json"], 1),
    ],
)
def test_a_full_disk_under_the_output_is_one_line(filled: Path, program: str, arguments: list[str], code: int) -> None:
    command = [str(Path(LOCKCACHE).with_name(program)), *(str(filled) if each == "DIR" else each for each in arguments)]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.stderr.startswith(f"{program}: ")
    assert "No space left on device" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.returncode == code


@pytest.mark.root
@pytest.mark.parametrize("lacking", ["blocks", "inodes"])
def test_a_policy_on_a_full_disk_is_set_or_one_line_names_the_file(
    lacking: str, mount_tmpfs: Callable[[str], Path]
) -> None:
    root = mount_tmpfs("size=256k,nr_inodes=64") / "cache"
    with FileStreamProgramCache(root) as cache:
        cache["a"] = b"code"
    state = state_of(root)
    _fill(root.parent, lacking)
    ended = run("policy", "set", "--max-size", "1G", root)
    assert (ended.returncode, ended.stderr, policy_of(root).max_size_bytes) == (0, "", 10**9), "written in place"
    state.unlink()
    _fill(root.parent, lacking)
    ended = run("policy", "set", "--max-size", "2G", root)
    # With its one entry gone there is an inode for the page, and not enough blocks.
    gone = (0, "") if lacking == "inodes" else (1, f"lockcache: {state}: No space left on device\n")
    assert (ended.returncode, ended.stderr) == gone
    assert not any((root / "tmp").iterdir())


def _fill(folder: Path, lacking: str) -> None:
    with contextlib.suppress(OSError):
        if lacking == "blocks":
            with open(folder / "ballast", "ab", buffering=0) as ballast:
                while ballast.write(bytes(4096)):
                    pass
        for number in itertools.count() if lacking == "inodes" else ():
            (folder / f"{number}-{time.monotonic_ns()}").touch()


CLOSED = [
    (("stats", "{filled}"), 0, 0),
    (("evict", "--to", "1B", "--yes", "{filled}"), 0, 0),
    (("clear", "{filled}"), 0, 1),
    (("unpack", "-", "{filled}"), 0, 1),
    (("ls", "{filled}"), 1, 1),
    (("stats", "--json", "{filled}"), 1, 1),
    (("pack", "-", "{filled}"), 1, 1),
    (("stats", "{filled}"), 2, 0),
    (("evict", "--to", "1B", "--yes", "{filled}"), 2, 0),
    (("verify", "--repair", "{filled}"), 2, 0),
    (("stats", "{filled}/no-such"), 2, 2),
]


@pytest.mark.long
@pytest.mark.parametrize("arguments, closed, code", CLOSED)
def test_a_closed_stream_is_no_traceback_and_no_file_takes_its_place(
    arguments: tuple[str, ...], closed: int, code: int, filled: Path
) -> None:
    command = [LOCKCACHE, *(argument.format(filled=filled) for argument in arguments)]
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended
    assert "Traceback" not in ended.stderr
    assert "Error" not in ended.stderr
    assert ended.stderr.count("\n") <= 1


def test_a_path_is_printed_as_it_is_for_programs(tmp_path: Path) -> None:
    odd = tmp_path / "a\x1b[31mb\udcff"
    ended = subprocess.run([LOCKCACHE, "path", odd], capture_output=True, check=True)
    assert ended.stdout == os.fsencode(odd) + b"\n"


def test_setting_a_policy_makes_no_cache_of_a_directory_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "chapter.tex").write_text("")
    ended = run("policy", "set", "--max-size", "1G", tmp_path)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "holds other things than a cache" in ended.stderr
    assert os.listdir(tmp_path) == ["chapter.tex"]
