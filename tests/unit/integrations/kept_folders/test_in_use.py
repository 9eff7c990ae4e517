# SPDX-License-Identifier: Apache-2.0
"""Use of files by processes, of which each is a real one."""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.integrations.kept_folders.in_use import is_being_written, is_loaded_from, is_locked, is_worked_in


def test_a_file_is_written_while_a_process_has_it_open_for_writing_or_mapped(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 4096)
    reader = os.open(path, os.O_RDONLY)
    assert not is_being_written(reader)
    writer = os.open(path, os.O_RDWR)
    assert is_being_written(reader)
    mapped = mmap.mmap(writer, 4096)
    os.close(writer)
    assert is_being_written(reader)
    mapped.close()
    assert not is_being_written(reader)
    os.close(reader)


def test_asking_leaves_no_lease_that_a_writer_would_wait_for(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.touch()
    reader = os.open(path, os.O_RDONLY)
    assert not is_being_written(reader)
    assert fcntl.fcntl(reader, fcntl.F_GETLEASE) == fcntl.F_UNLCK
    path.write_bytes(b"x")
    os.close(reader)


def test_a_lock_file_is_locked_while_somebody_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "f.lock"
    with open(path, "w") as holder, open(path) as reader:
        assert not is_locked(reader.fileno())
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert is_locked(reader.fileno())


@pytest.mark.slow
@pytest.mark.parametrize(
    "program, works",
    [
        ("import os, sys; os.chdir(sys.stdin.readline().strip())", True),
        ("import sys; file = open(sys.stdin.readline().strip() + '/f', 'w')", True),
        ("import sys; file = open(sys.stdin.readline().strip() + '/f')", False),
    ],
)
def test_a_process_works_in_a_folder_by_its_directory_or_a_file_that_it_writes(
    program: str, works: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "k1"
    folder.mkdir()
    (folder / "f").touch()
    command = [sys.executable, "-c", f"{program}; print('up', flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "up\n"
        assert is_worked_in(str(folder)) is works
        assert not is_worked_in(str(tmp_path / "k"))
        process.kill()
    assert not is_worked_in(str(folder))


@pytest.mark.slow
def test_a_command_line_names_a_folder_and_not_those_whose_names_it_begins_with(tmp_path: Path) -> None:
    with subprocess.Popen(["tail", "-f", "/dev/null", f"{tmp_path}/k1/f"], stderr=-1) as process:
        assert is_worked_in(f"{tmp_path}/k1")
        assert not is_worked_in(f"{tmp_path}/k")
        process.kill()


@pytest.mark.slow
def test_a_library_is_loaded_while_a_process_has_it_mapped(tmp_path: Path) -> None:
    path = tmp_path / "f.so"
    path.write_bytes(b"x" * 4096)
    program = (
        "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); print('up', flush=True)"
    )
    command = [sys.executable, "-c", f"{program}; sys.stdin.read()", str(path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert is_loaded_from(str(tmp_path))
        process.kill()
    assert not is_loaded_from(str(tmp_path))
