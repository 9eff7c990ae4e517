# SPDX-License-Identifier: Apache-2.0
"""The daemon over directories of other programs: one pass, a dry run, what is refused, life next to Triton's steps."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.daemon.daemon_process import RunningDaemon, events_of, run_daemon, until
from tests.daemon.directories import grow, photograph
from tests.daemon.directory_kinds import KINDS, bytes_of
from tests.daemon.pyptx_crowd import store
from tests.daemon.triton_format import compile_many, fill, keys_on_disk, put
from tests.processes.crowd import crowd

#: No test of this file writes while a pass evicts.
AT_ONCE = ("--settle", "1ms")


# ---- one pass --------------------------------------------------------------------------------------------------------


def test_a_minute_protects_what_was_written_unless_another_time_is_said(cache_path: Path) -> None:
    fill(cache_path, range(120))
    assert run_daemon("--max-size", "1M", "--once", cache_path).returncode == 0
    assert len(keys_on_disk(cache_path)) == 120


@pytest.mark.long
@pytest.mark.parametrize("name", ["lockcache", "triton"])
def test_a_dry_run_changes_nothing_and_says_what_would_go(cache_path: Path, name: str) -> None:
    kind = KINDS[name]
    kind.fill(cache_path, range(150))
    before = photograph(cache_path)
    options = ("--max-size", "1M", *kind.options, "--json", cache_path)
    done = run_daemon("--dry-run", *options)
    assert photograph(cache_path) == before
    said = events_of(done.stdout)["dry-run"]
    assert (done.returncode, said["bytes"], said["entries"]) == (0, bytes_of(cache_path), 150)
    swept = events_of(run_daemon("--once", *options).stdout)
    assert swept["sweep"]["evicted_entries"] == said["evicted_entries"] > 0
    assert len(kind.names(cache_path)) == 150 - said["evicted_entries"]


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "what, extra",
    [
        ("unknown", ""),
        ("unknown", "--dry-run"),
        ("repository", "--once"),
        ("home", "--once"),
        ("ours", ""),
        ("triton", "--once"),
        ("pyptx", "--dry-run"),
        ("no triton", "--once"),
    ],
)
def test_a_directory_of_which_it_is_unclear_or_plainly_wrong_is_refused_untouched(
    cache_path: Path, what: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_path.mkdir(mode=0o700)
    layout = "files"
    if what == "unknown":
        layout = "auto"
        (cache_path / "thesis.tex").write_text("mine")
    elif what == "repository":
        (cache_path / "deep" / ".git").mkdir(parents=True)
    elif what == "home":
        monkeypatch.setenv("HOME", str(cache_path))
    elif what == "triton":
        fill(cache_path, range(1))
    elif what == "pyptx":
        store(cache_path, range(1))
    else:
        layout = "files" if what == "ours" else "triton"
        FileStreamProgramCache(cache_path)["k"] = b"v"
    before = photograph(cache_path)
    done = run_daemon("--max-size", "1k", "--layout", layout, *AT_ONCE, *extra.split(), cache_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(cache_path) in done.stderr
    assert photograph(cache_path) == before


def test_a_tree_that_turns_out_to_hold_a_repository_loses_no_file_more(cache_path: Path) -> None:
    cache_path.mkdir(mode=0o700)
    grow(cache_path, range(10))
    with RunningDaemon("--max-size", "1M", *AT_ONCE, "--layout", "files", cache_path) as daemon:
        (cache_path / "0" / ".git").mkdir()
        grow(cache_path, range(10, 200))
        while "not a cache" not in daemon.wait_for("error")["error"]["message"]:
            pass
        left = len(list(cache_path.rglob("*.cubin")))
        assert daemon.end(signal.SIGTERM) == 0
        assert len(list(cache_path.rglob("*.cubin"))) == left


# ---- over time -------------------------------------------------------------------------------------------------------


def test_files_that_come_into_deep_folders_are_bounded(cache_path: Path) -> None:
    cache_path.mkdir(mode=0o700)
    grow(cache_path, range(10))
    with RunningDaemon("--max-size", "1M", *AT_ONCE, "--layout", "files", cache_path) as daemon:
        grow(cache_path, range(10, 200))
        daemon.wait_for("sweep")
        until(lambda: bytes_of(cache_path) <= 950_000)
        assert daemon.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_processes_that_go_through_tritons_steps_never_meet_half_an_entry(cache_path: Path) -> None:
    cache_path.mkdir(mode=0o700)
    put(cache_path, 10**6, "driver.so", "x")  # so that it is recognised by more than its name
    options = ("--max-size", "300k", "--layout", "triton", "--settle", "500ms")
    with RunningDaemon(*options, cache_path) as daemon:
        with crowd("spawn", compile_many, [(str(cache_path), seed, 6.0, 100) for seed in range(3)]) as processes:
            results = processes.results()
        assert all(hits and compiled for hits, compiled in results)
        assert daemon.wait_for("sweep")["evicted_entries"] > 0
        until(lambda: bytes_of(cache_path) <= 300_000)
        assert daemon.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_a_signal_during_the_work_ends_it_and_the_next_daemon_goes_on(cache_path: Path) -> None:
    kind = KINDS["triton"]
    kind.fill(cache_path, range(300))
    options = ("--max-size", "1M", *kind.options, "--layout", kind.layout, cache_path)
    with RunningDaemon(*options) as daemon:
        daemon.wait_for("sweep")
        assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
    with RunningDaemon(*options) as daemon:
        until(lambda: bytes_of(cache_path) <= 950_000)
        until(lambda: not list(cache_path.glob("lockcache/condemned/*")))
        assert daemon.end(signal.SIGTERM) == 0
