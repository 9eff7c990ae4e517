"""The doctor, on real file systems with real faults: it notices each, changes nothing, and never hangs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.doctor.files import group_member
from lockcache.doctor.findings import Subject
from lockcache.doctor.place import PREFIX
from tests.cli.running import LOCKCACHE, run
from tests.daemon.running import RunningDaemon
from tests.processes.crowd import HANG_SECONDS, run_all

GOOD, NOTE, UNTESTED, DEGRADED, UNUSABLE = "good", "note", "not tested", "degraded", "unusable"


def examined(path: Path, *options: str, **environment: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and what each check found."""
    ended = run("doctor", "--json", *options, path, **environment)
    report = json.loads(ended.stdout)
    assert report["exit_code"] == ended.returncode
    assert ended.stderr == ""
    checks = {check["check"]: check for check in report["checks"]}
    assert len(checks) == len(report["checks"]), "each check is told once"
    for check in checks.values():
        assert check["verdict"] not in (DEGRADED, UNUSABLE) or check["means"], "what is lost is said"
    return ended.returncode, checks


def verdicts(checks: dict[str, dict[str, Any]], *worse: str) -> dict[str, str]:
    """The checks that are neither good nor a note."""
    return {name: check["verdict"] for name, check in checks.items() if check["verdict"] not in (GOOD, NOTE)}


def everything_in(path: Path) -> dict[str, bytes | None]:
    return {str(each): each.read_bytes() if each.is_file() else None for each in path.rglob("*")}


@pytest.fixture
def filled(cache_path: Path) -> Path:
    with FileStreamProgramCache(cache_path, max_size_bytes=10**7) as cache:
        for number in range(20):
            cache[b"%d" % number] = bytes(1000)
    return cache_path


def test_a_cache_in_order_on_a_good_disk_is_good_and_unchanged(filled: Path) -> None:
    before = everything_in(filled)
    code, checks = examined(filled)
    assert (code, verdicts(checks)) == (0, {} if os.geteuid() == 0 else {"group": UNTESTED})
    assert everything_in(filled) == before
    expected = "directory|file system|safety|policy|daemon|room|open files|accounting|leftovers|writing|locks|rename"
    expected += "|exclusive creation|new names|attributes|times|group|clock|fsync|a real cache|path"
    assert set(checks) == set(expected.split("|"))
    assert checks["a real cache"]["measured"]["hit_us"] > 0


def test_for_people_it_is_a_table_that_ends_with_the_verdict(filled: Path) -> None:
    shown = run("doctor", filled)
    assert shown.returncode == 0
    assert "exclude another process" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "good: nothing is lost here"
    filled.chmod(0o777)
    shown = run("doctor", filled)
    assert shown.returncode == 2
    assert "chmod -R go-w" in shown.stdout
    assert shown.stdout.splitlines()[-1].startswith("unusable")


