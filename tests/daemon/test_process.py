# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process: signals, a second one, deletion underneath, live writers."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import space_of
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import SHARDS, Layout
from lockcache.filestream.policy import Policy
from lockcache.sizes import parse_size
from tests.daemon.daemon_process import HANG_SECONDS, SCRIPT, RunningDaemon, run_daemon, until
from tests.daemon.directories import (
    accounting_is_exact,
    bytes_on_disk,
    fill,
    names_on_disk,
)
from tests.matrix_sampling import all_but
from tests.processes.crowd import crowd
from tests.processes.sampler import watch_bytes_in_use
from tests.state_pages import policy_of

#: Above what a sweep begins, for a cap of 1M. A sweep that strangers write into ends between this and 900,000.
HIGH = 950_000


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_daemon_and_its_status(cache_path: Path, number: signal.Signals) -> None:
    with RunningDaemon("--max-size", "1M", cache_path) as daemon:
        status = json.loads((cache_path / "lockcache" / "daemon.json").read_bytes())
        assert (status["pid"], status["max_size_bytes"]) == (daemon.process.pid, 1_000_000)
        assert daemon.end(number) == 0
        assert daemon.wait_for("stop")["signal"] == number.name
        assert daemon.errors() == ""
    assert not (cache_path / "lockcache" / "daemon.json").exists()
    assert os.listdir(cache_path / "tmp") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_middle_of_a_sweep_leaves_nothing_half_done(cache_path: Path, number: signal.Signals) -> None:
    fill(cache_path, 2500, 1000)
    with RunningDaemon("--max-size", "100k", cache_path) as daemon:
        until(lambda: len(names_on_disk(cache_path)) < 2500)
        assert daemon.end(number) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    if number == signal.SIGKILL:  # in between an unlink and its give-back
        assert run_daemon("--max-size", "1G", "--once", cache_path).returncode == 0
    assert os.listdir(cache_path / "tmp") == []
    assert accounting_is_exact(cache_path)


@pytest.mark.long
@pytest.mark.parametrize("extra", [[], ["--once"]], ids=["serve", "once"])
def test_a_second_daemon_says_who_keeps_the_directory_and_exits_3(cache_path: Path, extra: list[str]) -> None:
    with RunningDaemon("--max-size", "1M", cache_path) as first:
        status = json.loads((cache_path / "lockcache" / "daemon.json").read_bytes())
        second = run_daemon("--max-size", "2M", *extra, cache_path)
        assert second.returncode == 3
        assert second.stderr.count("\n") == 1
        for item in (f"pid {first.process.pid}", status["host"], status["since"], str(cache_path)):
            assert item in second.stderr
        assert policy_of(cache_path).max_size_bytes == 1_000_000


def write_many(root: str, writer: int) -> int:
    with FileStreamProgramCache(root) as cache:
        for number in range(400):
            cache[b"%d/%d" % (writer, number % 200)] = bytes([writer]) * 32768
        assert cache.stats().corrupt_entries == 0
        return cache.stats().dropped_writes


@pytest.mark.root
def test_the_cap_holds_at_every_moment_while_processes_write_and_the_daemon_sweeps(
    mount_tmpfs: Callable[[str], Path],
) -> None:
    path = mount_tmpfs("size=64m")
    with RunningDaemon("--max-size", "8MiB", path) as daemon, watch_bytes_in_use(path) as peak_until_now:
        with crowd("spawn", write_many, [(str(path), n) for n in range(4)]) as writers:
            assert writers.results() == [0] * 4
        peak, _ = peak_until_now()
        assert 6 * 2**20 < peak <= 8 * 2**20
        assert daemon.wait_for("sweep")["evicted_entries"] > 0
        assert daemon.end(signal.SIGTERM) == 0
    assert accounting_is_exact(path)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.usefixtures("real_blocks")
@pytest.mark.parametrize("cap", all_but(["4MiB"], ["4MiB", "8MiB"]))
def test_a_small_cap_on_xfs_is_swept_below_what_writers_leave_for_entries(
    mount_image: Callable[..., Path], cap: str
) -> None:
    root = mount_image("xfs", 320) / "cache"
    with FileStreamProgramCache(root, max_size_bytes=parse_size(cap)) as cache:
        limit = Policy(parse_size(cap)).entries_limit_bytes(space_of(Layout(cache.path)))
        assert limit is not None
        for number in itertools.count():
            if cache.stats().bytes > 0.97 * limit:  # a few more, and a write has to evict
                break
            cache[b"%d" % number] = bytes(5000)
        dry = json.loads(run_daemon("--max-size", cap, "--dry-run", "--json", root).stdout)
        assert run_daemon("--max-size", cap, "--once", root).returncode == 0
        assert 0.85 * limit < cache.stats().bytes <= 0.9 * limit
        assert min(dry["evicted_entries"], number - len(cache)) > 0


@pytest.mark.long
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_once_that_is_interrupted_says_so_by_its_exit_code(cache_path: Path, number: int, code: int) -> None:
    directory = CacheDirectory(str(cache_path), 1.0)
    with ExitStack() as stack:
        for shard in range(SHARDS):  # it waits a quarter of a second for each
            stack.enter_context(directory.locks[shard])
        with RunningDaemon("--max-size", "1M", "--once", cache_path) as daemon:
            assert daemon.end(number) == code
    directory.close()


def test_a_reader_of_its_log_who_goes_away_does_not_end_the_daemon(cache_path: Path) -> None:
    command = [SCRIPT, "--max-size", "1M", "--interval", "20ms", str(cache_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        ExitStack() as stack,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert "cap 1.0 MB" in process.stdout.readline()
        process.stdout.close()
        stack.callback(process.kill)
        for first in (0, 1000):
            fill(cache_path, 200, 10_000, first=first)
            until(lambda: bytes_on_disk(cache_path) <= HIGH)
        process.terminate()
        assert process.wait(HANG_SECONDS) == 0
        assert process.stderr.read() == ""


@pytest.mark.long
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_daemon_without_standard_streams_does_its_work_and_no_file_gets_their_numbers(
    cache_path: Path, closed: str
) -> None:
    fill(cache_path, 200, 10_000)
    command = ["sh", "-c", f'"$0" "$@" {closed}', SCRIPT, "--max-size", "1M", "--once", str(cache_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bytes_on_disk(cache_path) <= HIGH
    assert accounting_is_exact(cache_path)


def test_a_directory_whose_name_is_no_text_is_called_in_the_log_as_in_the_metrics(tmp_path: Path) -> None:
    odd = os.fsdecode(bytes(tmp_path) + b'/\xff"odd')
    done = run_daemon("--max-size", "1M", "--once", "--json", odd)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert {each["directory"] for each in said} == {f'{tmp_path}/\\xff"odd'}


def test_a_directory_is_called_in_its_own_letters_and_obeyed_by_no_terminal(tmp_path: Path) -> None:
    for name, shown in (("üñï-日本", "üñï-日本"), ("a\x1b[2J\u202eb", "a\\x1b[2J\\u202eb")):
        done = run_daemon("--max-size", "1M", "--once", tmp_path / name)
        assert f" {tmp_path}/{shown}: created; layout lockcache" in done.stdout
