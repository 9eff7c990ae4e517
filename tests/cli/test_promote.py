# SPDX-License-Identifier: Apache-2.0
"""A seed on the command line: ``promote``, ``run --seed --promote``, ``policy set --seed``, and what shows it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import BundleProgramCache, FileStreamProgramCache
from tests.cli.command import LOCKCACHE, run
from tests.processes.crowd import HANG_SECONDS

COMPILE = """
import sys
from lockcache import FileStreamProgramCache
with FileStreamProgramCache() as cache:
    for key in sys.argv[1:]:
        cache.get_or_compute(key, lambda: b"compiled " + key.encode())
    print(cache.stats().hits, cache.stats().puts)
"""


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with FileStreamProgramCache(tmp_path / "filled") as cache:
        for number in range(5):
            cache[b"%d" % number] = b"%d" % number * 100
    return tmp_path / "filled"


def test_promote_makes_the_bundle_and_adds_what_it_lacks(filled: Path, tmp_path: Path) -> None:
    path = tmp_path / "kernels.lcb"
    first = run("promote", "--json", filled, path)
    assert (first.returncode, json.loads(first.stdout)["promoted"]) == (0, 5)
    path.chmod(0o640)
    before = path.stat()
    again = json.loads(run("promote", "--json", filled, path).stdout)
    assert (again["promoted"], again["entries"]) == (0, 5)
    assert path.stat().st_ino == before.st_ino, "where there is nothing to add, the file stays"
    with FileStreamProgramCache(filled) as cache:
        cache[b"new"] = b"new"
        cache[b"0"] = b"replaced, and not new to the bundle"
    assert "promoted    1\n" in run("promote", filled, path).stdout
    with BundleProgramCache(path) as bundle:
        assert len(bundle) == 6
        assert (bundle[b"new"], bundle[b"0"]) == (b"new", b"0" * 100)
    assert path.stat().st_mode & 0o777 == 0o640, "who could read the older one can read the newer one"


def test_what_is_damaged_is_left_out(filled: Path, tmp_path: Path) -> None:
    next((filled / "entries").glob("*/*")).write_bytes(b"damaged")
    done = run("promote", filled, tmp_path / "kernels.lcb")
    assert done.returncode == 1
    assert "1 damaged entry left out" in done.stderr


def _run(tmp_path: Path, node: str, *keys: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    words = ["--dir", tmp_path / node, "--seed", tmp_path / "shared.lcb", "--promote", *options, "--"]
    command = [LOCKCACHE, "run", *words, sys.executable, "-c", COMPILE, *keys]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)


@pytest.mark.slow
def test_a_job_leaves_to_the_next_one_what_it_compiled(tmp_path: Path) -> None:
    first = _run(tmp_path, "node1", "a", "b")
    second = _run(tmp_path, "node2", "a", "b", "c", options=("--max-size", "1G"))
    third = _run(tmp_path, "node3", "a", "b", "c")
    assert [each.returncode for each in (first, second, third)] == [0, 0, 0], (first, second, third)
    assert [each.stdout.split() for each in (first, second, third)] == [["0", "2"], ["2", "1"], ["3", "0"]]
    assert "2 kernels promoted into" in first.stderr
    assert "1 kernel promoted into" in second.stderr
    assert "promoted" not in third.stderr
    assert FileStreamProgramCache(tmp_path / "node2").max_size_bytes == 10**9


@pytest.mark.slow
def test_the_last_of_a_node_promotes(tmp_path: Path) -> None:
    """Each is asked to end when all have begun; one is killed. What all compiled is promoted once."""
    program = COMPILE + "print('begun', flush=True); sys.stdin.read()\n"
    words = [LOCKCACHE, "run", "--dir", tmp_path / "node", "--seed", tmp_path / "shared.lcb", "--promote", "--"]
    ranks = [
        subprocess.Popen([*words, sys.executable, "-c", program, key], stdin=-1, stdout=-1, stderr=-1, text=True)
        for key in "abcd"
    ]
    for rank in ranks:
        assert rank.stdout is not None
        while "begun" not in rank.stdout.readline():
            assert rank.poll() is None
    ranks[0].send_signal(signal.SIGKILL)
    said = [rank.communicate(timeout=HANG_SECONDS)[1] for rank in ranks[1:]]
    ranks[0].communicate(timeout=HANG_SECONDS)
    assert sum("kernels promoted" in each for each in said) == 1
    with BundleProgramCache(tmp_path / "shared.lcb") as bundle:
        assert len(bundle) == 4


def test_an_operators_seed_is_shown_and_taken_away(filled: Path, tmp_path: Path) -> None:
    path, node = tmp_path / "kernels.lcb", tmp_path / "node"
    run("promote", filled, path)
    FileStreamProgramCache(node).close()
    assert run("policy", "set", "--seed", path, node).returncode == 0
    policy = json.loads(run("policy", "get", "--json", node).stdout)
    assert (policy["seed"]["path"], policy["seed"]["by_operator"]) == (str(path), True)
    assert json.loads(run("stats", "--json", node).stdout)["seed"]["bytes"] >= path.stat().st_size
    assert f"seed        {path}" in run("stats", node).stdout
    served = json.loads(run("stats", "--json", node).stdout)["seed"]["programs"]
    assert served == json.loads(run("stats", "--json", filled).stdout)["entries"] > 0
    assert f"bytes): serves {served} kernels\n" in run("stats", node).stdout
    assert run("ls", node).stderr == f"lockcache: for the kernels of the seed: lockcache bundle ls {path}\n"
    config = json.loads(run("config", "--json", node, LOCKCACHE_SEED="/elsewhere").stdout)
    assert (config["seed"]["value"], config["seed"]["origin"]) == (str(path), "set by an operator, in the directory")
    assert FileStreamProgramCache(node)[b"0"] == b"0" * 100
    assert run("policy", "set", "--max-size", "1G", node).returncode == 0
    assert FileStreamProgramCache(node)[b"0"] == b"0" * 100
    assert run("policy", "set", "--seed", "none", node).returncode == 0
    assert FileStreamProgramCache(node).get(b"0") is None
    assert not os.path.lexists(node / "lockcache/seed.lcb")
    assert f"{path}, not in use\n" in run("stats", node).stdout
    assert run("ls", node).stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["off", "the lock is a folder", "the lock is held"])
def test_what_is_wrong_with_promoting_never_keeps_the_command_from_running(tmp_path: Path, what: str) -> None:
    node = tmp_path / "node"
    FileStreamProgramCache(node).close()
    lock = node / "lockcache/locks/run"
    if what == "the lock is a folder":
        lock.mkdir()
    words = ["run", "--dir", node, "--seed", tmp_path / "k.lcb", "--promote", "--", "sh", "-c", "exit 7"]
    environment = {**os.environ, **({"LOCKCACHE_DISABLE": "1"} if what == "off" else {})}
    with contextlib.ExitStack() as stack:
        if what == "the lock is held":
            fcntl.flock(stack.enter_context(open(lock, "w")), fcntl.LOCK_EX)
        done = subprocess.run([LOCKCACHE, *words], env=environment, timeout=HANG_SECONDS, check=False)
    assert done.returncode == 7


# What happens when all entries are written, and the table is not.
AT_THE_TABLE = """
import os, sys
from lockcache.cli import main
from lockcache.filestream.bundle import BundleWriter

