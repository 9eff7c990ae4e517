# SPDX-License-Identifier: Apache-2.0
"""A member swaps folders and files for symlinks while a daemon keeps another program's directory, or writes metrics.

Each act of the daemon's is done a fixed number of times, as root. What the swaps make of its work is an error or
nothing; nobody judges that here. What is outside may not even be opened (:func:`.symlink_racer.untouched`).

Two ways in. Folders of Triton's and of any program's may be open to a group below a root that is not. And a whole
directory may be given to a group between the daemon's look at its modes and the end of its work, which in a complete
pass over a large directory is minutes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from lockcache.errors import LockcacheError
from lockcache.filestream.disk.layout import StagedName
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.eviction.choose import Goal
from lockcache.filestream.policy import Policy
from lockcache.integrations.pyptx_directory import files as pyptx_files
from lockcache.integrations.pyptx_directory.files import PyptxFiles
from lockcache.integrations.pyptx_directory.sidecar import pack
from lockcache.layouts import pyptx as scrubbed, triton
from lockcache_daemon.keeper.single_instance import Instance
from lockcache_daemon.observe.metrics_file import MetricsFile
from lockcache_daemon.scrub.scrub import Scrub
from lockcache_daemon.settings.rules import Rules
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores.foreign import ForeignStore
from lockcache_daemon.stores.layouts import store_of
from tests.access.group_members import GROUP, run_as
from tests.access.symlink_racer import leading_out, untouched
from tests.matrix_sampling import all_but

pytestmark = [pytest.mark.root, pytest.mark.slow]

ROUNDS = 150
WRITES = 600

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_OLD_NS = (10**18, 10**18)

#: A staged file of a process of this host that is dead.
DEAD = str(StagedName(0, 9, myself().host, 2**22 + 1, 1, 0))
KEY, LONE_KEY = "A" * 52, "B" * 52
NAME, CORRUPT_NAME, LEFT_NAME = "a" * 32, "b" * 32, "c" * 32


def _pyptx_files() -> dict[str, bytes]:
    files = {f"{LEFT_NAME}.cubin": b"left", f"lockcache/staged/{NAME}.ptx.kept": b"kept"}
    # Also so that the folder of locks is there when the directory is shared: a member cannot move one of mode 0700.
    files |= {f"lockcache/locks/{name[0]}": b"" for name in (NAME, CORRUPT_NAME, LEFT_NAME)}
    for name, ptx in ((NAME, b"ptx"), (CORRUPT_NAME, b"ptX")):
        files[f"{name}.json"] = pack(name, {"key": 1}, {}, b"ptx", b"cubin")
        files[f"{name}.ptx"], files[f"{name}.cubin"] = ptx, b"cubin"
    return files


#: What lies in a directory of each layout.
FILES: dict[str, dict[str, bytes]] = {
    "files": {
        "a/deep/kernel.bin": b"x" * 300,
        "a/deep/jit-cache": b"y" * 300,
        "a/deep/jit-atime": b"1",
        "a/deep/.lockfile": b"",
    },
    "triton": {
        **{f"{KEY}/{name}": b"x" * 300 for name in ("k.ptx", "k.cubin", "k.json", "__grp__k.json")},
        f"{KEY}/tmp.pid_1_2/k.cubin": b"staged",
        f"{LONE_KEY}/launcher.so": b"z" * 300,
        f"lockcache/condemned/{LONE_KEY}": b"",
    },
    "pyptx": _pyptx_files(),
}


class Case(NamedTuple):
    """What is swapped in a directory of a layout."""

    layout: str
    place: str


#: Below a root that only root may write to.
OPEN_FOLDERS = [
    Case("files", "a/deep"),
    Case("files", "a/deep/.lockfile"),
    Case("triton", f"{KEY}/k.cubin"),
]

#: In a directory that was given to the group after it was opened: one place for each call that reaches it.
ANY_FOLDERS = [
    Case("files", "a"),
    *(Case("pyptx", place) for place in ("lockcache", "lockcache/staged", "lockcache/locks")),
    Case("triton", "lockcache/condemned"),
    Case("pyptx", f"{CORRUPT_NAME}.ptx"),
]
#: What is opened, if ever, only after a look at it.
OPENED = [Case("files", "a/deep/.lockfile"), Case("pyptx", f"{NAME}.json")]


def _id(case: Case) -> str:
    return f"{case.layout}:{case.place.replace(KEY, 'KEY').replace(LONE_KEY, 'LONE_KEY')[:40]}"


@pytest.fixture(autouse=True)
def nothing_is_too_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "_READING_SECONDS", 0.0)
    monkeypatch.setattr(triton, "_COMPILING_SECONDS", 0.0)
    monkeypatch.setattr(pyptx_files, "_LEFT_SECONDS", 0.0)
    monkeypatch.setattr(scrubbed, "_SETTLED_SECONDS", 0.0)


def _folder_of_group(path: Path, mode: int) -> Path:
    path.mkdir()
    os.chown(path, 0, GROUP)
    path.chmod(mode)
    return path


@pytest.fixture
def root(home: Path) -> Path:
    """A directory of root's, through which the group may pass."""
    return _folder_of_group(home / "cache", 0o2750)


@pytest.fixture
def outside(home: Path) -> Path:
    path = home / "outside"
    path.mkdir()
    path.chmod(0o700)
    return path


