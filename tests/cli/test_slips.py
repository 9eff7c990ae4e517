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
from tests.programs import run_forked
from tests.thinning import EXHAUSTIVE

MAINS: Final[dict[str, Callable[[], object]]] = {
    "lockcache": lockcache.cli.main,
    "lockcache-daemon": lockcache_daemon.cli.main,
    "lockcache-stress": lockcache_stress.cli.main,
}

#: What was typed in a folder with a cache "kernels", a folder "other" and a file "file"; and a part of the answer.
SLIPS: Final = [
    # Commands.
    ("lockcache stat kernels", "No such command 'stat' (did you mean stats?); see lockcache --help"),
    ("lockcache lss kernels", "(did you mean ls?)"),
    ("lockcache help", "(did you mean --help?)"),
    ("lockcache info gemm", "(did you mean inspect?)"),
    ("lockcache delete gemm", "(did you mean rm?)"),
    ("lockcache du kernels", "(did you mean stats?)"),
    ("lockcache prune kernels", "(did you mean evict?)"),
    ("lockcache --verson", "No such option '--verson'. Did you mean '--version'?"),
    ("lockcache policy gte kernels", "Did you mean 'get'?"),
    ("lockcache key nwe file", "Did you mean 'new'?"),
    ("lockcache completion fihs", "'fihs' is not one of 'bash', 'zsh', 'fish'"),
    # Directories.
    ("lockcache stats kernals", "kernals: no such directory"),
    ("lockcache stats other", "other: holds other files (notes.txt) and is not a cache"),
    ("lockcache stats file", "'file' is a file"),
    ("lockcache stats kernels/entries", "entries: is a part of the cache in "),
    ("lockcache stats kernels other", "unexpected extra argument (other)"),
    ("LOCKCACHE_DIR=kernals lockcache stats", "kernals: no such directory (from $LOCKCACHE_DIR)"),
    ("lockcache rm gemm kernels", "'kernels' is a directory: write --dir kernels"),
    ("lockcache why nosuch", "there is no directory 'nosuch', and no cache in "),
    ("lockcache inspect gem kernels", "there is no entry 'gem' in "),
    ("lockcache rm nosuch --dir kernels", "there is no entry 'nosuch' in "),
    ("lockcache pack out.tar.zst kernals", "kernals: no such directory"),
    ("lockcache unpack missing.tar.zst kernels", "missing.tar.zst: No such file or directory"),
    ("lockcache unpack file kernels", "file: this archive ends in the middle"),
    ("lockcache key new file", "file: File exists"),
    # Options and their values.
    ("lockcache stats --jsn kernels", "Did you mean '--json'?"),
    ("lockcache evict --older-then 3d kernels", "'--newer-than', '--older-than'"),
    ("lockcache policy set --maxsize 10G kernels", "Did you mean '--max-size'?"),
    ("lockcache policy set --max-size 10 kernels", "'10' has no unit: write 10G or 10M, or 10B if you mean bytes"),
    ("lockcache policy set --max-size 10GG kernels", "'10GG' is not a size; accepted: 512M"),
    ("lockcache policy set --max-size -1G kernels", "'-1G' is not a size"),
    ("lockcache policy set --policy lur kernels", "'lur' is not one of 'lru', 'cost'"),
    ("lockcache policy set kernels", "Nothing says what to set: give --max-size or --policy"),
    ("lockcache evict kernels", "Nothing says what to evict: give --to"),
    ("lockcache evict --to 10 --yes kernels", "'10' has no unit"),
    ("lockcache evict --to 5% --yes kernels", "'5%' is not a size"),
    ("lockcache ls --sort sise kernels", "'sise' is not one of 'last-use', 'size'"),
    ("lockcache ls --limit ten kernels", "'ten' is not a whole number"),
    ("lockcache ls --older-than 30 kernels", "'30' is not a duration; accepted: a positive number with a unit"),
    ("lockcache ls --older-than 30days kernels", "'30days' is not a duration"),
    ("lockcache ls --kind cubn kernels", "no kind 'cubn' here; there are: cubin"),
    ("lockcache ls --arch sm_70 kernels", "no arch 'sm_70' here; there are: sm_90"),
    ("lockcache top --interval 5 kernels", "'5' is not a duration"),
    ("lockcache why --last 2 gemm kernels", "--last asks for no KEY, and 'gemm' is one"),
    # The daemon.
    ("lockcache-daemon kernels", "has no budget; accepted: at least one of --max-size"),
    ("lockcache-daemon --once --max-size 10 kernels", "--max-size: '10' has no unit: write 10G"),
    ("lockcache-daemon --once --max-size 10 G kernels", "--max-size: '10' has no unit"),
    ("lockcache-daemon --once --maxsize 10G kernels", "No such option '--maxsize'. (Did you mean one of:"),
    ("lockcache-daemon --once --max-size 1G --min-free 5 kernels", "--min-free: '5' has no unit: write 5% or 5G"),
    ("lockcache-daemon --once --max-size 1G --max-age 30 kernels", "--max-age: '30' is not a duration"),
    ("lockcache-daemon --once --max-size 1G --low-watermark 90 kernels", "'90' is not a share"),
    ("lockcache-daemon --once --max-size 1G --interval 5 kernels", "--interval: '5' is not a duration"),
    ("lockcache-daemon --once --max-size 1G --layout tritn kernels", "--layout: 'tritn' is none of what is accepted"),
    ("lockcache-daemon --once --max-size 1G --config no.toml", "no.toml: No such file or directory"),
    ("lockcache-daemon --once --max-size 1G other", "other contains notes.txt, which does not look like any supported"),
    ("lockcache-daemon --once --max-size 1G kernels/entries", "entries is a part of the cache in "),
    # The stress suite.
    ("lockcache-stress hrd", "hrd"),
    ("lockcache-stress herd --proceses 4", "--proceses"),
    ("lockcache-stress kill --seconds soon", "soon"),
    ("lockcache-stress bench hits", "hits"),
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
