# SPDX-License-Identifier: Apache-2.0
"""Directories with caches of several programs in them, with a daemon that keeps each under one budget."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

from tests.daemon.daemon_process import RunningDaemon, events_of, run_daemon, until
from tests.daemon.directories import disk_usage
from tests.daemon.nested_format import fill_inductor, fill_vllm, hash_of, is_whole, start_servers
from tests.daemon.triton_format import fill


def own_usage(root: Path) -> int:
    own = root / "lockcache"
    return disk_usage(root) - (disk_usage(own) if own.exists() else 0)


def test_one_line_of_a_file_keeps_vllms_directory_under_one_budget(cache_path: Path, tmp_path: Path) -> None:
    fill_vllm(cache_path, range(12))
    cap = own_usage(cache_path) // 2
    config = tmp_path / "daemon.toml"
    config.write_text(f'settle = "1ms"\n[[directory]]\npath = "{cache_path}"\nmax_size = "{cap}B"\n')
    with RunningDaemon("--config", config, starts=0) as daemon:
        assert daemon.wait_for("start")["layout"] == "vllm"
        until(lambda: own_usage(cache_path) <= cap)
        assert daemon.end(signal.SIGTERM) == 0
    left = [number for number in range(12) if (cache_path / "torch_compile_cache" / hash_of(number)).exists()]
    assert 3 <= len(left) < 7
    assert left == list(range(12 - len(left), 12))
    assert all(is_whole(cache_path / "torch_compile_cache" / hash_of(number), number) for number in left)


def test_one_argument_keeps_torchinductors_directory_under_one_budget(cache_path: Path) -> None:
    fill_inductor(cache_path, range(20))
    cap = own_usage(cache_path) // 2
    done = run_daemon("--once", "--settle", "1ms", "--max-size", f"{cap}B", "--json", cache_path)
    assert (done.returncode, events_of(done.stdout)["start"]["layout"]) == (0, "torchinductor")
    assert cap // 2 < own_usage(cache_path) <= cap


def test_servers_see_whole_hashes_or_none_beside_a_daemon_that_evicts_all_the_time(cache_path: Path) -> None:
    fill_vllm(cache_path, range(2))
    size = disk_usage(cache_path / "torch_compile_cache" / hash_of(0))
    options = ("--max-size", f"{4 * size}B", "--settle", "1ms", "--layout", "vllm", "--interval", "20ms")
    with RunningDaemon(*options, cache_path) as daemon, multiprocessing.get_context("spawn").Pool(2) as pool:
        counts = pool.starmap(start_servers, [(str(cache_path), seed, 8.0, 8) for seed in range(2)])
        assert daemon.wait_for("sweep")["evicted_entries"] > 0
        assert daemon.end(signal.SIGTERM) == 0
    assert all(warm and cold for warm, cold in counts)
    assert sum(cold for _, cold in counts) > 8  # hashes went, and were compiled again


def test_a_daemon_that_is_killed_while_it_evicts_leaves_nothing_that_stays(cache_path: Path) -> None:
    fill_vllm(cache_path, range(30))
    options = ("--max-size", "100kB", "--settle", "1ms", cache_path)
    condemned = cache_path / "lockcache/condemned"
    with RunningDaemon(*options, starts=0) as daemon:
        until(lambda: condemned.exists() and any(condemned.iterdir()))
        daemon.end(signal.SIGKILL)
    assert run_daemon("--once", *options).returncode == 0
    assert [*condemned.iterdir()] == []
    assert own_usage(cache_path) <= 100_000


def test_a_directory_in_one_that_is_kept_is_refused(cache_path: Path) -> None:
    fill_inductor(cache_path, range(1))
    inner = cache_path / "triton/0"
    both = run_daemon("--once", "--max-size", "1M", cache_path, inner)
    assert (both.returncode, both.stderr.count("lies in")) == (2, 1)
    assert run_daemon("--once", "--max-size", "1M", cache_path).returncode == 0
    for options in ((), ("--layout", "triton")):
        alone = run_daemon("--once", "--max-size", "1M", *options, inner)
        assert (alone.returncode, "kept as torchinductor" in alone.stderr) == (2, True)


def test_a_directory_next_to_one_that_is_kept_is_not_in_it(cache_path: Path) -> None:
    fill(cache_path, range(1))
    fill(cache_path.with_name(f"{cache_path.name}-2"), range(1))
    assert run_daemon("--once", "--max-size", "1M", cache_path, f"{cache_path}-2").returncode == 0
