# SPDX-License-Identifier: Apache-2.0
"""The daemon's scrub, as a process: what is corrupt is found without anybody reading, quarantined, and said."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.repair.quarantine import measure_quarantine
from tests.crash.damage import fill_to_damage, spoil
from tests.daemon.daemon_process import RunningDaemon, run_daemon, until
from tests.daemon.directories import accounting_is_exact, fill, names_on_disk

KEYS = [b"%d" % number for number in range(100)]


@pytest.fixture
def filled(cache_path: Path) -> Path:
    return fill_to_damage(cache_path, KEYS)


def status(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "lockcache/daemon.json").read_bytes())
    return found


def test_a_flip_that_nobody_reads_is_found_quarantined_said_and_shown(filled: Path) -> None:
    name = spoil(filled, b"7")
    with RunningDaemon("--max-size", "1G", filled) as daemon:
        said = daemon.wait_for("corrupt")
        assert (said["entry"], said["why"], said["repaired"]) == (name, "digest", True)
        assert name in Path(said["moved_to"]).name
        round_ = daemon.wait_for("scrub")
        assert (round_["entries"], round_["whole"], round_["corrupt"]) == (len(KEYS), len(KEYS) - 1, 1)
        until(lambda: (status(filled).get("scrub") or {}).get("rounds", 0) >= 1)
        shown = status(filled)["scrub"]
        assert shown["since_start"]["corrupt"] == 1
        assert (shown["quarantine_entries"], shown["rate_bytes"]) == (1, 10_000_000)
        assert daemon.end(signal.SIGTERM) == 0
    assert name not in names_on_disk(filled)
    assert accounting_is_exact(filled)


@pytest.mark.long
def test_once_with_scrub_verifies_everything_and_sums_up(filled: Path) -> None:
    for key in KEYS[:30]:
        spoil(filled, key)
    done = run_daemon("--max-size", "1G", "--once", "--scrub", "--json", filled)
    assert done.returncode == 0, done
    said = [json.loads(line) for line in done.stdout.splitlines()]
    [scrub] = [each for each in said if each["event"] == "scrub"]
    assert (scrub["entries"], scrub["corrupt"], scrub["repaired"]) == (len(KEYS), 30, 30)
    assert sum(each["event"] == "corrupt" for each in said) == 16, "a log stays readable"
    assert measure_quarantine(Layout(str(filled))).entries == 30
    assert accounting_is_exact(filled)
    clean = run_daemon("--max-size", "1G", "--once", "--scrub", filled)
    assert clean.returncode == 0
    assert f"verified {len(KEYS) - 30} entries" in clean.stdout


def test_once_with_scrub_that_cannot_put_something_out_of_the_way_exits_1(filled: Path) -> None:
    spoil(filled, b"7")
    (filled / "lockcache/quarantine").symlink_to("/tmp")
    done = run_daemon("--max-size", "1G", "--once", "--scrub", filled)
    assert done.returncode == 1
    assert "could not be moved into quarantine" in done.stderr
    assert entry_name(b"7") in names_on_disk(filled)


def test_a_directory_of_cuda_core_is_read_and_left_as_it_is(cache_path: Path) -> None:
    fill(cache_path, 50, 1000)
    done = run_daemon("--max-size", "1G", "--once", "--scrub", "--json", cache_path)
    [scrub] = [each for line in done.stdout.splitlines() if (each := json.loads(line))["event"] == "scrub"]
    assert (done.returncode, scrub["unverified"], scrub.get("corrupt", 0)) == (0, 50, 0)
    assert len(names_on_disk(cache_path)) == 50


@pytest.mark.long
def test_a_reload_changes_the_rate(filled: Path, tmp_path: Path) -> None:
    spoil(filled, b"7")
    config = tmp_path / "lockcache.toml"
    config.write_text(f'max_size = "1G"\nscrub_rate = "off"\n[[directory]]\npath = "{filled}"\n')
    with RunningDaemon("--config", config) as daemon:
        config.write_text(f'max_size = "1G"\nscrub_rate = "20M"\n[[directory]]\npath = "{filled}"\n')
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("corrupt")
