# SPDX-License-Identifier: Apache-2.0
"""The doctor on caches and other directories: it notices what is wrong with each, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.doctor import checks_worker
from lockcache.doctor.files import group_member
from lockcache.doctor.findings import Subject
from lockcache.doctor.probe_dir import PREFIX
from tests.access.group_members import MALLORY, run_as
from tests.cli.command import LOCKCACHE, run, run_as_somebody
from tests.cli.doctor import DEGRADED, GOOD, NOTE, UNTESTED, UNUSABLE, everything_in, examined, until, verdicts
from tests.matrix_sampling import all_but
from tests.processes.crowd import HANG_SECONDS, run_all
from tests.state_pages import make_newer


@pytest.fixture
def filled(cache_path: Path) -> Path:
    with FileStreamProgramCache(cache_path, max_size_bytes=10**7) as cache:
        for number in range(20):
            cache[b"%d" % number] = bytes(1000)
    return cache_path


@pytest.mark.usefixtures("real_blocks")
def test_a_cache_in_order_on_a_good_disk_is_good_and_unchanged(filled: Path) -> None:
    before = everything_in(filled)
    code, checks = examined(filled)
    assert (code, verdicts(checks)) == (0, {} if os.geteuid() == 0 else {"group": UNTESTED})
    assert everything_in(filled) == before
    expected = "directory|file system|safety|policy|daemon|room|open files|accounting|leftovers|writing|locks|rename"
    expected += "|exclusive creation|new names|attributes|times|group|clock|fsync|a real cache|path|compile server"
    assert set(checks) == set(expected.split("|"))
    assert checks["a real cache"]["measured"]["hit_us"] > 0


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize(
    "damage, check, advice",
    [
        (lambda root: root.chmod(0o770), "safety", "chmod -R go-w"),
        (make_newer, "safety", "upgrade lockcache"),
        pytest.param(lambda root: os.chown(root, 65534, 65534), "safety", "as its owner", marks=pytest.mark.root),
    ],
    ids=["writable by others", "newer", "another's"],
)
def test_what_programs_would_refuse_is_unusable_and_comes_with_what_mends_it(
    damage: Callable[[Path], Any], check: str, advice: str, filled: Path
) -> None:
    damage(filled)
    code, checks = examined(filled)
    assert (code, checks[check]["verdict"]) == (2, UNUSABLE)
    assert advice in checks[check]["advice"] + checks[check]["found"]


@pytest.mark.long
def test_a_directory_that_a_group_shares_is_good_for_who_knows_and_says_how_for_others(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path, group=True).close()
    code, checks = examined(cache_path, LOCKCACHE_GROUP="1")
    assert (code, checks["safety"]["verdict"]) == (0, GOOD)
    code, checks = examined(cache_path)
    assert (code, checks["safety"]["verdict"]) == (2, UNUSABLE)
    assert "LOCKCACHE_GROUP=1" in checks["safety"]["advice"]
    assert "chmod -R go-w" in checks["safety"]["advice"]


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("sign", [-1, 1])
def test_drift_is_degraded_and_named_to_the_byte(sign: int, filled: Path) -> None:
    [*_, victim] = (filled / "entries").glob("*/*")
    victim.write_bytes(bytes(1000 + sign * 300))
    code, checks = examined(filled)
    assert (code, verdicts(checks)) == (1, {"accounting": DEGRADED})
    assert checks["accounting"]["measured"] == {"drift_bytes": -sign * 300, "drift_shards": 1, "entries": 20}
    assert run("recount", filled).returncode == 0
    assert examined(filled)[0] == 0


@pytest.mark.root
@pytest.mark.usefixtures("real_blocks")
def test_a_directory_that_was_copied_to_a_disk_of_other_blocks_is_told(
    filled: Path, mount_image: Callable[..., Path]
) -> None:
    disk = mount_image("ext4", 16, "-b", "1024", "-m", "0")
    copied = shutil.copytree(filled, disk / "cache")
    checks = examined(copied)[1]
    assert checks["blocks"]["verdict"] == NOTE
    assert checks["blocks"]["measured"]["real"]["block_bytes"] == 1024
    assert checks["accounting"]["verdict"] == DEGRADED
    FileStreamProgramCache(copied).close()
    checks = examined(copied)[1]
    assert "blocks" not in checks
    assert checks["accounting"]["verdict"] == GOOD


@pytest.mark.parametrize("page", all_but(["short"], ["short", "directory", "symlink"]))
def test_an_accounting_page_that_cannot_be_read_is_not_called_true(page: str, filled: Path, tmp_path: Path) -> None:
    usage = filled / "lockcache" / "state"
    usage.rename(tmp_path / "state")
    if page == "short":
        usage.write_bytes(b"0123456789")
    elif page == "directory":
        usage.mkdir()
    else:
        usage.symlink_to(tmp_path / "state")
    _, checks = examined(filled)
    assert checks["accounting"]["verdict"] == DEGRADED


def test_what_a_killed_writer_left_is_told_and_what_a_living_one_has_is_not(filled: Path) -> None:
    from lockcache.filestream.disk.layout import Layout, StagedName
    from lockcache.filestream.disk.owners import myself

    layout, me = Layout(str(filled)), myself()
    with subprocess.Popen(["true"]) as process:
        process.wait()
    for pid in (me.pid, process.pid):
        Path(layout.tmp, str(StagedName(0, 0, me.host, pid, me.start_ticks, 0))).write_bytes(b"")
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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_it_what_it_made_is_removed(number: signal.Signals, filled: Path) -> None:
    before = set(everything_in(filled))
    process = subprocess.Popen([LOCKCACHE, "doctor", filled], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    probes = (filled / "lockcache").glob
    until(lambda: process.poll() is not None or any(probes(f"{PREFIX}*")))
    process.send_signal(number)
    process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    until(lambda: set(everything_in(filled)) == before)


def _group_as_nobody(path: str) -> tuple[str, str]:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    [finding] = group_member(Subject(path, "empty", path))
    return finding.verdict, finding.found


@pytest.fixture
def closed() -> Iterator[Path]:
    """A cache of root's that nobody else may look into, where everybody can get to."""
    with tempfile.TemporaryDirectory(prefix="lockcache-test-") as parent:
        os.chmod(parent, 0o755)
        FileStreamProgramCache(Path(parent, "cache")).close()
        yield Path(parent, "cache")


