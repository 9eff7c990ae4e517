# SPDX-License-Identifier: Apache-2.0
"""``lockcache run --keep`` where something is wrong: planted files, locks, damage, full disks, killed guards."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import FOLDER, entry_name, opened
from lockcache.integrations.kept_folders import FolderGuard, parse_pattern
from lockcache.integrations.staged import is_staged
from lockcache.lowlevel import Layout, Selection, select_entries
from tests.cli.builders import HANG_SECONDS, build
from tests.cli.command import run
from tests.cli.test_keep import finish, stored
from tests.daemon.daemon_process import until
from tests.matrix_sampling import EXHAUSTIVE


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant, why",
    [
        ("ln -s /etc/passwd $K/link", "holds link, which is a symlink"),
        pytest.param("mkdir $K/sub; ln -s / $K/sub/link", "holds sub/link, which is a symlink", marks=EXHAUSTIVE),
        ("mkfifo $K/pipe", "holds pipe, which is neither a file nor a folder"),
        pytest.param("touch $K/$(head -c 200 /dev/zero | tr '\\0' %)", "whose name cannot be stored", marks=EXHAUSTIVE),
        pytest.param("mkdir -p $K/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16", "folders deep", marks=EXHAUSTIVE),
        ("head -c 3000000 /dev/zero > $K/large", "is larger than 2.0 MB"),
    ],
)
def test_a_folder_with_what_cannot_be_stored_is_skipped_with_one_line(plant: str, why: str, tmp_path: Path) -> None:
    make = f"K=$KERNELS/.b; mkdir $K && echo x > $K/f && {plant}; mkdir $KERNELS/k2; echo y > $KERNELS/.c"
    script = f"{make}; mv $K $KERNELS/k1; mkdir $KERNELS/.d; echo z > $KERNELS/.d/f; mv $KERNELS/.d $KERNELS/good"
    code, _, err = finish(tmp_path / "cache", tmp_path / "a", script, "--max-size", "2M")
    assert code == 0
    lines = [line for line in err.splitlines() if "--keep" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"lockcache: --keep: {tmp_path}/a/k1 ")
    assert why in lines[0]
    assert stored(tmp_path / "cache") == ["good"]


@pytest.mark.slow
def test_a_symlink_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "f").touch()
    script = f"ln -s {tmp_path}/other $KERNELS/k1; mkdir $KERNELS/k2; echo x > $KERNELS/k2/f"
    assert finish(tmp_path / "cache", tmp_path / "a", script)[0] == 0
    assert stored(tmp_path / "cache") == ["k2"]
    # Nor where a folder is to be laid down.
    node = tmp_path / "b"
    node.mkdir()
    (node / "k2").symlink_to(tmp_path / "other")
    code, _, err = finish(tmp_path / "cache", node, "true")
    assert code == 0
    assert "--keep" not in err
    assert os.listdir(tmp_path / "other") == ["f"]


def test_a_list_with_a_name_that_is_not_utf_8_keeps_no_folder_from_being_laid_down(tmp_path: Path) -> None:
    pattern = parse_pattern("NODE/*/", {"NODE": str(tmp_path / "node")})
    with FileStreamProgramCache(tmp_path / "cache") as cache:
        guard = FolderGuard(cache, pattern)
        metadata = {"modes": [0o644], "times": [0], "folders": [("", 0o755)]}
        cache.put_files(guard._keyed("k1"), {"a": b"1"}, metadata)
        guard._names.add(["\ud800", "k1"], was_moved=True)
        guard.close()
        reader = FolderGuard(cache, pattern)
        reader.lay_down()
        reader.close()
    assert os.listdir(tmp_path / "node") == ["k1"]


INTO_NOTHING = "< /dev/null > /dev/null 2>&1 & echo $!"
# Before, it is the shell's child, whose command line has the words before they are expanded.
UNTIL_IT_RUNS = "; until grep -qx tail /proc/$!/comm; do sleep 0.01; done"
BACKGROUND = f"sleep 1000 {INTO_NOTHING}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "mkdir $KERNELS/b; exec 3> $KERNELS/b/f; echo x >&3; mv $KERNELS/b $KERNELS/k1; " + BACKGROUND,
        "mkdir $KERNELS/k1; echo x > $KERNELS/k1/f; cd $KERNELS/k1; " + BACKGROUND,
        "mkdir $KERNELS/k1; echo x > $KERNELS/k1/f; tail -f $KERNELS/k1/f " + INTO_NOTHING + UNTIL_IT_RUNS,
        "mkdir $KERNELS/k1; echo x > $KERNELS/k1/f.lock; exec 3< $KERNELS/k1/f.lock; flock 3; " + BACKGROUND,
    ],
    ids=["open", "working directory", "command line", "locked"],
)
def test_a_folder_that_a_process_works_in_is_not_stored(script: str, tmp_path: Path) -> None:
    also = "mkdir $KERNELS/k2; echo y > $KERNELS/k2/f; mkdir $KERNELS/.m; echo y > $KERNELS/.m/f; "
    also += "mv $KERNELS/.m $KERNELS/m; " if "mv" in script else ""
    code, out, _ = finish(tmp_path / "cache", tmp_path / "a", also + script)
    os.kill(int(out), signal.SIGKILL)
    assert code == 0
    assert stored(tmp_path / "cache") == (["m"] if "mv" in script else ["k2"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lock", "out.partial"])
def test_a_folder_with_a_lock_or_a_temporary_file_is_not_whole(name: str, tmp_path: Path) -> None:
    script = f"mkdir $KERNELS/k1 $KERNELS/k2; touch $KERNELS/k1/f $KERNELS/k1/{name}; touch $KERNELS/k2/.ninja_log"
    assert finish(tmp_path / "cache", tmp_path / "a", script)[0] == 0
    assert stored(tmp_path / "cache") == ["k2"]


@pytest.mark.slow
def test_an_entry_that_is_damaged_is_not_laid_down_and_is_stored_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build(cache, tmp_path / "a", "moved")
    layout = Layout(str(cache))
    [found] = select_entries(layout, Selection(kind=("folder",)), 0)
    with open(layout.entry(found.name), "r+b") as file:
        file.write(b"\xff")
    assert build(cache, tmp_path / "b", "moved")[0] == "built"
    assert build(cache, tmp_path / "c", "moved")[0] == "found"


@pytest.mark.parametrize(
    "change",
    [
        {"modes": [0o644]},
        {"modes": [0o644, True]},
        {"times": [0, -1]},
        {"times": [0, 2**70]},
        {"times": "00"},
        {"folders": []},
        {"folders": [("", 0o755), ("../x", 0o755)]},
        {"folders": [("", 0o755), ("a", 0o755)]},
        {"folders": [["", 0o755]]},
        {"files": {"..%2Fx": b"1", "b": b"2"}},
        {"files": {"x%2Fy": b"1", "b": b"2"}},
        {"files": {"%2Fx": b"1", "b": b"2"}},
    ],
)
def test_an_entry_with_impossible_values_is_not_laid_down(change: dict[str, object], tmp_path: Path) -> None:
    """A directory is input: others may have written it."""
    stated: dict[str, object] = {
        "files": {"a": b"1", "b": b"2"},
        "modes": [0o644, 0o755],
        "times": [0, 0],
        "folders": [("", 0o755)],
    }
    for values, is_laid in ((stated, True), ({**stated, **change}, False)):
        node = tmp_path / f"node {is_laid}"
        with FileStreamProgramCache(tmp_path / f"cache {is_laid}") as cache:
            pattern = parse_pattern("NODE/*/", {"NODE": str(node)})
            guard = FolderGuard(cache, pattern)
            metadata = {name: value for name, value in values.items() if name != "files"}
            cache.put_files(guard._keyed("k1"), values["files"], metadata)  # type: ignore[arg-type]
            guard._names.add(["k1"], was_moved=True)
            guard.lay_down()
            guard.close()
        assert os.listdir(node) == (["k1"] if is_laid else [])


@pytest.mark.parametrize("is_network", [False, True])
def test_what_is_written_in_its_place_on_a_network_file_system_is_not_stored(
    is_network: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockcache.integrations.kept_folders.guard.is_network", lambda path: is_network)
    node = tmp_path / "node"
    with FileStreamProgramCache(tmp_path / "cache") as cache:
        guard = FolderGuard(cache, parse_pattern("NODE/*/", {"NODE": str(node)}))
        guard.lay_down()
        until(lambda: guard._now_ns() > guard._began_ns)  # the clock of changes has steps
        (node / "k1").mkdir()
        (node / "k1" / "half").touch()  # by a command of another host
        guard.list_folders()
        guard.finish(ended_well=True)
        guard.close()
    assert stored(tmp_path / "cache") == ([] if is_network else ["k1"])
    assert len(guard.problems) == is_network


KILLED = """
import os, signal, sys
from lockcache import FileStreamProgramCache
from lockcache.integrations.kept_folders import FolderGuard, guard, parse_pattern
whole = guard.write_in
def write_in(*arguments):
    whole(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
guard.write_in = write_in
FolderGuard(FileStreamProgramCache(sys.argv[1]), parse_pattern("KERNELS/*/", os.environ)).lay_down()
"""


@pytest.mark.slow
def test_what_a_killed_guard_had_staged_is_removed_and_the_folder_is_laid_down(tmp_path: Path) -> None:
    cache, node = tmp_path / "cache", tmp_path / "b"
    build(cache, tmp_path / "a", "moved")
    command = [sys.executable, "-c", KILLED, str(cache)]
    killed = subprocess.run(command, env={**os.environ, "KERNELS": str(node)}, timeout=HANG_SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL
    [left] = os.listdir(node)
    assert is_staged(left)
    os.utime(node / left, (0, 0))  # not of this moment
    assert build(cache, node, "moved")[0] == "found"
    assert os.listdir(node) == ["k1"]


@pytest.mark.root
@pytest.mark.slow
def test_where_the_programs_disk_is_full_the_command_runs_and_nothing_is_left_half_done(
    tmp_path: Path, mount_tmpfs: Callable[[str], Path]
) -> None:
    cache, node = tmp_path / "cache", mount_tmpfs("size=1m")
    make = "for k in k1 k2; do mkdir $KERNELS/$k; head -c 700000 /dev/urandom > $KERNELS/$k/f; done"
    assert finish(cache, tmp_path / "a", make)[0] == 0
    code, out, err = finish(cache, node / "b", "ls $KERNELS")
    assert code == 0
    assert out in ("k1\n", "k2\n")
    assert "is not laid down: No space left on device" in err
    assert len(os.listdir(node / "b")) == 1


@pytest.mark.root
@pytest.mark.slow
def test_where_the_caches_disk_is_full_the_command_runs_and_the_folder_is_one_line(
    tmp_path: Path, mount_tmpfs: Callable[[str], Path]
) -> None:
    disk = mount_tmpfs("size=1m")
    make = "for k in .k1 .k2; do mkdir $KERNELS/$k; head -c 2000000 /dev/urandom > $KERNELS/$k/f; done; "
    make += "mv $KERNELS/.k1 $KERNELS/k1; mv $KERNELS/.k2 $KERNELS/k2; mkdir $KERNELS/.k3; echo x > $KERNELS/.k3/f; "
    make += "mv $KERNELS/.k3 $KERNELS/k3; exit 7"
    code, _, err = finish(disk / "cache", tmp_path / "a", make)
    assert code == 7
    assert f"{tmp_path}/a/k1 is not stored: there is no room" in err
    assert stored(disk / "cache") == ["k3"]


@pytest.mark.slow
def test_stored_folders_that_nobody_used_for_an_hour_make_room_and_others_stay(
    tmp_path: Path, real_blocks: None
) -> None:
    cache, node = tmp_path / "cache", tmp_path / "a"
    make = "mkdir $KERNELS/.b; head -c 600000 /dev/urandom > $KERNELS/.b/f; mv $KERNELS/.b $KERNELS/"
    mine = node / "mine"
    mine.mkdir(parents=True)
    (mine / "f").write_bytes(bytes(2_000_000))
    for name in ("old", "busy", "new"):
        assert finish(cache, node, make + name, "--max-size", "1M")[0] == 0
    for name in ("mine", "old", "busy"):
        os.utime(node / name / "f", (1, 1))
    with open(node / "busy" / "f", "r+b"):  # of this process
        assert finish(cache, node, "true")[0] == 0
    assert sorted(os.listdir(node)) == ["busy", "mine", "new"]
    assert (mine / "f").exists()


@pytest.mark.slow
def test_what_is_stored_is_counted_as_no_lookup_and_no_compilation(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for node in ("a", "b"):
        said = build(cache, tmp_path / node, "moved")[1]
        assert said.splitlines()[1].startswith("lockcache: nothing was found or compiled here, ")
    assert run("verify", cache).returncode == 0


@pytest.mark.slow
def test_with_recache_nothing_is_laid_down_and_what_is_built_replaces_what_is_stored(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    make = "ls $KERNELS; mkdir $KERNELS/.b; echo {} > $KERNELS/.b/f; mv $KERNELS/.b $KERNELS/k1"
    assert finish(cache, tmp_path / "a", make.format("old"))[:2] == (0, "")
    assert finish(cache, tmp_path / "b", make.format("new"), LOCKCACHE_RECACHE="1")[:2] == (0, "")
    assert finish(cache, tmp_path / "c", "cat $KERNELS/k1/f")[:2] == (0, "new\n")


@pytest.mark.slow
def test_where_only_reading_is_allowed_folders_are_laid_down_and_nothing_is_made_in_the_directory(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    build(cache, tmp_path / "a", "moved")
    assert build(cache, tmp_path / "b", "moved")[0] == "found"
    make = "cat $KERNELS/k1/source.cu; mkdir $KERNELS/.b; echo x > $KERNELS/.b/f; mv $KERNELS/.b $KERNELS/k2"
    for node in ("b", "c"):
        before = sorted(cache.rglob("*"))
        assert finish(cache, tmp_path / node, make, LOCKCACHE_READONLY="1")[:2] == (0, "source")
        assert sorted(cache.rglob("*")) == before
    assert stored(cache) == ["k1"]


def test_the_names_of_two_that_add_at_once_and_those_after_a_hole_are_all_found(tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "cache") as cache:
        pattern = parse_pattern(f"{tmp_path}/a/*/", {})
        first, second = FolderGuard(cache, pattern)._names, FolderGuard(cache, pattern)._names
        assert first.add(["a"], was_moved=False)
        assert second.add(["b"], was_moved=False)
        assert first.add(["c"], was_moved=True)
        os.unlink(Layout(cache.path).entry(entry_name(first._numbered(0).encode())))
        last = FolderGuard(cache, pattern)._names
        last.read()
        assert list(last.known) == ["b", "c"]
        assert last.has_moved
        assert last.add(["d"], was_moved=False)
        last.read()
        assert sorted(last.known) == ["b", "c", "d"]


def test_a_process_that_is_stopped_with_the_roots_lock_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockcache.integrations.kept_folders.guard._WAIT_SECONDS", 0.2)
    node = tmp_path / "a"
    node.mkdir()
    with FileStreamProgramCache(tmp_path / "cache") as cache, opened(str(node), FOLDER) as fd:
        guard = FolderGuard(cache, parse_pattern(f"{node}/*/", {}))
        fcntl.flock(fd, fcntl.LOCK_EX)
        guard.lay_down()
        monkeypatch.setattr("lockcache.integrations.kept_folders.guard._WAIT_SECONDS", HANG_SECONDS)
        monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits again"))
        guard.list_folders()
        guard.finish(ended_well=True)
        guard.close()
