# SPDX-License-Identifier: Apache-2.0
"""The options of an operator, and the answers to wrong ones."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.policy import Policy
from lockcache_daemon.keeper.single_instance import Instance
from tests.daemon.daemon_process import RunningDaemon, run_daemon
from tests.state_pages import damage, make_newer, policy_of, state_of


def test_where_a_misspelled_variable_left_no_budget_that_is_said(tmp_path: Path) -> None:
    done = run_daemon("--once", "cache", cwd=tmp_path, env={**os.environ, "LOCKCACHE_MAXSIZE": "1G"})
    assert done.returncode == 2
    assert [line.partition(": ")[2].partition(";")[0].rpartition("/")[2] for line in done.stderr.splitlines()] == [
        "cache has no budget",
        "LOCKCACHE_MAXSIZE is not a variable of lockcache's",
    ]


def test_a_directory_that_has_a_cap_needs_no_budget_and_keeps_its_cap_a_programs(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    with FileStreamProgramCache(root, max_size_bytes=10_000_000) as cache:
        for number in range(100):
            cache[f"key {number}"] = bytes(95_000)
    done = run_daemon("--once", "cache", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "cap 10.0 MB" in done.stdout
    assert "evicted" in done.stdout
    assert policy_of(root) == Policy(10_000_000)


@pytest.mark.parametrize(
    "words, reason",
    [
        (["--metrics", "127.0.0.1:{taken}"], "Address already in use"),
        (["--metrics-file", "{tmp}/none/x.prom"], "cannot write the metrics file"),
        (["--metrics-file", "{tmp}/none/x.prom", "--once"], "cannot write the metrics file"),
        (["--alive-file", "{tmp}/none/alive"], "cannot make the file of --alive-file"),
        (["--metrics", "9477", "--once"], "--metrics is for a daemon that stays"),
        (["--standby", "--once"], "--standby is for a daemon that stays"),
        (["--layout", "triton"], "layout"),
    ],
)
def test_settings_are_refused_before_a_directory_is_touched(
    cache_path: Path, tmp_path: Path, words: list[str], reason: str
) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache.update({str(number): bytes(10_000) for number in range(3)})
    before = {path: path.stat().st_mtime_ns for path in cache_path.rglob("*")}
    new = tmp_path / "new"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [word.format(taken=taken.getsockname()[1], tmp=tmp_path) for word in words]
        ended = run_daemon("--max-size", "20kB", *given, new, cache_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert reason in ended.stderr
    assert not new.exists()
    assert {path: path.stat().st_mtime_ns for path in cache_path.rglob("*")} == before


@pytest.mark.parametrize("extra", [[], ["--once"]])
def test_a_cache_that_is_unsafe_is_refused_before_another_is_touched(
    cache_path: Path, tmp_path: Path, extra: list[str]
) -> None:
    FileStreamProgramCache(cache_path).close()
    cache_path.chmod(0o777)
    ended = run_daemon("--max-size", "1M", *extra, tmp_path / "new", cache_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "may be written by other users" in ended.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("extra", [[], ["--once"]])
def test_no_cap_is_written_before_all_directories_are_accepted(
    cache_path: Path, tmp_path: Path, extra: list[str]
) -> None:
    FileStreamProgramCache(cache_path, max_size_bytes=50_000_000).close()
    managed, file = tmp_path / "managed", tmp_path / "file"
    FileStreamProgramCache(managed).close()
    file.touch()
    instance = Instance(Layout(str(managed)))
    instance.acquire()
    try:
        for other, why in ((managed, "is managed by another"), (file, "is not a cache directory")):
            ended = run_daemon("--max-size", "1M", *extra, cache_path, other)
            assert (ended.returncode, ended.stdout) == (3 if other is managed else 2, ""), ended
            assert why in ended.stderr
            assert policy_of(cache_path) == Policy(50_000_000)
    finally:
        instance.release()


def test_a_file_of_settings_may_have_what_is_for_a_daemon_that_stays(cache_path: Path, tmp_path: Path) -> None:
    config = tmp_path / "lockcache.toml"
    config.write_text('max_size = "1M"\nstandby = true\nmetrics = "127.0.0.1:0"\n')
    assert run_daemon("--config", config, "--once", cache_path).returncode == 0


def test_a_directory_that_it_makes_is_said_to_be_created(cache_path: Path) -> None:
    for is_new in (True, False):
        said = [
            json.loads(line)
            for line in run_daemon("--max-size", "1M", "--once", "--json", cache_path).stdout.splitlines()
        ]
        assert [each["created"] for each in said if each["event"] == "start"] == [is_new]
    assert (
        ": created; layout lockcache, cap 1.0 MB" in run_daemon("--max-size", "1M", "--once", f"{cache_path}2").stdout
    )


@pytest.mark.slow
@pytest.mark.parametrize("out", [">/dev/full", ">&-"])
def test_a_dry_run_that_cannot_say_what_would_go_has_failed(cache_path: Path, out: str) -> None:
    FileStreamProgramCache(cache_path).close()
    command = [
        "sh",
        "-c",
        f'"$0" -m lockcache_daemon --dry-run --max-size 1M "$1" {out}',
        sys.executable,
        str(cache_path),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "could not be written to standard output" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", pytest.param("--json", marks=pytest.mark.long)])
def test_a_pass_that_cannot_say_what_it_did_has_failed(cache_path: Path, options: str) -> None:
    FileStreamProgramCache(cache_path).close()
    pass_once = f'"$0" -m lockcache_daemon --once {options} --max-size 1M "$1"'
    lost = "lockcache-daemon: what was done could not be written: No space left on device\n"
    for out, code, said in (
        (">/dev/full", 1, lost),
        (">/dev/full 2>&1", 1, ""),
        (">&-", 0, ""),
        ("| :", 0, ""),  # read no further
    ):
        command = ["bash", "-o", "pipefail", "-c", f"{pass_once} {out}", sys.executable, str(cache_path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (code, said), out


@pytest.mark.slow
@pytest.mark.parametrize("has_cap", [False, True])
def test_a_default_directory_that_it_makes_has_a_cap(tmp_path: Path, has_cap: bool) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "LOCKCACHE_DIR": ""}
    budget = ["--max-size", "1M"] if has_cap else ["--max-age", "1d"]
    assert run_daemon("--once", *budget, env=environment).returncode == 0
    found = policy_of(tmp_path / "lockcache")
    assert found == (Policy(10**6, by_operator=True) if has_cap else Policy(10 * 10**9, is_default=True))


@pytest.mark.long
@pytest.mark.parametrize("extra", ["", "--dry-run"])
def test_a_directory_of_a_newer_version_is_one_line_and_exit_code_2(cache_path: Path, extra: str) -> None:
    (cache_path / "lockcache").mkdir(parents=True)
    cache_path.chmod(0o700)
    make_newer(cache_path)
    done = run_daemon("--max-size", "1G", *extra.split(), cache_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(cache_path) in done.stderr


@pytest.mark.long
def test_a_cap_that_was_lost_with_the_page_is_the_daemons_again_at_start(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path, max_size_bytes=2_000_000).close()
    damage(cache_path)
    with RunningDaemon("--max-size", "1M", cache_path, starts=0) as daemon:
        assert daemon.wait_for("start")["max_size_bytes"] == 1_000_000
        assert policy_of(cache_path) == Policy(1_000_000, by_operator=True)


def test_a_dry_run_leaves_a_damaged_page_as_it_is(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    damage(cache_path)
    damaged = state_of(cache_path).read_bytes()
    assert run_daemon("--max-size", "1M", "--dry-run", cache_path).returncode == 0
    assert state_of(cache_path).read_bytes() == damaged


@pytest.mark.root
def test_once_on_a_full_disk_says_that_it_is_full_and_not_that_the_directory_is_wrong(
    mount_tmpfs: Callable[[str], Path],
) -> None:
    path = mount_tmpfs("size=1m")
    with contextlib.suppress(OSError), (path / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(4096)):
            pass
    done = run_daemon("--max-size", "1M", "--once", "--layout", "lockcache", path)
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert "the disk is full" in done.stderr.splitlines()[-1]
    assert "must be a directory" not in done.stderr


def test_help_fits_a_screen_and_teaches_sizes_examples_and_exit_codes() -> None:
    done = run_daemon("--help", env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0
    for lesson in ("10GiB", "Examples:", "Exit codes", "SIGHUP", "LOCKCACHE_MAX_SIZE", "--dry-run", "man lockcache-"):
        assert lesson in done.stdout
    assert len(done.stdout.splitlines()) < 45
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_directory_that_is_named_twice_is_kept_once(cache_path: Path) -> None:
    done = run_daemon("--max-size", "1G", "--once", cache_path, f"{cache_path}/../{cache_path.name}")
    assert done.returncode == 0
    assert done.stdout.count("evicted 0") == 1
