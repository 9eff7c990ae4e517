# SPDX-License-Identifier: Apache-2.0
"""Objects planted in the place of any file that a feature makes: none is read, followed, changed or waited for.

Seeds, servers, headers, views and runs. Which files there are is seen from a use of the feature, so that a new one is
asked too. The files that each directory has are in ``test_planted.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, LockcacheError
from lockcache.cli.program import run as run_command
from lockcache.filestream.closures import ClosureFile
from lockcache.filestream.disk.layout import Layout, entry_name
from tests.access.planted_files import FORGED, KEY, OBJECTS, Outside, plant
from tests.access.test_planted import HungError, no_hang
from tests.matrix_sampling import diagonals
from tests.unit.bundle.bundles import bundle_of, write

_SEEDED = b"seeded"


def open_cache(root: Path, **arguments: object) -> FileStreamProgramCache:
    return FileStreamProgramCache(root, max_size_bytes=10**6, lock_timeout_seconds=0.05, **arguments)


def seed(root: Path) -> None:
    bundle = root.parent / "kernels.lcb"
    if not bundle.exists():
        write(bundle, bundle_of({_SEEDED: b"of the seed"}))
    with open_cache(root, seed=bundle) as cache:
        assert cache.get(_SEEDED) in (None, b"of the seed")
        with contextlib.suppress(KeyError):
            del cache[_SEEDED]
        assert cache.get(_SEEDED) is None
        cache.clear()


def headers(root: Path) -> None:
    name = hashlib.sha256(b"closure").digest()
    with open_cache(root) as cache:
        closures = ClosureFile(cache._directory, None)
        assert closures.load(name) in (None, b"closure")
        closures.store(name, b"closure")
        assert closures.load(name) in (None, b"closure")


def server(root: Path) -> None:
    os.environ["LOCKCACHE_REMOTE"] = "http://127.0.0.1:9/kernels"
    try:
        with open_cache(root) as cache:
            cache[KEY] = b"value"
            assert cache.get(b"missing") is None
        assert run_command(["stats", "--json", str(root)]) in (0, 1, 2)
    finally:
        del os.environ["LOCKCACHE_REMOTE"]


def views(root: Path) -> None:
    with open_cache(root, record_files=True) as cache:
        cache.put_files(KEY, {"kernel": b"code"})
        path = cache.view_files(KEY)
        assert path is None or Path(path, "kernel").read_bytes() == b"code"
        with contextlib.suppress(OSError):
            cache.recount()
        if path is not None:
            cache.put_files(KEY, {"kernel": b"other"})
            cache.view_files(KEY)


def run(root: Path) -> None:
    command = ["run", "--quiet", "--dir", str(root), "--", sys.executable, "-S", "-c", ""]
    assert run_command(command) == 0


def keep(root: Path) -> None:
    kept = root.parent / "kept"
    (kept / "folder").mkdir(parents=True, exist_ok=True)
    (kept / "folder" / "file").write_bytes(b"kept")
    command = ["run", "--quiet", "--dir", str(root), "--keep", f"{kept}/*/", "--", sys.executable, "-S", "-c", ""]
    assert run_command(command) == 0


def misses(root: Path) -> None:
    layout = Layout(str(root))
    with open_cache(root) as cache:
        cache[KEY] = b"code"
    with contextlib.suppress(FileNotFoundError), open(layout.entry(entry_name(KEY)), "rb+") as file:
        file.write(b"edoc")
    for command in (["verify", "--repair"], ["why"], ["doctor"]):
        assert run_command([*command, str(root)]) in (0, 1, 2)


USES: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (seed, headers, server, views, misses, run, keep)
}
# Each use starts a process, or takes a second.
_LONG = ("misses", "run", "keep")
#: Hard links of files that are only read: see ``planted_files.READABLE``. The mark of a seed is read like its record.
_MAY_BE_READ = "hard link"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, kind",
    diagonals([pytest.param(name, marks=pytest.mark.long if name in _LONG else ()) for name in USES], OBJECTS, 3),
)
def test_no_use_of_a_feature_follows_changes_or_hangs_on_what_is_planted_there(
    tmp_path: Path, name: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    use, first = USES[name], tmp_path / "first" / "cache"
    first.parent.mkdir()
    if kind == "device" and os.geteuid():
        pytest.skip("needs root: device files")
    for _ in range(2):
        use(first)
    own = first / "lockcache"
    places = [
        each.relative_to(first) for each in sorted(own.rglob("*")) if each.parent != own / "locks" or len(each.name) > 2
    ]
    assert places
    wrong = []
    for number, place in enumerate(places):
        root = tmp_path / str(number) / "cache"
        root.parent.mkdir()
        use(root)
        outside = Outside(tmp_path / str(number) / "outside")
        plant(kind, root / place, outside)
        try:
            with no_hang(), contextlib.suppress(OSError, LockcacheError):
                use(root)
            outside.assert_untouched(may_be_read=kind == _MAY_BE_READ)
            said = "".join(capfd.readouterr())
            assert "Traceback" not in said, said
            assert kind == _MAY_BE_READ or FORGED.decode() not in said
        except (AssertionError, Exception, HungError) as error:  # noqa: BLE001 - all of a row's faults at once
            wrong.append(f"{place}: {(str(error).splitlines() or [repr(error)])[0][:100]}")
        shutil.rmtree(root.parent)
    assert not wrong, wrong
