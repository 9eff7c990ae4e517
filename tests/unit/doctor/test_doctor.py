# SPDX-License-Identifier: Apache-2.0
"""The doctor's knowledge of mounts that cannot be made here; its processes answer or are given up."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lockcache.doctor.checks_process import Child, ChildDiedError, ChildHungError
from lockcache.doctor.checks_worker import _answer
from lockcache.doctor.examine import examine
from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNTESTED, UNUSABLE, Finding, Report, Subject
from lockcache.doctor.known_file_systems import _KNOWN, _Known, judge
from lockcache.doctor.probe_dir import held, make_probe, remove_probe
from lockcache.filestream.disk.mounts import _NETWORK, Mount, is_network_mount, mount_of


@pytest.mark.parametrize(
    "kind, options, verdict",
    [
        ("nfs4", "rw,vers=4.2,hard,local_lock=none", NOTE),
        ("nfs", "rw,vers=3,nolock,local_lock=all", DEGRADED),
        ("nfs", "rw,vers=3,local_lock=flock", DEGRADED),
        ("nfs", "rw,vers=3,local_lock=posix", NOTE),
        ("fuse.sshfs", "rw", DEGRADED),
        ("fuse.seaweedfs", "rw", DEGRADED),
        ("fuse.s3fs", "rw", DEGRADED),
        ("fuse.juicefs", "rw", NOTE),
        ("fuse.glusterfs", "rw", NOTE),
        ("fuseblk", "rw", GOOD),
        ("lustre", "rw,flock,lazystatfs", NOTE),
        ("lustre", "rw,localflock", DEGRADED),
        ("lustre", "rw", DEGRADED),
        ("beegfs", "rw", NOTE),
        ("cifs", "rw,nobrl", DEGRADED),
        ("cifs", "rw", NOTE),
        ("smb3", "rw,nobrl", DEGRADED),
        ("smb2", "rw", NOTE),
        ("smbfs", "rw", NOTE),
        ("pvfs2", "rw", NOTE),
        ("beegfs_nodev", "rw", NOTE),
        ("seaweedfs", "rw", DEGRADED),
        ("vfat", "rw", DEGRADED),
        ("ceph", "rw", NOTE),
        ("ext4", "rw,relatime", GOOD),
        ("xfs", "rw,noatime,noexec", GOOD),
        ("", "rw", GOOD),
    ],
)
def test_what_is_known_of_a_mount(kind: str, options: str, verdict: str) -> None:
    finding = judge(Mount(kind, "device", "/mnt", options))
    assert finding.verdict == verdict
    assert bool(finding.means) == (verdict != GOOD)
    assert options in finding.found


@pytest.mark.parametrize("kind", [*_NETWORK, "nfs4", "smb2", "smbfs", "pvfs2", "fuse.any", "glusterfs", "NFS4"])
def test_what_the_store_takes_for_a_network_file_system_is_not_a_good_one(kind: str) -> None:
    mount = Mount(kind, "device", "/mnt", "rw")
    assert is_network_mount(mount)
    assert judge(mount).verdict != GOOD


@pytest.mark.parametrize("known", _KNOWN, ids=lambda known: known.kinds[0])
def test_a_kind_that_another_machine_may_have_is_a_network_file_system(known: _Known) -> None:
    is_local = set(known.kinds) & {"vfat", "tmpfs", "overlay"}
    assert {is_network_mount(Mount(kind, "device", "/mnt", "rw")) for kind in known.kinds} == {not is_local}


def test_the_mount_of_a_path_is_the_nearest_above_it() -> None:
    mount = mount_of("/proc/self")
    assert mount is not None
    assert (mount.kind, mount.point) == ("proc", "/proc")
    assert mount_of("/").point == "/"  # type: ignore[union-attr]
    assert mount_of("/procession").point != "/proc"  # type: ignore[union-attr]


@pytest.mark.parametrize("found, code", [((GOOD, NOTE), 0), ((GOOD, DEGRADED), 1), ((UNUSABLE, DEGRADED), 2), ((), 0)])
def test_the_worst_finding_is_the_verdict(found: tuple[str, ...], code: int) -> None:
    report = Report("/x", [Finding("check", verdict, "found") for verdict in found])
    assert report.exit_code == code
    assert report.as_dict()["exit_code"] == code


@pytest.mark.slow
def test_a_child_that_does_not_answer_is_given_up_and_the_next_one_answers() -> None:
    # Reads a line and answers nothing: cat's cousin in the standard library.
    silent = Child("tests.unit.silent_child", own_group=True)
    with pytest.raises(ChildHungError):
        silent.ask({}, 0.2)
    peer = Child("lockcache.doctor.second_process", own_group=True)
    try:
        assert peer.ask({"do": "is there", "path": "/"}, 60.0) is True
        assert peer.ask({"do": "is there", "path": "/no such file"}, 60.0) is False
    finally:
        peer.end()


@pytest.mark.slow
def test_a_child_that_is_asked_nothing_more_ends_by_itself_and_is_killed_if_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Child("lockcache.doctor.second_process", own_group=True)
    peer.ask({"do": "is there", "path": "/"}, 60.0)
    process = peer._process
    peer.close()
    assert process is not None
    assert process.returncode == 0
    peer.close()  # nothing is left to end

    monkeypatch.setattr("lockcache.doctor.checks_process._LEAVE_SECONDS", 0.2)
    silent = Child("tests.unit.silent_child", own_group=True)
    silent.send({})
    process = silent._process
    silent.close()
    assert process is not None
    assert process.returncode == -signal.SIGKILL


def test_a_child_that_ends_is_no_answer() -> None:
    with pytest.raises(ChildDiedError):
        Child("tests.unit.no_such_module", own_group=True).ask({}, 60.0)


def test_a_child_that_ended_unnoticed_is_no_answer_either() -> None:
    child = Child("tests.unit.no_such_module", own_group=True)
    child._started().wait()
    with pytest.raises(ChildDiedError):
        child.send({})


@pytest.mark.slow
def test_a_check_whose_process_is_killed_is_not_tested_and_all_others_are(tmp_path: Path) -> None:
    def kill_the_worker(check: str, done: int, of: int) -> None:
        if check == "times":
            ours = psutil.Process().children()  # and others, of whatever ran in this process before
            alive = [child for child in ours if child.status() != psutil.STATUS_ZOMBIE]  # these have no command line
            [worker] = [child for child in alive if "lockcache.doctor.checks_worker" in child.cmdline()]
            worker.kill()

    report = examine(str(tmp_path), progress=kill_the_worker)
    untested = {finding.check: finding.found for finding in report.findings if finding.verdict == UNTESTED}
    assert untested.pop("times") == "the process that tried it ended"
    assert set(untested) == (set() if os.geteuid() == 0 else {"group"})
    assert {finding.check for finding in report.findings} >= {"locks", "clock", "a real cache"}
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("module", ["tests.unit.no_such_module", "tests.unit.silent_child"])
def test_a_check_whose_second_process_ends_or_hangs_is_not_tested(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockcache.doctor.checks_process._LEAVE_SECONDS", 0.1)
    monkeypatch.setattr("lockcache.doctor.sharing._PEER_SECONDS", 0.2 if module.endswith("silent_child") else 60.0)
    monkeypatch.setattr("lockcache.doctor.sharing.Child", lambda _, own_group: Child(module, own_group=own_group))
    subject = Subject(str(tmp_path), "empty", str(tmp_path))
    for check in ("rename", "exclusive creation", "new names", "locks"):
        [finding] = _answer({"check": check, "subject": subject})["findings"]
        assert (finding["check"], finding["verdict"]) == (check, UNTESTED)
        assert "second process" in finding["found"]


@pytest.mark.root
def test_what_cannot_be_removed_is_named(mount_tmpfs: Callable[..., Path]) -> None:
    busy = mount_tmpfs("size=1m")  # nobody removes a directory that something is mounted on
    [finding] = _answer({"check": "clean", "subject": Subject(str(busy.parent), "empty", str(busy))})["findings"]
    assert finding["verdict"] == UNTESTED
    assert f"{busy} is left" in finding["found"]
    assert finding["advice"] == f"rm -r {busy}"


def test_the_place_to_look_is_the_nearest_that_is_there(tmp_path) -> None:
    assert Subject(str(tmp_path / "a" / "b")).place == str(tmp_path)
    assert Subject(str(tmp_path)).place == str(tmp_path)


@pytest.mark.parametrize("swapped", ["lockcache", "probe"])
def test_where_others_may_write_a_swap_leads_no_trial_and_no_removal_elsewhere(tmp_path: Path, swapped: str) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "lockcache").mkdir(parents=True)
    root.chmod(0o2770)
    subject = Subject(str(root), kind="cache", token="t")
    subject = subject._replace(probe=make_probe(subject))
    (elsewhere / Path(subject.probe).name).mkdir(parents=True)
    with held(subject) as tried:
        place = root / "lockcache" if swapped == "lockcache" else Path(subject.probe)
        place.rename(tmp_path / "away")
        place.symlink_to(elsewhere if swapped == "lockcache" else elsewhere / Path(subject.probe).name)
        (Path(tried.probe) / "tried").touch()
    for use in (lambda: held(subject).__enter__(), lambda: remove_probe(subject)):
        with pytest.raises(OSError, match=r"in the way|symbolic|directory"):
            use()
    assert [path.name for path in elsewhere.rglob("*")] == [Path(subject.probe).name]
    assert [path.name for path in (tmp_path / "away").rglob("tried")] == ["tried"]


def test_a_probe_in_which_another_host_works_is_removed(tmp_path: Path) -> None:
    subject = Subject(str(tmp_path), "empty", str(tmp_path))

    def work(probe: Path, begun: threading.Event, done: threading.Event) -> None:
        with contextlib.suppress(OSError):  # the folder is gone
            while not done.is_set():
                for number in range(8):
                    (probe / f"{number}.new").write_bytes(b"x")
                    with contextlib.suppress(FileNotFoundError):
                        (probe / f"{number}.new").rename(probe / str(number))
                begun.set()

    for _ in range(30):
        probe, begun, done = make_probe(subject), threading.Event(), threading.Event()
        worker = threading.Thread(target=work, args=(Path(probe), begun, done))
        worker.start()
        begun.wait()
        remove_probe(subject._replace(probe=probe))
        done.set()
        worker.join()
        assert os.listdir(tmp_path) == []
