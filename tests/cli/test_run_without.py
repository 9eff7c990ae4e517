# SPDX-License-Identifier: Apache-2.0
"""``lockcache run`` where something is missing or misspelled: it says so once, and the command runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.cli.command import run, run_as_somebody

NAMES = ("LOCKCACHE_INSTALL", "LOCKCACHE_JAX", "LOCKCACHE_DIR", "PYTHONPATH")
ITS_OWN = f"import json, os, sys; json.dump([os.environ.get(name) for name in {NAMES}], sys.stdout); exit(3)"
END = "; the command goes on without lockcache"


@pytest.mark.root
@pytest.mark.parametrize("below", ["cache", "not there", "not there/cache"])
def test_a_directory_that_may_not_be_reached_keeps_no_command_from_running(below: str, open_path: Path) -> None:
    hidden = open_path / "hidden"
    (hidden / "cache").mkdir(parents=True)
    hidden.chmod(0o700)
    directory = hidden / below
    for options in ([], ["--daemon", "--max-size", "1G"], ["-q", "--seed", open_path / "no.lcb", "--promote"]):
        ended = run_as_somebody("run", *options, "--dir", directory, "--", "sh", "-c", "exit 3")
        assert ended.returncode == 3
        assert ended.stderr.startswith(f"lockcache: {directory}: "), ended.stderr
        assert "permission denied" in ended.stderr
        assert f"{hidden} is owned by root" in ended.stderr
        assert (ended.stderr.endswith(f"{END}\n"), ended.stderr.count("\n")) == (True, 1), ended.stderr


def test_a_directory_that_cannot_be_made_or_is_unsafe_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for directory, why in (
        ("/proc/lockcache", "No such file or directory"),
        (tmp_path / "open", "mode 0777"),
        (tmp_path / ("long" * 99), "File name too long"),  # as a dead mount, it cannot be listed
    ):
        environment = {"LOCKCACHE_DIR": str(directory), "PYTHONPATH": "/own"}
        ended = run("run", "--", "python3", "-c", ITS_OWN, **environment)
        assert (ended.returncode, json.loads(ended.stdout)) == (3, [None, None, None, "/own"])
        assert (why in ended.stderr, ended.stderr.endswith(f"{END}\n"), ended.stderr.count("\n")) == (True, True, 1)
        assert run("run", "--", "true", **environment, SLURM_LOCALID="1").stderr == ""
    assert os.listdir(tmp_path / "open") == []


@pytest.mark.parametrize("kind", ["file", "other files"])
def test_a_directory_that_is_something_else_is_a_mistake_in_an_option_and_a_warning_in_a_variable(
    kind: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    if kind == "file":
        other.touch()
    else:
        other.mkdir()
        (other / "notes.txt").touch()
    ended = run("run", "--dir", other, "--", "sh", "-c", "echo ran")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended
    ended = run("run", "--", "sh", "-c", "echo ran", LOCKCACHE_DIR=str(other))
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (0, "ran\n", 1), ended
    assert (ended.stderr.startswith(f"lockcache: {other}: "), ended.stderr.endswith(f"{END}\n")) == (True, True)
    assert other.is_file() or os.listdir(other) == ["notes.txt"]


def test_where_lockcache_is_off_no_variable_of_a_framework_is_set(tmp_path: Path) -> None:
    ended = run("run", "--dir", tmp_path / "c", "--", "env", LOCKCACHE_DISABLE="1")
    assert "LOCKCACHE_DISABLE=1\n" in ended.stdout
    assert "JAX" not in ended.stdout
    assert ended.stderr == "lockcache: lockcache was off, as LOCKCACHE_DISABLE says\n"


@pytest.mark.parametrize(
    "name, value",
    [("MAX_SIZE", "1Q"), ("POLICY", "newest"), ("REMOTE", "redsi://x"), ("READONLY", "?"), ("DISABLE", "?")],
)
def test_a_value_with_which_no_cache_can_be_opened_is_kept_from_the_command(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = "from lockcache import FileStreamProgramCache as Cache; print(Cache('own').get('k'))"
    variables = {f"LOCKCACHE_{name}": value}
    ended = run("run", "--dir", tmp_path / "c", "--", sys.executable, "-c", program, **variables)
    assert (ended.returncode, ended.stdout) == (0, "None\n"), ended.stderr
    assert (f"LOCKCACHE_{name}" in ended.stderr, ended.stderr.endswith(f"{END}\n")) == (True, True)
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize("name", ["LOCKCACHE_DISABLE", "LOCKCACHE_READONLY"])
def test_where_nothing_is_to_be_made_nothing_is_made(name: str, tmp_path: Path) -> None:
    assert run("run", "-q", "--dir", tmp_path / "cache", "--", "true", **{name: "1"}).stderr == ""
    assert not (tmp_path / "cache").exists()


def test_a_variable_that_cannot_be_understood_keeps_no_command_with_a_seed_from_running(tmp_path: Path) -> None:
    words = ("run", "-q", "--dir", tmp_path / "cache", "--seed", tmp_path / "k.lcb", "--promote", "--", "sh", "-c")
    ended = run(*words, "exit 3", LOCKCACHE_COMPILE_ONCE="perhaps")
    assert (ended.returncode, ended.stderr.count("\n")) == (3, 1)
    assert ended.stderr.startswith("lockcache: LOCKCACHE_COMPILE_ONCE: 'perhaps' is not")


def test_a_misspelled_variable_is_named_once(cache_path: Path) -> None:
    said = "lockcache: LOCKCACHE_MAXSIZE is not a variable of lockcache's; did you mean LOCKCACHE_MAX_SIZE?\n"
    words = ("run", "-q", "--dir", cache_path, "--", "sh", "-c", "exit 3")
    for rank, expected in (("0", said), ("1", "")):
        ended = run(*words, LOCKCACHE_MAXSIZE="1G", LOCAL_RANK=rank)
        assert (ended.returncode, ended.stderr) == (3, expected)


def test_a_seed_that_is_not_there_is_named_once(cache_path: Path, tmp_path: Path) -> None:
    seed = tmp_path / "no.lcb"
    words = ("run", "-q", "--dir", cache_path)
    command = ("--", "sh", "-c", "exit 3")
    for name, ended in (
        ("--seed", run(*words, "--seed", seed, *command)),
        ("LOCKCACHE_SEED", run(*words, *command, LOCKCACHE_SEED=str(seed))),
    ):
        said = f"lockcache: {name}: {seed}: there is no such file, so nothing is read from it\n"
        assert (ended.returncode, ended.stderr) == (3, said)
    assert run(*words, *command, LOCKCACHE_SEED=str(seed), LOCAL_RANK="1").stderr == ""
    assert run(*words, "--seed", seed, *command, LOCAL_RANK="1").stderr == ""
    made = run(*words, "--seed", seed, "--promote", *command)
    assert (made.returncode, made.stderr) == (3, "")
