# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: the file is read again, and what changed takes effect without a restart."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.policy import Policy
from tests.daemon.daemon_process import HANG_SECONDS, SCRIPT, RunningDaemon, run_daemon, until
from tests.daemon.directories import bytes_on_disk, fill, make_directory
from tests.daemon.http_client import Watched, get
from tests.state_pages import policy_of, set_policy


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "lockcache.toml"


def table(path: Path, **settings: str) -> str:
    return f'[[directory]]\npath = "{path}"\n' + "".join(f'{key} = "{value}"\n' for key, value in settings.items())


def cap_of(path: Path) -> object:
    return policy_of(path).max_size_bytes


def reload(daemon: RunningDaemon, config: Path, text: str, event: str = "reload") -> dict[str, Any]:
    config.write_text(text)
    daemon.process.send_signal(signal.SIGHUP)
    return daemon.wait_for(event)


def write_on_demand(root: str) -> None:
    """Write an entry for each line, and say which cap holds and what is on disk."""
    with FileStreamProgramCache(root) as cache:
        for number, _ in enumerate(sys.stdin):
            cache[b"%d" % number] = bytes(10_000)
            print(cache.max_size_bytes, bytes_on_disk(Path(root)), flush=True)


@contextmanager
def writer(root: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.daemon.test_reload", str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def write_one(process: subprocess.Popen[str]) -> tuple[int, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    cap, held = process.stdout.readline().split()
    return int(cap), int(held)


def test_a_changed_cap_reaches_a_running_process_at_its_next_write(config: Path, cache_path: Path) -> None:
    make_directory(cache_path)
    config.write_text(table(cache_path, max_size="2M"))
    with RunningDaemon("--config", config, starts=1) as daemon, writer(cache_path) as process:
        assert all(write_one(process)[0] == 2_000_000 for _ in range(150))
        assert reload(daemon, config, table(cache_path, max_size="1M"), "cap")["reloaded"] is True
        cap, held = write_one(process)
        assert cap == 1_000_000
        assert held <= 1_000_000
        reload(daemon, config, table(cache_path, max_size="3M"), "cap")
        assert write_one(process)[0] == 3_000_000
        assert daemon.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_directories_are_opened_and_let_go_of_and_the_others_go_on(config: Path, tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    config.write_text(table(a, max_size="1M") + table(b, max_size="1M"))
    with RunningDaemon("--config", config, starts=2) as daemon:
        since = json.loads((b / "lockcache" / "daemon.json").read_bytes())["since"]
        lock = (b / "lockcache" / "daemon.lock").stat()
        config.write_text(table(b, max_size="1M") + table(c, max_size="1M"))
        daemon.process.send_signal(signal.SIGHUP)
        said = daemon.wait_for_each("reload", "release", "start")
        assert (said["release"]["directory"], said["start"]["directory"]) == (str(a), str(c))
        assert run_daemon("--max-size", "5M", "--once", a).returncode == 0  # nobody keeps it any more
        assert run_daemon("--max-size", "5M", "--once", b).returncode == 3
        fill(a, 200, 10_000)
        fill(c, 200, 10_000)
        until(lambda: bytes_on_disk(c) <= 950_000)
        assert bytes_on_disk(a) == 2_000_000
        assert json.loads((b / "lockcache" / "daemon.json").read_bytes())["since"] == since
        assert (b / "lockcache" / "daemon.lock").stat().st_ino == lock.st_ino
        assert daemon.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_a_reload_with_a_mistake_keeps_the_old_settings_and_says_what_is_wrong(config: Path, cache_path: Path) -> None:
    config.write_text(table(cache_path, max_size="1M"))
    with RunningDaemon("--config", config) as daemon:
        config.write_text('max_sise = "1M"\n' + table(cache_path, max_size="2M"))
        daemon.process.send_signal(signal.SIGHUP)
        message = daemon.wait_for("error")["error"]["message"]
        assert message.startswith(f"{config}:1: ")
        assert "max_s" in message
        fill(cache_path, 200, 10_000)
        until(lambda: bytes_on_disk(cache_path) <= 950_000)
        assert cap_of(cache_path) == 1_000_000
        reload(daemon, config, table(cache_path, max_size="3M"), "cap")
        assert cap_of(cache_path) == 3_000_000


def test_a_refused_reload_is_in_the_metrics_until_one_succeeds(config: Path, cache_path: Path) -> None:
    config.write_text(table(cache_path, max_size="1M"))
    with Watched("--config", config) as daemon:
        assert daemon.metric("lockcache_reload_refused") == 0
        reload(daemon, config, table(cache_path, max_size="ten"), "error")
        until(lambda: daemon.metric("lockcache_reload_refused") == 1)  # an answer is served for a moment
        reload(daemon, config, table(cache_path, max_size="1M"))
        until(lambda: daemon.metric("lockcache_reload_refused") == 0)


@pytest.mark.long
def test_a_directory_that_cannot_be_opened_yet_is_said_and_tried_again(config: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    config.write_text(table(a, max_size="1M"))
    with RunningDaemon("--config", config) as daemon, RunningDaemon("--max-size", "2M", b) as other:
        reload(daemon, config, table(a, max_size="1M") + table(b, max_size="1M"))
        assert f"pid {other.process.pid}" in daemon.wait_for("error")["error"]["message"]
        assert cap_of(b) == 2_000_000
        other.end(signal.SIGTERM)
        assert daemon.wait_for("start")["directory"] == str(b)
        assert cap_of(b) == 1_000_000
        assert daemon.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_a_directory_of_unclear_layout_that_a_reload_adds_is_a_problem_until_it_is_kept(
    config: Path, tmp_path: Path
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    b.mkdir(0o700)
    (b / "notes.txt").write_text("somebody's")
    config.write_text(table(a, max_size="1M"))
    with Watched("--config", config) as daemon:
        reload(daemon, config, table(a, max_size="1M") + table(b, max_size="1M"))
        said = daemon.wait_for("error")
        assert (said["directory"], said["error"]["kind"]) == (str(b), "WrongLayoutError")
        until(lambda: get(daemon.port, "/healthz")[0] == 503)
        assert daemon.metric("lockcache_directory_up", directory=str(b)) == 0
        (b / "notes.txt").unlink()
        said = daemon.wait_for("start")
        assert (said["directory"], said["layout"]) == (str(b), "lockcache")
        until(lambda: get(daemon.port, "/healthz")[0] == 200)
        assert daemon.directory(b)["layout"] == "lockcache"
        assert daemon.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_a_cap_that_is_taken_out_of_the_file_is_taken_from_the_directory(config: Path, cache_path: Path) -> None:
    config.write_text(table(cache_path, max_size="1M", max_age="1d"))
    with RunningDaemon("--config", config) as daemon:
        reload(daemon, config, table(cache_path, max_age="1d"), "cap")
        assert cap_of(cache_path) is None
        with FileStreamProgramCache(cache_path, max_size_bytes=5_000_000) as cache:
            assert cache.max_size_bytes == 5_000_000  # no operator's any more
        assert daemon.wait_for("cap")["max_size_bytes"] == 5_000_000


def test_a_cap_that_did_not_change_leaves_what_an_operator_set_meanwhile(config: Path, cache_path: Path) -> None:
    make_directory(cache_path)
    config.write_text(table(cache_path, max_size="1M"))
    with RunningDaemon("--config", config) as daemon:
        set_policy(cache_path, Policy(700_000, by_operator=True))
        changed = daemon.wait_for("cap")
        assert (changed["max_size_bytes"], changed["reloaded"]) == (700_000, False)
        reload(daemon, config, table(cache_path, max_size="1M", max_entries="1M"))
        fill(cache_path, 200, 10_000)
        until(lambda: bytes_on_disk(cache_path) <= 665_000)
        assert cap_of(cache_path) == 700_000
        assert daemon.end(signal.SIGTERM) == 0


@pytest.mark.long
@pytest.mark.parametrize("has_config", [True, False], ids=["config", "flags"])
def test_under_nohup_a_hangup_reloads_a_file_and_ends_nothing(config: Path, cache_path: Path, has_config: bool) -> None:
    config.write_text(table(cache_path, max_size="1M"))
    arguments = ["--config", str(config)] if has_config else ["--max-size", "1M", str(cache_path)]
    command = ["nohup", SCRIPT, "--json", "--interval", "50ms", *arguments]
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        stack.callback(process.kill)
        assert process.stdout is not None
        events = (json.loads(line)["event"] for line in process.stdout)
        assert next(events) == "start"
        config.write_text(table(cache_path, max_size="700K"))
        process.send_signal(signal.SIGHUP)
        if has_config:
            assert "reload" in events
        fill(cache_path, 200, 10_000)
        assert "sweep" in events
        assert cap_of(cache_path) == (700_000 if has_config else 1_000_000)
        process.terminate()
        assert process.wait(HANG_SECONDS) == 0
        assert set(events) - {"sweep", "repair"} == {"stop"}


if __name__ == "__main__":
    write_on_demand(sys.argv[1])