def _fill(root: Path, files: Mapping[str, bytes]) -> None:
    """Make what is missing, by descriptors: the test itself may be led nowhere either."""
    for path, content in files.items():
        with contextlib.suppress(OSError):
            _make(os.open(root, os.O_RDONLY | os.O_DIRECTORY), *path.rpartition("/")[::2], content)


def _make(folder_fd: int, folders: str, name: str, content: bytes) -> None:
    mode = 0o700 if folders.startswith("lockcache") else 0o770  # else what lockcache made would be refused
    try:
        for part in folders.split("/") if folders else ():
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, mode, dir_fd=folder_fd)
            inner_fd = os.open(part, _OPEN_FOLDER, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = inner_fd
        fd = os.open(name, _NEW, 0o660, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.utime(fd, ns=_OLD_NS)


def _outside_of(case: Case, outside: Path) -> None:
    """Make all that such a directory has, so that what is done there by a name finds something."""
    _fill(outside, {**FILES[case.layout], f"lockcache/staged/{DEAD}": b"dead", "lockcache/policy": b"{}"})
    os.mkfifo(outside / "fifo")


def _keep(root: Path, case: Case, begin: Callable[[], object], after_opening: Callable[[], object]) -> int:
    """Do a daemon's work on the directory, again and again. Returns how many entries it evicted."""
    _fill(root, FILES[case.layout])  # here, where the umask lets the group have it
    with StopSignals() as stop:
        store = store_of(case.layout)(str(root), Rules(settle_seconds=0.0), stop)
        assert isinstance(store, ForeignStore)
        after_opening()
        begin()
        evicted = 0
        for _ in range(ROUNDS):
            evicted += _keep_once(root, case, store)
        store.close()
    return evicted


def _keep_once(root: Path, case: Case, store: ForeignStore) -> int:
    evicted = 0

    def sweep() -> None:
        nonlocal evicted
        evicted += store.sweep(Goal(0)).entries

    def scrub() -> None:
        if isinstance(store.files, PyptxFiles):
            Scrub(scrubbed.PyptxEntries(store.files), 1, Rules()).complete(lambda: None, lambda: None)
            store.files.close()  # so that lock files are opened again

    acts = (scrub, store.begin, sweep, *store.steps(), store.begin, store.files.glance, store.remake,
            lambda: Instance(store.layout).publish({}), lambda: store.policy.replace(Policy(5000)))  # fmt: skip
    _fill(root, FILES[case.layout])
    _fill(root, {f"lockcache/staged/{DEAD}": b"dead"})
    for act in acts:
        with contextlib.suppress(OSError, LockcacheError):
            act()
    return evicted


def _share(root: Path) -> None:
    """Share a directory like ``chown -R root:GROUP`` and ``chmod -R g+rwxs`` do."""
    for path in [root, *root.rglob("*")]:
        os.chown(path, 0, GROUP, follow_symlinks=False)
        if path.is_dir():
            path.chmod(0o2770)


def _race(root: Path, case: Case, target: Path | None, traps: Path, after_opening: Callable[[], object]) -> None:
    with leading_out(root / case.place, traps, target) as begin:
        evicted = run_as(0, lambda: _keep(root, case, begin, after_opening), umask=0o007)
    assert evicted > 0


@pytest.mark.parametrize("case", all_but([OPEN_FOLDERS[0], OPEN_FOLDERS[2]], OPEN_FOLDERS), ids=_id)
def test_what_is_swapped_in_an_open_folder_leads_no_sweep_out(case, root, outside, traps):
    _outside_of(case, outside)
    with untouched(outside):
        _race(root, case, outside / case.place, traps, lambda: None)


@pytest.mark.long
@pytest.mark.parametrize("case", ANY_FOLDERS, ids=_id)
def test_one_that_is_shared_in_the_middle_of_a_sweep_leads_no_sweep_out(case, root, outside, traps):
    """Seen to fail for ``lockcache/locks``: with lock files that ``disk/locks.py`` opens by their paths."""
    _outside_of(case, outside)
    with untouched(outside):
        _race(root, case, outside / case.place, traps, lambda: _share(root))


@pytest.mark.parametrize("case", all_but(OPENED[:1], OPENED), ids=_id)
def test_a_fifo_in_a_files_place_is_not_waited_for(case, root, traps):
    _race(root, case, None, traps, lambda: _share(root))


# ---- the metrics file ------------------------------------------------------------------------------------------------


@pytest.fixture
def metrics_folder(home: Path) -> Path:
    """A folder that the group shares, for a daemon of root's to write metrics to."""
    return _folder_of_group(home / "metrics", 0o2770)


def _write(file: MetricsFile, begin: Callable[[], object]) -> int:
    """Write the file in spite of the swaps. Returns how often that worked."""
    file.write()
    begin()
    done = 0
    for _ in range(WRITES):
        with contextlib.suppress(OSError):
            file.write()
            done += 1
    return done


def _metrics_file(folder: Path) -> MetricsFile:
    return MetricsFile(str(folder / "lockcache.prom"), lambda: b"metrics 1\n", lambda error: None)


@pytest.mark.parametrize("target", all_but(["lockcache.prom"], ["lockcache.prom", "fifo", None]))
def test_metrics_are_not_written_through_what_is_put_in_the_files_place(target, metrics_folder, outside, traps):
    _fill(outside, {"lockcache.prom": b"private"})
    os.mkfifo(outside / "fifo")
    file = _metrics_file(metrics_folder)
    led_to = None if target is None else outside / target
    with untouched(outside), leading_out(metrics_folder / "lockcache.prom", traps, led_to) as begin:
        assert run_as(0, lambda: _write(file, begin)) > 0