@pytest.mark.root
@pytest.mark.parametrize("below", ["", "below"])
def test_a_directory_that_may_not_be_read_is_explained(closed: Path, below: str) -> None:
    request = {"check": "directory", "subject": Subject(str(closed / below))}
    [finding] = run_as(MALLORY, lambda: checks_worker._answer(request))["findings"]
    assert finding["verdict"] == UNUSABLE
    owner = f"{closed} is owned by root" if below else f"{closed}: permission denied: owned by root"
    assert f"{owner} (uid 0), mode 0700, and you are uid {MALLORY}" in finding["found"]
    assert f"chmod -R a+rX {closed}" in finding["advice"]
    with pytest.raises(PermissionError, match=f"mode 0700, and you are uid {MALLORY}; run lockcache doctor"):
        run_as(MALLORY, lambda: FileStreamProgramCache(closed))
    for command in ("stats", "ls", "config", "why", ["top", "--once"], ["policy", "get"], ["rm", "key", "--dir"]):
        words = [command] if isinstance(command, str) else command
        ended = run_as_somebody(*words, closed)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), words
        assert "owned by root (uid 0), mode 0700, and you are uid" in ended.stderr, words
        assert f"{closed}: permission denied" in ended.stderr or f"{closed} is owned" in ended.stderr, words


@pytest.mark.root
def test_who_is_not_root_is_told_what_could_not_be_tried(tmp_path: Path) -> None:
    [(verdict, found)] = run_all("fork", _group_as_nobody, [(str(tmp_path),)])
    assert verdict == UNTESTED
    assert "as root only" in found
