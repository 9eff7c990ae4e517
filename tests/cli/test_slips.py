# SPDX-License-Identifier: Apache-2.0
"""Slips of the keyboard, in all three programs: one line that names what was typed, and what was probably meant."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import lockcache.cli
import lockcache_daemon.cli
import lockcache_stress.cli
from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.bundle import BundleWriter
from tests.matrix_sampling import EXHAUSTIVE
from tests.programs import run_forked

MAINS: Final[dict[str, Callable[[], object]]] = {
    "lockcache": lockcache.cli.main,
    "lockcache-daemon": lockcache_daemon.cli.main,
    "lockcache-stress": lockcache_stress.cli.main,
}

#: What was typed in a folder with a cache "kernels", a folder "other" and a file "file"; and a part of the answer.
SLIPS: Final = [
    # Commands.
    ("lockcache stat kernels", "No such command 'stat' (did you mean stats?); see lockcache --help"),
    ("lockcache help", "(did you mean --help?)"),
    ("lockcache delete gemm", "(did you mean rm?)"),
    ("lockcache prune kernels", "(did you mean evict?)"),
    ("lockcache completion fihs", "'fihs' is not one of 'bash', 'zsh', 'fish'"),
    # Directories.
    ("lockcache stats kernals", "kernals: no such directory"),
    ("lockcache stats other", "other: holds other files (notes.txt) and is not a cache"),
    ("lockcache stats file", "'file' is a file"),
    ("lockcache stats kernels/entries", "entries: is a part of the cache in "),
    ("lockcache inspect gemm kernels other", "unexpected extra argument (other); see lockcache inspect --help"),
    ("LOCKCACHE_DIR=kernals lockcache stats", "kernals: no such directory (from $LOCKCACHE_DIR)"),
    ("lockcache rm gemm kernels", "'kernels' is a directory: write --dir kernels"),
    ("lockcache why nosuch", "there is no directory 'nosuch', and no cache in "),
    ("lockcache inspect gem kernels", "there is no entry 'gem' in "),
    ("lockcache unpack missing.lcb.zst kernels", "missing.lcb.zst: No such file or directory"),
    ("lockcache unpack file kernels", "file: it ends in the middle"),
    ("lockcache key new file", "file: File exists"),
    ("lockcache inspect kernels", "'kernels' is a directory, and no KEY is given: lockcache inspect KEY kernels"),
    ("lockcache pack kernels", "FILE comes first: lockcache pack FILE kernels"),
    ("lockcache ls --dir kernels", "No such option '--dir': DIR is an argument, as in lockcache ls DIR"),
    ("lockcache policy kernels", "No such command 'kernels'; there are get, set; see lockcache policy --help"),
    # Options and their values.
    ("lockcache stats --jsn kernels", "(did you mean --json?); see lockcache stats --help"),
    ("lockcache evict --older-then 3d kernels", "(did you mean --older-than?)"),
    ("lockcache policy set --max-size 10 kernels", "'10' has no unit: write 10G or 10M, or 10B if you mean bytes"),
    ("lockcache policy set kernels", "Specify the rule to set: --max-size, --policy or --seed"),
    ("lockcache evict kernels", "Specify the entries to evict: --to, "),
    ("lockcache evict --to 5% --yes kernels", "'5%' is not a size"),
    ("lockcache ls --older-than 30 kernels", "'30' is not a duration; accepted: a positive number with a unit"),
    ("lockcache ls --kind cubn kernels", "no kind 'cubn' here; there are: cubin"),
    ("lockcache why --last 0 kernels", "--last 0 shows nothing; give 1 or more"),
    ("lockcache inspect kernels gemm", "KEY comes first: lockcache inspect gemm kernels"),
    ("lockcache promote kernels", "Missing argument 'FILE'"),
    ("lockcache promote kernels file", "file: it is not a bundle, and nothing is promoted into it"),
    ("lockcache promote kernels nodir/made", "nodir: No such file or directory"),
    ("lockcache doctor --remote localhost", "'localhost' is not a URL that begins with redis://"),
    ("lockcache doctor --remote redis://localhost kernels", "a server is tried by itself, without a directory"),
    ("lockcache run --promote -- true", "--promote needs --seed FILE"),
    ("lockcache run --remote redis:/localhost -- true", "url does not name a host; accepted: redis://HOST"),
    ("lockcache run --remote redis://localhost?tll=5 -- true", "there is no setting 'tll'; did you mean ttl?"),
    ("lockcache run --remote redsi://me:secret@localhost -- true", "'redsi://' is not a URL that begins with redis"),
    ("LOCKCACHE_REMOTE=unix:// lockcache config", "LOCKCACHE_REMOTE: url does not name a path"),
    ("LOCKCACHE_LEASE_TIMEOUT=5 lockcache config", "LOCKCACHE_LEASE_TIMEOUT: '5' is not a duration"),
    # Bundles, Triton, running.
    ("lockcache bundle make kernels", "Missing option '-o' / '--output'"),
    ("lockcache bundle make -o kernels kernels", "File 'kernels' is a directory"),
    ("lockcache bundle ls file", "file: it is not a bundle"),
    ("lockcache bundle ls kernels", "kernels: not a plain file, so not a bundle"),
    ("lockcache bundle merge -o b", "Missing argument 'FILE...'"),
    ("lockcache ls made", "'made' is a bundle, and a directory is wanted; lockcache bundle ls made lists it"),
    ("lockcache import triton", "No such command 'import' (did you mean import-jax or import-triton?)"),
    ("lockcache import-jax nodir kernels", "nodir: no such directory"),
    ("lockcache import-jax other kernels", "other: not JAX's own cache"),
    ("lockcache import-jax --jax_version 1 other", "(did you mean --jax-version?)"),
    ("lockcache run", "Missing argument 'CMD...'"),
    ("lockcache run --deamon -- true", "(did you mean --daemon?)"),
    ("lockcache run --dir file -- true", "file: this is not a cache directory"),
    ("lockcache env", "Missing argument 'FRAMEWORK...'"),
    ("lockcache env tritn", "'tritn' is not one of 'cpp_extension', "),
    # What cannot be written to, or read from.
    ("lockcache inspect hex:xyz kernels", "'hex:xyz'"),
    ("lockcache pack kernels/k.lcb kernels", "is inside the cache"),
    ("lockcache pack --level 30 out.lcb kernels", "30"),
    ("lockcache pack --json - kernels", "both want stdout"),
    ("lockcache pack /proc/no-such kernels", "/proc/no-such"),
    ("lockcache pack --compiler nvrtc out.lcb kernels", "no compiler 'nvrtc' here; there are: unknown"),
    ("lockcache unpack --max-entry much file kernels", "'much'"),
    ("lockcache policy set --max-size 1G kernels/lockcache/state", "is a file"),
    ("lockcache run --seed nodir/k.lcb --promote -- true", "nodir: there is no such directory"),
    ("lockcache run --keep K/*/ -- true", "K is not set"),
    ("lockcache run --most-compiles -1 -- true", "-1"),
    ("lockcache run --daemon --dir kernels -- true", "has no cap; give --max-size"),
    ("lockcache run --keep /tmp/*/ -- true", "the system's"),
    ("lockcache manifest make -o kernels/m kernels", "inside the cache"),
    ("lockcache manifest ls kernels/lockcache/state", "line 1: this is not a manifest"),
    ("lockcache manifest fetch file new", "no server: give --remote URL or set LOCKCACHE_REMOTE"),
    # The daemon.
    ("lockcache-daemon --once --max-size 1G --namespaces triton kernels", "'triton' are not sizes of namespaces"),
    ("lockcache-daemon --once --max-size 1G --namespaces triton=2 kernels", "--namespaces: '2' has no unit"),
    (
        "lockcache-daemon systemd-units",
        "No such directory 'systemd-units' (did you mean systemd-unit?); see lockcache-daemon --help",
    ),
    ("lockcache-daemon systemd-unit --usr", "(did you mean --user?); see lockcache-daemon systemd-unit --help"),
    ("lockcache-daemon files nosuch", "there is no file 'nosuch'; lockcache-daemon files lists"),
    ("lockcache-daemon kernels", "has no budget; accepted: at least one of --max-size"),
    ("lockcache-daemon --once --max-size 10 kernels", "--max-size: '10' has no unit: write 10G"),
    (
        "lockcache-daemon --once --maxsize 10G kernels",
        "No such option '--maxsize' (did you mean --max-size?); see lockcache-daemon --help",
    ),
    ("lockcache-daemon --once --max-size 1G --min-free 5 kernels", "--min-free: '5' has no unit: write 5% or 5G"),
    ("lockcache-daemon --once --max-size 1G --layout tritn kernels", "--layout: 'tritn' is not known; accepted: auto"),
    ("lockcache-daemon --once --max-size 1G --scrub --dry-run kernels", "goes with --once"),
    ("lockcache-daemon --once --max-size 1G --config no.toml", "no.toml: No such file or directory"),
    ("lockcache-daemon --once --max-size 1G other", "other contains notes.txt, which does not look like any supported"),
    ("lockcache-daemon --once --max-size 1G kernels/entries", "entries is a part of the cache in "),
    # The stress suite.
    ("lockcache-stress hrd", "hrd"),
    ("lockcache-stress herd --proceses 4", "(did you mean --processes?); see lockcache-stress herd --help"),
    # Words of other programs, and what stands in another place.
    ("lockcache --json ls", "(did you mean lockcache ls --json?); see lockcache --help"),
    ("lockcache evict --age 30d kernels", "(did you mean --older-than?)"),
    ("lockcache evict --size 1G kernels", "(did you mean --to?)"),
    ("lockcache evict --older 30d kernels", "(did you mean --older-than?)"),
    ("lockcache evict --all kernels", "(did you mean lockcache clear?)"),
    ("lockcache evict 1G kernels", "(kernels) (did you mean --to 1G?); see lockcache evict --help"),
    ("lockcache policy set 10G kernels", "(did you mean --max-size 10G?)"),
    ("lockcache policy set --max-size unlimited kernels", "or none, for no cap"),
    ("lockcache inspect ge kernels", "there is no entry 'ge' in "),
    ("lockcache doctor --remote localhost:6379", "did you mean redis://localhost:6379?"),
    ("lockcache-daemon --max_size 1G kernels", "(did you mean --max-size?); see lockcache-daemon --help"),
    ("lockcache-daemon status", "No such command 'status': lockcache stats DIR shows a directory and its daemon"),
    ("lockcache-daemon stop --max-size 1G", "send SIGTERM to the daemon; a directory is written ./stop"),
]


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {str(path): (status.st_mtime_ns, status.st_size) for path, status in found.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    (tmp_path / "file").touch()
    with FileStreamProgramCache(tmp_path / "kernels") as cache:
        cache.put_entry("gemm", Entry(b"code", {"kind": "cubin", "arch": "sm_90"}))
    with open(tmp_path / "made", "wb") as out:
        BundleWriter(out).finish()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "typed, answer",
    [pytest.param(*each, marks=[] if number % 6 == 0 else EXHAUSTIVE) for number, each in enumerate(SLIPS)],
)
def test_a_slip_is_answered_in_one_line_and_changes_nothing(typed: str, answer: str, folder: Path) -> None:
    words = typed.split()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKCACHE_")}
    environment |= {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "home")}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    before = _state(folder)
    ended = run_forked(MAINS[words[0]], *words, env=environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert answer in ended.stderr
    assert ended.stderr.startswith(f"{words[0]}: ")
    assert ended.stderr.count("\n") == 1
    assert _state(folder) == before