happens, *sys.argv = sys.argv[1], "lockcache", *sys.argv[2:]
finish = BundleWriter.finish

def happen(writer):
    exec(happens)
    finish(writer)

BundleWriter.finish = happen
sys.exit(main())
"""


def _run_while(happens: str, node: Path, path: Path) -> subprocess.CompletedProcess[str]:
    words = ["run", "--dir", node, "--seed", path, "--promote", "--", "sh", "-c", "exit 7"]
    command = [sys.executable, "-c", AT_THE_TABLE, happens, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_promoting_leaves_nothing_and_the_exit_code(
    filled: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Slurm's scancel: CMD has ended by it already."""
    done = _run_while(f"os.kill(os.getpid(), {number.value})", filled, tmp_path / "k.lcb")
    assert done.returncode == 7, done
    assert "lockcache: nothing was promoted: a signal ended that\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == [".k.lcb.lock", "filled"]


def test_a_signal_for_the_command_that_comes_late_is_dropped(filled: Path, tmp_path: Path) -> None:
    done = _run_while(f"os.kill(os.getpid(), {signal.SIGUSR1.value})", filled, tmp_path / "k.lcb")
    assert (done.returncode, "5 kernels promoted" in done.stderr) == (7, True), done


@pytest.mark.parametrize("error", ["ValueError('names that begin alike')", "MemoryError()"])
def test_whatever_is_wrong_with_the_bundle_leaves_the_exit_code(filled: Path, tmp_path: Path, error: str) -> None:
    done = _run_while(f"raise {error}", filled, tmp_path / "k.lcb")
    assert done.returncode == 7, done
    assert "nothing was promoted: " + ("names" if "names" in error else "it does not fit") in done.stderr
    assert not (tmp_path / "k.lcb").exists()


@pytest.mark.parametrize("word, code", [("no-such-command", 127), ("{filled}/lockcache/state", 126)])
def test_the_last_of_a_node_promotes_though_its_command_is_not_there(
    filled: Path, tmp_path: Path, word: str, code: int
) -> None:
    done = run("run", "--dir", filled, "--seed", tmp_path / "k.lcb", "--promote", "--", word.format(filled=filled))
    assert (done.returncode, "5 kernels promoted" in done.stderr) == (code, True), done
