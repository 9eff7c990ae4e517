"""``lockcache verify``, run as an operator runs it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from tests.cli.command import LOCKCACHE, run
from tests.crash.damage import fill_to_damage, spoil
from tests.crash.measure import accounted, on_disk
from tests.daemon.directories import photograph

KEYS = [b"%d" % number for number in range(40)]


@pytest.fixture
def filled(cache_path: Path) -> Path:
    return fill_to_damage(cache_path, KEYS)


def verify_as_json(*arguments: object, code: int) -> dict[str, Any]:
    ended = run("verify", "--json", *arguments)
    assert ended.returncode == code, ended
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_sound_cache_exits_0_and_nothing_is_changed_or_used(filled: Path) -> None:
    run("stats", filled)
    for path in filled.glob("entries/??/*"):
        os.utime(path, (1000, 1000))
    before = photograph(filled)
    for path in filled.glob("entries/??/*"):
        os.utime(path, (1000, 1000))  # taking the photograph was a use
    found = verify_as_json(filled, code=0)
    assert (found["entries"], found["whole"], found["found"]) == (len(KEYS), len(KEYS), [])
    assert found["bytes"] == sum(len(key) * 500 for key in KEYS)
    assert all(path.stat().st_atime == 1000 for path in filled.glob("entries/??/*"))
    assert photograph(filled) == before


def test_what_is_corrupt_is_named_and_left_alone_without_repair(filled: Path) -> None:
    name = spoil(filled, b"7")
    run("stats", filled)
    before = photograph(filled / "entries")
    found = verify_as_json(filled, code=1)
    assert (found["whole"], found["corrupt"], found["repaired"]) == (len(KEYS) - 1, 1, 0)
    [entry] = found["found"]
    assert (entry["entry"], entry["state"], entry["why"], entry["repaired"]) == (name, "corrupt", "digest", False)
    assert photograph(filled / "entries") == before
    shown = run("verify", filled)
    assert shown.returncode == 1
    assert name in shown.stdout
    assert "verify --repair" in shown.stderr


def test_repair_quarantines_recounts_and_leaves_a_sound_cache(filled: Path) -> None:
    names = {spoil(filled, b"7"), spoil(filled, b"8", "truncated to half"), spoil(filled, b"9", "truncated to nothing")}
    found = verify_as_json("--repair", filled, code=1)
    assert (found["corrupt"], found["repaired"], found["quarantine_entries"]) == (3, 3, 3)
    assert {entry["entry"] for entry in found["found"]} == names
    assert all(os.path.exists(entry["moved_to"]) for entry in found["found"])
    assert found["drift_bytes"] == 250 + 500
    assert accounted(filled) == on_disk(filled)
    again = verify_as_json("--repair", filled, code=0)
    assert (again["whole"], again["quarantine_entries"]) == (len(KEYS) - 3, 3)
    assert FileStreamProgramCache(filled).get(b"7") is None
    assert run("clear", "--yes", filled).returncode == 0
    assert not (filled / "lockcache/quarantine").exists()


def test_what_cannot_be_repaired_is_said_with_the_reason(filled: Path) -> None:
    name = spoil(filled, b"7")
    (filled / "lockcache/quarantine").symlink_to("/tmp")
    shown = run("verify", "--repair", filled)
    assert shown.returncode == 1
    [line] = [line for line in shown.stdout.splitlines() if name in line]
    assert "NOT REPAIRED" in line
    assert "lockcache/quarantine" in line
    assert "1 corrupt entry is in place" in shown.stderr


def test_what_there_is_no_room_to_keep_is_removed_and_said_to_be(filled: Path) -> None:
    run("policy", "set", "--max-size", "100k", filled)
    with FileStreamProgramCache(filled) as cache:
        cache[b"large"] = b"x" * 20_000  # more than a sixteenth of the cap, the most that quarantine may hold
    name = spoil(filled, b"large")
    shown = run("verify", "--repair", filled)
    [line] = [line for line in shown.stdout.splitlines() if name in line]
    assert "removed, there was no room to keep it" in line
    assert not (filled / "entries" / name[:2] / name[2:]).exists()
    assert verify_as_json(filled, code=0)["corrupt"] == 0


@pytest.mark.root
def test_what_reading_would_count_as_a_use_of_is_passed_over_and_said(filled: Path) -> None:
    for path in [filled, *filled.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for parent in list(filled.parents)[:-2]:
        parent.chmod(parent.stat().st_mode | 0o005)
    shown = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", LOCKCACHE, "verify", filled],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert f"{len(KEYS)} entries were passed over" in shown.stderr


def test_entries_of_cuda_core_are_unverified_and_no_error(cache_path: Path) -> None:
    name = entry_name(b"key")
    path = cache_path / "entries" / name[:2] / name[2:]
    path.parent.mkdir(parents=True)
    cache_path.chmod(0o700)
    path.write_bytes(b"cubin")
    for folder in (cache_path / "entries", path.parent):
        folder.chmod(0o700)
    found = verify_as_json(cache_path, code=0)
    assert (found["entries"], found["unverified"]) == (1, 1)


def test_ten_thousands_of_corrupt_ones_are_summed_up_for_people_and_listed_for_programs(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        for number in range(60):
            cache[b"more %d" % number] = b"x" * 100
            spoil(filled, b"more %d" % number, "truncated to nothing")
    shown = run("verify", filled)
    assert "and 10 more" in shown.stdout
    assert len(verify_as_json(filled, code=1)["found"]) == 60


@pytest.mark.root
def test_a_read_only_directory_is_verified_and_not_repaired(mount_tmpfs: Callable[..., Path]) -> None:
    root = mount_tmpfs("size=8m") / "cache"
    with FileStreamProgramCache(root) as cache:
        cache[b"7"] = b"x" * 3000
        cache[b"8"] = b"x" * 3000
    spoil(root, b"7")
    subprocess.run(["mount", "-o", "remount,ro", str(root.parent)], check=True)
    found = verify_as_json(root, code=1)
    assert (found["whole"], found["corrupt"]) == (1, 1)
    refused = run("verify", "--repair", root)
    assert refused.returncode == 2
    assert "Read-only file system" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_on_a_terminal_there_is_a_progress_bar_and_stdout_is_clean(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        cache[b"large"] = bytes(60 << 20)
    main, terminal = pty.openpty()
    ended = subprocess.Popen([LOCKCACHE, "verify", "--json", filled], stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    seen = b""
    while True:
        try:
            seen += os.read(main, 4096)
        except OSError:
            break
    os.close(main)
    assert json.loads(ended.communicate(timeout=60)[0])["whole"] == len(KEYS) + 1
    assert b"verifying" in seen
