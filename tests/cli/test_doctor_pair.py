# SPDX-License-Identifier: Apache-2.0
"""The doctor of two hosts: the two find each other, agree, and leave nothing behind however either of them ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lockcache import FileStreamProgramCache
from lockcache.doctor.pair.hosts import Card
from lockcache.doctor.pair.rendezvous import TOKEN_PREFIX, Meeting
from lockcache.doctor.probe_dir import PREFIX
from lockcache.filestream.disk import GuestLayout
from tests.cli.command import LOCKCACHE
from tests.cli.doctor import GOOD, NOTE, UNTESTED, UNUSABLE, everything_in, examined, until, verdicts
from tests.cli.doctor_pair import certified, start_half
from tests.processes.crowd import HANG_SECONDS

CHECKS = "two hosts|locks|exclusive creation|new names|replaced files|removed files|rename|attributes|open pages|clocks"


def rendezvous(root: Path) -> list[Path]:
    return list(root.rglob(f"{PREFIX}*"))


def has_begun(root: Path) -> bool:
    """Returns whether both have sent something."""
    return sum((folder / "0.0").exists() for folder in rendezvous(root)) == 2


@pytest.mark.slow
def test_two_processes_on_one_good_disk_find_all_good_and_certify_nothing(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"key"] = b"value"
    before = everything_in(cache_path)
    code, checks = certified(start_half(cache_path, "--json"), start_half(cache_path, "--json"))
    assert (code, verdicts(checks)) == (2, {"two hosts": UNTESTED})
    assert set(checks) == {*CHECKS.split("|"), "wake-ups"}
    assert checks["rename"]["measured"]["torn"] == checks["rename"]["measured"]["missing"] == 0
    assert checks["rename"]["measured"]["reads"] > 0
    assert checks["clocks"]["measured"]["least_seconds"] <= 0 <= checks["clocks"]["measured"]["most_seconds"]
    assert checks["wake-ups"]["verdict"] == GOOD
    assert everything_in(cache_path) == before


@pytest.mark.long
def test_people_see_a_table_and_a_launcher_s_other_rank_says_one_line(tmp_path: Path) -> None:
    first, second = start_half(tmp_path, PMI_RANK="0"), start_half(tmp_path, PMI_RANK="1")
    out, _ = first.communicate(timeout=HANG_SECONDS)
    assert "exclude the other host, both ways" in out
    assert "-> run it on two: mpiexec" in out
    assert out.splitlines()[-1].startswith("not certified")
    out, err = second.communicate(timeout=HANG_SECONDS)
    assert out == ""
    assert err.splitlines()[-1].endswith("not certified: see what is not tested above (rank 0 prints)")


@pytest.mark.long
def test_it_runs_under_mpiexec(tmp_path: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        pytest.skip("needs mpich")
    ended = subprocess.run(
        [mpiexec, "-n", "2", LOCKCACHE, "doctor", "--pair", "--json", tmp_path],
        capture_output=True,
        text=True,
        timeout=2 * HANG_SECONDS,
        check=False,
    )
    report = json.loads(ended.stdout)
    assert (report["certified"], report["verdict"], ended.returncode) == (False, "not tested", 2)
    assert {check["verdict"] for check in report["checks"]} == {GOOD, NOTE, UNTESTED}
    assert os.listdir(tmp_path) == []


def test_nobody_comes_and_it_says_so_in_time(tmp_path: Path) -> None:
    half = start_half(tmp_path, "--json", "--timeout", "2s")
    out, err = half.communicate(timeout=HANG_SECONDS)
    assert err.endswith("waiting for the other host: run the same command there\n")
    assert err.count("\n") == 1
    report = json.loads(out)
    assert (half.returncode, report["certified"]) == (2, False)
    assert report["checks"][-1]["found"] == f"no other host came to {tmp_path} for 2 s"
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_one_is_interrupted_and_the_other_says_so_and_nothing_is_left(tmp_path: Path) -> None:
    ends, stays = start_half(tmp_path, "--json"), start_half(tmp_path, "--json")
    until(lambda: has_begun(tmp_path))
    ends.send_signal(signal.SIGTERM)
    ends.communicate(timeout=HANG_SECONDS)
    assert ends.returncode == 128 + signal.SIGTERM
    report = json.loads(stays.communicate(timeout=HANG_SECONDS)[0])
    assert (stays.returncode, report["verdict"]) == (2, "not tested")
    assert report["checks"][-1]["found"] == "the other host ended, or was interrupted"
    until(lambda: os.listdir(tmp_path) == [])


@pytest.mark.long
def test_one_is_killed_with_all_its_processes_and_the_next_run_removes_what_it_left(tmp_path: Path) -> None:
    dies, stays = start_half(tmp_path, "--json"), start_half(tmp_path, "--json", "--timeout", "8s")
    until(lambda: has_begun(tmp_path))
    dies.send_signal(signal.SIGSTOP)  # or it starts another worker, which is not listed, and removes what it leaves
    until(lambda: psutil.Process(dies.pid).status() == psutil.STATUS_STOPPED)
    workers = psutil.Process(dies.pid).children(recursive=True)
    for process in (*workers, dies):  # a worker whose parent is gone would clean up
        process.send_signal(signal.SIGKILL)
    dies.communicate(timeout=HANG_SECONDS)
    report = json.loads(stays.communicate(timeout=HANG_SECONDS)[0])
    assert (stays.returncode, report["checks"][-1]["found"]) == (2, "the other host did not answer for 8 s")
    left = rendezvous(tmp_path)
    assert len(left) == 1
    start_half(tmp_path, "--timeout", "1s").communicate(timeout=HANG_SECONDS)
    assert os.listdir(tmp_path) == []


def test_another_version_is_not_certified_with(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    mine = tmp_path / f"{PREFIX}{TOKEN_PREFIX}{0:016x}"
    mine.mkdir(mode=0o700)
    layout = GuestLayout(str(tmp_path))
    meeting = Meeting(layout, str(mine), Card.of(str(tmp_path))._replace(version="0.0.1"))
    half = start_half(tmp_path, "--json")
    until(lambda: meeting.look() is not None)
    out, _ = half.communicate(timeout=HANG_SECONDS)
    report = json.loads(out)
    assert (half.returncode, report["certified"]) == (2, False)
    assert "the other host has lockcache 0.0.1" in report["checks"][-1]["found"]
    assert os.listdir(tmp_path) == [mine.name]


@pytest.mark.root
def test_a_directory_that_cannot_be_written_is_not_certified(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    half = start_half(disk, "--json")
    report = json.loads(half.communicate(timeout=HANG_SECONDS)[0])
    assert (half.returncode, report["checks"][-1]["check"]) == (2, "writing")
    assert report["checks"][-1]["verdict"] == UNUSABLE


@pytest.mark.root
@pytest.mark.long
def test_two_mounts_on_two_hosts_of_one_kernel_are_certified_under_their_names(
    mount_faulty: Callable[..., Path], tmp_path: Path
) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    mounts = [mount_faulty(server="faulty_client.py", backing=tmp_path / "server") for _ in range(2)]
    hosts = [("unshare", "--uts", "--net", "sh", "-c", f'hostname {name}; exec "$@"', "sh") for name in ("lc0", "lc1")]
    code, checks = certified(
        *(start_half(path, "--json", before=host) for path, host in zip(mounts, hosts, strict=True))
    )
    assert (code, verdicts(checks)) == (0, {})
    assert sorted(checks["two hosts"]["measured"]["hosts"]) == ["lc0", "lc1"]
    assert checks["wake-ups"]["verdict"] == NOTE


@pytest.mark.root
@pytest.mark.long
def test_one_host_says_of_a_shared_file_system_what_it_cannot_know_and_how_two_can(
    mount_faulty: Callable[..., Path],
) -> None:
    path = mount_faulty()
    _, checks = examined(path)
    assert checks["other hosts"]["verdict"] == NOTE
    assert f"mpiexec -n 2 -ppn 1 lockcache doctor --pair {path}" in checks["other hosts"]["advice"]