@pytest.mark.parametrize("kind", ["missing", "empty", "other"])
def test_what_is_no_cache_is_examined_and_does_not_become_one(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "some" / "place"
    if kind != "missing":
        path.mkdir(parents=True, mode=0o700)
    if kind == "other":
        (path / "thesis.tex").write_text("text")
    before = everything_in(tmp_path)
    code, checks = examined(path)
    assert code == 0
    assert checks["directory"]["measured"]["kind"] == kind
    assert checks["a real cache"]["verdict"] == GOOD
    assert everything_in(tmp_path) == before


def test_where_the_path_comes_from_is_said_and_keys_are_not(tmp_path: Path) -> None:
    ended = run("doctor", "--json", LOCKCACHE_DIR=str(tmp_path), LOCKCACHE_SIGNING_KEY="x1y2", LOCKCACHE_KEY_FILE="/k")
    path = next(check for check in json.loads(ended.stdout)["checks"] if check["check"] == "path")
    assert path["measured"]["source"] == "from $LOCKCACHE_DIR"
    assert path["measured"]["environment"]["LOCKCACHE_KEY_FILE"] == "/k"
    assert "x1y2" not in ended.stdout
    ended = run("doctor", "--json", LOCKCACHE_DIR="", XDG_CACHE_HOME=str(tmp_path))
    path = next(check for check in json.loads(ended.stdout)["checks"] if check["check"] == "path")
    assert path["measured"]["source"] == "the default, in the user cache directory"
    assert str(tmp_path) in path["found"]


@pytest.mark.parametrize(
    "damage, check, advice",
    [
        (lambda root: root.chmod(0o770), "safety", "chmod -R go-w"),
        (lambda root: (root / "lockcache/format").write_text("99\n"), "safety", "upgrade lockcache"),
        (lambda root: (root / "lockcache/policy.json").write_text("{}"), "policy", "lockcache policy set"),
        pytest.param(lambda root: os.chown(root, 65534, 65534), "safety", "chown", marks=pytest.mark.root),
    ],
    ids=["writable by others", "newer", "damaged policy", "another's"],
)
def test_what_programs_would_refuse_is_unusable_and_comes_with_what_mends_it(
    damage: Callable[[Path], Any], check: str, advice: str, filled: Path
) -> None:
    damage(filled)
    code, checks = examined(filled)
    assert (code, checks[check]["verdict"]) == (2, UNUSABLE)
    assert advice in checks[check]["advice"] + checks[check]["found"]


def test_a_directory_that_a_group_shares_is_good_for_who_knows_and_says_how_for_others(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path, group=True).close()
    code, checks = examined(cache_path, LOCKCACHE_GROUP="1")
    assert (code, checks["safety"]["verdict"]) == (0, GOOD)
    code, checks = examined(cache_path)
    assert (code, checks["safety"]["verdict"]) == (2, UNUSABLE)
    assert "LOCKCACHE_GROUP=1" in checks["safety"]["advice"]
    assert "chmod -R go-w" in checks["safety"]["advice"]


def test_nobody_is_told_to_close_a_directory_that_others_use(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("of somebody")
    tmp_path.chmod(0o1777)
    code, checks = examined(tmp_path)
    assert (code, checks["safety"]["verdict"]) == (2, UNUSABLE)
    assert "below it" in checks["safety"]["advice"]
    assert "chmod" not in checks["safety"]["advice"] + checks["safety"]["found"]


def test_a_file_in_its_place_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("doctor", tmp_path / "file")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "file" in ended.stderr
    code, checks = examined(tmp_path / "file" / "below")
    assert (code, checks["directory"]["verdict"]) == (2, UNUSABLE)


@pytest.mark.parametrize("sign", [-1, 1])
def test_drift_is_degraded_and_named_to_the_byte(sign: int, filled: Path) -> None:
    [*_, victim] = (filled / "entries").glob("*/*")
    victim.write_bytes(bytes(1000 + sign * 300))
    code, checks = examined(filled)
    assert (code, verdicts(checks)) == (1, {"accounting": DEGRADED})
    assert checks["accounting"]["measured"] == {"drift_bytes": -sign * 300, "entries": 20}
    assert run("recount", filled).returncode == 0
    assert examined(filled)[0] == 0


def test_what_a_killed_writer_left_is_told_and_what_a_living_one_has_is_not(filled: Path) -> None:
    from lockcache.filestream.layout import Layout, StagedName
    from lockcache.filestream.owner import myself

    layout, me = Layout(str(filled)), myself()
    with subprocess.Popen(["true"]) as process:
        process.wait()
    for pid in (me.pid, process.pid):
        Path(layout.staged(StagedName(0, 0, me.host, pid, me.start_seconds, 0))).write_bytes(b"")
    code, checks = examined(filled)
    assert (code, verdicts(checks)) == (1, {"leftovers": DEGRADED})
    assert checks["leftovers"]["measured"]["staged_files"] == 1


def test_what_a_killed_examination_left_is_told_with_what_removes_it(filled: Path) -> None:
    left = filled / "lockcache" / f"{PREFIX}0123"
    left.mkdir()
    code, checks = examined(filled)
    assert (code, checks["leftovers"]["verdict"]) == (0, NOTE)
    assert checks["leftovers"]["measured"]["examinations"] == 1
    assert checks["leftovers"]["advice"] == f"rm -r {left}"
    assert left.is_dir()


def test_a_cache_without_a_place_for_staged_files_is_in_order(filled: Path) -> None:
    (filled / "tmp").rmdir()
    code, checks = examined(filled)
    assert (code, verdicts(checks)) == (0, {})
    assert not (filled / "tmp").exists()


def test_a_running_daemon_is_named(filled: Path) -> None:
    with RunningDaemon("--max-size", "10M", str(filled)):
        code, checks = examined(filled)
    assert code == 0
    assert checks["daemon"]["measured"]["runs"]
    assert not examined(filled)[1]["daemon"]["measured"]["runs"]


@pytest.mark.parametrize("files, code, verdict", [(40, 1, DEGRADED), (300, 0, NOTE)])
def test_few_descriptors_are_degraded_and_fewer_than_locks_are_noted(
    files: int, code: int, verdict: str, filled: Path
) -> None:
    limited = f"ulimit -n {files}; {LOCKCACHE} doctor --json {filled}"
    ended = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    checks = {check["check"]: check for check in json.loads(ended.stdout)["checks"]}
    assert (ended.returncode, checks["open files"]["verdict"]) == (code, verdict)
    assert checks["open files"]["measured"]["soft"] == files


@pytest.mark.root
def test_without_proc_the_mount_is_not_told_and_all_else_is(filled: Path) -> None:
    hidden = f"mount -t tmpfs none /proc && {LOCKCACHE} doctor --json {filled}"
    ended = subprocess.run(["unshare", "--mount", "bash", "-c", hidden], capture_output=True, text=True, check=False)
    checks = {check["check"]: check for check in json.loads(ended.stdout)["checks"]}
    assert verdicts(checks) == {"file system": UNTESTED}
    assert "no /proc" in checks["file system"]["found"]
    assert ended.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_what_it_made_is_removed(number: signal.Signals, filled: Path) -> None:
    before = set(everything_in(filled))
    process = subprocess.Popen([LOCKCACHE, "doctor", filled], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    probes = (filled / "lockcache").glob
    _until(lambda: process.poll() is not None or any(probes(f"{PREFIX}*")))
    process.send_signal(number)
    process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    _until(lambda: set(everything_in(filled)) == before)


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        with contextlib.suppress(FileNotFoundError):  # removed while we look
            if happened():
                return
        assert time.monotonic() < deadline
        time.sleep(0.0005)


# What a good cache on each is found to lack, and what is said of the file system itself.
FILE_SYSTEMS: dict[str, tuple[tuple[Any, ...], dict[str, str]]] = {
    "ext4": (("ext4", 64, "-b", "4096"), {}),
    "xfs": (("xfs", 320), {}),
    "btrfs": (("btrfs", 128), {}),
    "ext4 of 1 KiB blocks": (("ext4", 64, "-b", "1024"), {"attributes": DEGRADED}),
    "ext4 of small inodes": (
        ("ext4", 64, "-b", "1024", "-I", "128", "-O", "^metadata_csum"),
        {"attributes": DEGRADED, "times": DEGRADED},
    ),
}


@pytest.mark.root
@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_disks_are_found_to_be_what_they_are(kind: str, mount_image: Callable[..., Path]) -> None:
    options, lacks = FILE_SYSTEMS[kind]
    disk = mount_image(*options)
    code, checks = examined(disk)
    assert verdicts(checks) == lacks
    assert code == (1 if lacks else 0)
    assert checks["file system"]["measured"]["kind"] == options[0]
    assert checks["file system"]["measured"]["mount_point"] == str(disk)
    if kind == "ext4 of 1 KiB blocks":
        assert 44 <= checks["attributes"]["measured"]["largest_bytes"] < 1024
    if kind == "ext4 of small inodes":
        assert checks["times"]["measured"]["tick_ns"] == 10**9


@pytest.mark.root
@pytest.mark.parametrize("options, verdict", [("umask=077", DEGRADED), ("umask=0", UNUSABLE), ("umask=022", DEGRADED)])
def test_fat_lacks_nearly_everything(options: str, verdict: str, tmp_path: Path) -> None:
    image, disk = tmp_path / "fat.img", tmp_path / "fat"
    disk.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    made = subprocess.run(["mkfs.vfat", str(image)], capture_output=True, check=False)
    mounted = subprocess.run(["mount", "-o", f"loop,{options}", image, disk], capture_output=True, check=False)
    if made.returncode or mounted.returncode:
        pytest.skip("needs mkfs.vfat and vfat in the kernel")
    try:
        code, checks = examined(disk)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    found = verdicts(checks)
    assert found["file system"] == found["attributes"] == found["times"] == DEGRADED
    assert checks["attributes"]["measured"]["largest_bytes"] == 0
    assert checks["times"]["measured"]["tick_ns"] == 2 * 10**9
    assert found.get("writing", GOOD) == {"umask=077": GOOD, "umask=0": UNUSABLE, "umask=022": DEGRADED}[options]
    assert code == (2 if verdict == UNUSABLE else 1)


@pytest.mark.root
def test_tmpfs_and_overlay_are_good_and_their_nature_is_noted(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=64m")
    code, checks = examined(disk)
    assert (code, checks["file system"]["verdict"]) == (0, NOTE)
    for name in ("lower", "upper", "work", "merged"):
        (disk / name).mkdir(mode=0o700)
    layers = f"lowerdir={disk}/lower,upperdir={disk}/upper,workdir={disk}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, disk / "merged"], check=True)
    try:
        code, checks = examined(disk / "merged")
    finally:
        subprocess.run(["umount", "-l", disk / "merged"], check=True)
    assert code == 0
    assert checks["file system"]["measured"]["kind"] == "overlay"
    assert "container" in checks["file system"]["means"]


@pytest.mark.root
def test_a_file_system_without_attributes_and_without_a_size_is_noticed(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=0700", "lockcache-test", tmp_path], check=True)
    try:
        code, checks = examined(tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
    assert (code, verdicts(checks)) == (1, {"attributes": DEGRADED})
    assert checks["attributes"]["measured"]["largest_bytes"] == 0
    assert checks["room"]["verdict"] == NOTE


@pytest.mark.root
def test_a_cap_that_the_disk_cannot_hold_is_degraded(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=32m,nr_inodes=4000")
    FileStreamProgramCache(disk / "cache", max_size_bytes=10**9).close()
    code, checks = examined(disk / "cache")
    assert (code, verdicts(checks)) == (1, {"room": DEGRADED})
    assert "lower the cap" in checks["room"]["advice"]
    run("policy", "set", "--max-size", "20M", disk / "cache")
    assert examined(disk / "cache")[0] == 0
    with FileStreamProgramCache(disk / "cache") as cache:
        for number in range(200):
            cache[b"%d" % number] = bytes(100)
    code, checks = examined(disk / "cache")
    assert (code, verdicts(checks)) == (1, {"room": DEGRADED}), "200,000 entries of 100 bytes, and 3,500 inodes"
    assert "inodes" in checks["room"]["means"]


@pytest.mark.root
def test_a_full_disk_is_degraded_and_not_an_error(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=2m")
    FileStreamProgramCache(disk / "cache").close()
    with contextlib.suppress(OSError), open(disk / "filler", "wb") as file:
        while True:
            file.write(bytes(4096))
    code, checks = examined(disk / "cache")
    assert code in (1, 2)
    assert checks["room"]["verdict"] == DEGRADED
    assert not [name for name in os.listdir(disk / "cache/lockcache") if name.startswith(PREFIX)]


@pytest.mark.root
def test_a_read_only_cache_is_diagnosed(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=64m")
    FileStreamProgramCache(disk / "cache").close()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    code, checks = examined(disk / "cache")
    assert (code, checks["writing"]["verdict"]) == (1, DEGRADED)
    assert "can be read" in checks["writing"]["means"]
    assert "nothing can be written here" in checks["the rest"]["found"]
    code, checks = examined(disk / "another")
    assert (code, checks["writing"]["verdict"]) == (2, UNUSABLE), "nothing to read, and nothing can be made"


def _group_as_nobody(path: str) -> tuple[str, str]:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    [finding] = group_member(Subject(path, "empty", path))
    return finding.verdict, finding.found


@pytest.mark.root
def test_who_is_not_root_is_told_what_could_not_be_tried(tmp_path: Path) -> None:
    [(verdict, found)] = run_all("fork", _group_as_nobody, [(str(tmp_path),)])
    assert verdict == UNTESTED
    assert "as root only" in found


@pytest.fixture
def mount_faulty(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a FUSE file system with the given faults."""
    servers: list[tuple[subprocess.Popen[bytes], Path]] = []

    def mount(*faults: str) -> Path:
        try:
            import mfusepy
        except OSError:
            pytest.skip("needs libfuse and fusermount (Debian: fuse3)")
        backing, path = tmp_path / f"backing{len(servers)}", tmp_path / f"faulty{len(servers)}"
        backing.mkdir(mode=0o700)
        path.mkdir(mode=0o700)
        server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("passthrough.py"), backing, path, *faults],
            stderr=subprocess.DEVNULL,
        )
        servers.append((server, path))
        assert mfusepy
        _until(lambda: os.path.ismount(path) or server.poll() is not None)
        if server.poll() is not None:
            pytest.skip("this machine lets nobody mount FUSE")
        return path

    yield mount
    for server, path in servers:
        server.kill()
        server.wait()
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


FAULTS = {
    "none": ({}, "passthrough"),
    "locks exclude nobody": ({"locks": DEGRADED}, "two processes hold the same exclusive lock"),
    "no attributes": ({"attributes": DEGRADED}, "none"),
    "times cannot be set": ({"times": DEGRADED, "clock": UNTESTED, "group": UNTESTED}, "cannot be set"),
    "times in steps of two seconds": ({"times": DEGRADED}, "steps of 2 s"),
    "everybody may write": ({"writing": UNUSABLE, "safety": UNUSABLE, "a real cache": UNUSABLE}, "lets others write"),
    "clock an hour ahead": ({"clock": DEGRADED}, "+3600"),
    "rename copies": ({"rename": DEGRADED, "a real cache": UNUSABLE}, "who had the old file open read"),
    "fsync fails": ({"fsync": DEGRADED, "a real cache": UNUSABLE}, "Input/output error"),
    "everybody may read": ({"writing": DEGRADED}, "0755"),
    "locks stay taken": ({"locks": DEGRADED}, "was released stays taken"),
    "locks outlive their holder": ({"locks": DEGRADED}, "killed process is not free after 2 s"),
    "others see the file that was replaced": ({"rename": UNUSABLE}, "another process read"),
    "creation excludes nobody": ({"exclusive creation": DEGRADED}, "200 of 200 files were made by both"),
    "EPERM for a name that is there": ({"exclusive creation": DEGRADED}, "EPERM instead of EEXIST"),
    "new names stay missing": ({"new names": DEGRADED}, "missing for more than 2 s"),
    "only the owner sets times": ({"group": DEGRADED}, "Operation not permitted"),
    "times of others do not stick": ({"group": DEGRADED}, "without effect"),
    "files cannot be given away": ({"group": UNTESTED}, "cannot be made here"),
}


@pytest.mark.root
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_file_system_is_noticed_and_no_other(fault: str, mount_faulty: Callable[..., Path]) -> None:
    expected, said = FAULTS[fault]
    path = mount_faulty(fault)
    code, checks = examined(path)
    assert verdicts(checks) == expected, {name: checks[name]["found"] for name in verdicts(checks)}
    assert code == (2 if UNUSABLE in expected.values() else 1 if DEGRADED in expected.values() else 0)
    assert said in checks[next(iter(expected), "file system")]["found"]
    assert checks["file system"]["measured"]["kind"] == "fuse"
    assert os.listdir(path) == []
    if fault in ("locks stay taken", "locks outlive their holder"):
        assert "dropped" in checks["locks"]["means"]
        assert "approximate" not in checks["locks"]["means"], "nobody gets in, rather than everybody"


@pytest.mark.root
def test_a_file_system_that_refuses_to_lock_is_unusable(mount_faulty: Callable[..., Path]) -> None:
    code, checks = examined(mount_faulty("locks refuse"))
    assert code == 2
    assert checks["locks"]["verdict"] == UNUSABLE
    assert checks["a real cache"]["verdict"] == UNUSABLE


@pytest.mark.root
@pytest.mark.timeout(100)
def test_a_dead_server_is_reported_and_nobody_waits_for_it(mount_faulty: Callable[..., Path]) -> None:
    code, checks = examined(mount_faulty("hangs"), "--timeout", "1s")
    assert code == 2
    hanging = [check for check in checks.values() if "the file system hangs" in check["found"]]
    assert len(hanging) == 2
    assert all(check["verdict"] == UNUSABLE for check in hanging)
