# SPDX-License-Identifier: Apache-2.0
"""Copies of a directory by hard links (``cp -al``, rsync --link-dest): two directories that share nothing but bytes.

Asked of every file that any feature leaves below ``lockcache/``: whatever is done in one directory changes none of the
other's, and what is locked in one is waited for by nobody in the other. Not of the last use of an entry, which is the
file's: both directories have it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import lock_descriptor

from lockcache import FileStreamProgramCache
from lockcache.cli.program import run as run_command
from lockcache.filestream import seed_marks
from lockcache.filestream.accounting import NOT_COUNTED, encode_page, head_of, replace_state
from lockcache.filestream.disk.layout import Layout, entry_name
from tests.access.planted_files import KEY
from tests.access.test_planted_features import USES, open_cache
from tests.unit.bundle.bundles import bundle_of, write


def entries(root: Path) -> None:
    """All that a program does with entries, and what it reports: hits, evictions, deletions, a pin, a cap, a turn."""
    with open_cache(root, compile_once=True) as cache:
        cache[KEY] = b"value"
        cache.get_or_compute(b"computed", lambda: b"value")
        for number in range(8):
            cache[b"filling %d" % number] = os.urandom(200_000)  # more than the cap leaves
        assert cache.get(b"filling 7") is not None
        with contextlib.suppress(ZeroDivisionError):
            cache.get_or_compute(b"failing", lambda: 1 // 0)
        del cache[b"computed"]
    pin = ["pin", entry_name(b"filling 7"), "--dir"]
    for words in (["unpin", "--all", "--dir"], pin, ["policy", "set", "--max-size", "1M"], ["recount"]):
        assert run_command([*words, str(root)]) == 0, words


_USES: dict[str, Callable[[Path], None]] = {"entries": entries, **USES}


def _copy(root: Path, copy: Path) -> None:
    shutil.copytree(root, copy, copy_function=os.link)
    shutil.copystat(root, copy)


def _picture(root: Path) -> dict[str, tuple[int, str]]:
    """Returns the kind, and the content, of every file and folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
        found[str(path.relative_to(root))] = mode, content
    return found


@contextlib.contextmanager
def _all_locked(root: Path) -> Iterator[int]:
    """Hold a lock on every file below ``lockcache/``, as a process that was stopped there may. Yields how many."""
    with contextlib.ExitStack() as held:
        count = 0
        for path in (root / "lockcache").rglob("*"):
            if stat.S_ISREG(path.lstat().st_mode):
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                held.callback(os.close, fd)
                count += lock_descriptor(fd, blocking=False)
        yield count


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("entries", "seed") else pytest.mark.long) for name in _USES]
)
def test_what_is_done_in_one_directory_changes_nothing_in_the_other(tmp_path: Path, name: str) -> None:
    use = _USES[name]
    original, copy = tmp_path / "original" / "cache", tmp_path / "copy" / "cache"
    original.parent.mkdir()
    for _ in range(2):
        use(original)
    shutil.copytree(original.parent, copy.parent, ignore=shutil.ignore_patterns("cache"))
    _copy(original, copy)
    before = _picture(copy)
    use(original)
    assert _picture(copy) == before, "of a copy that was not opened yet"
    before = _picture(original)
    with _all_locked(original) as count:
        assert count
        use(copy)
        with open_cache(copy) as cache:
            cache[b"not waited for"] = b"value"
            assert cache[b"not waited for"] == b"value"
            assert cache.stats().dropped_writes == 0
    assert _picture(original) == before


def _counted_at_the_moment(copy: Layout) -> bytes:
    head = head_of(copy)
    assert head is not None
    return encode_page(head._replace(folder=head.folder + NOT_COUNTED))


def test_a_copy_of_a_page_that_is_being_counted_parts(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    with open_cache(original) as cache:
        cache[KEY] = b"value"
    _copy(original, copy)
    layout = Layout(str(copy))
    image = _counted_at_the_moment(layout)
    Path(layout.state).unlink()
    replace_state(layout, image)
    before = _picture(original)
    with _all_locked(original), open_cache(copy) as cache:
        assert cache[KEY] == b"value"
        cache[KEY] = b"newer"
        assert cache[KEY] == b"newer"
        assert cache.stats().dropped_writes == 0
    assert _picture(original) == before
    with open_cache(original) as cache:
        assert cache[KEY] == b"value"


def test_an_original_that_is_being_counted_keeps_its_lock_files(tmp_path: Path) -> None:
    """A copy shares them, and another process has one of them while it counts."""
    original = tmp_path / "original"
    with open_cache(original) as cache:
        cache[KEY] = b"value"
    _copy(original, tmp_path / "copy")
    layout = Layout(str(original))
    replace_state(layout, _counted_at_the_moment(layout))
    lock = os.stat(layout.directory_lock)
    with open_cache(original) as cache:
        cache[KEY] = b"newer"
    assert os.path.samestat(os.stat(layout.directory_lock), lock)


@pytest.mark.slow
def test_a_deletion_from_a_linked_seed_holds_for_who_has_it_open_and_for_nobody_else(tmp_path: Path) -> None:
    bundle = write(tmp_path / "kernels.lcb", bundle_of({b"one": b"1", b"two": b"2"}))
    original, copy = tmp_path / "original", tmp_path / "copy"
    with FileStreamProgramCache(original, seed=bundle) as reader:
        assert (reader.get(b"one"), reader.get(b"two")) == (b"1", b"2")
        _copy(original, copy)
        with FileStreamProgramCache(original) as other:
            del other[b"one"]
        assert reader.get(b"one") is None, "it had the older file open"
        assert reader.get(b"two") == b"2"
        with FileStreamProgramCache(copy) as apart:
            assert (apart.get(b"one"), apart.get(b"two")) == (b"1", b"2")
            del apart[b"two"]
            assert (apart.get(b"one"), apart.get(b"two")) == (b"1", None)
            apart.clear()
            assert apart.get(b"one") is None
        assert reader.get(b"two") == b"2"


@pytest.mark.slow
def test_processes_that_delete_at_once_from_a_linked_seed_lose_no_deletion(tmp_path: Path) -> None:
    keys = [b"key %d" % number for number in range(16)]
    bundle = write(tmp_path / "kernels.lcb", bundle_of({key: key for key in keys}))
    original = tmp_path / "original"
    with FileStreamProgramCache(original, seed=bundle) as cache:
        _copy(original, tmp_path / "copy")
        threads = [threading.Thread(target=cache.__delitem__, args=(key,)) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [cache.get(key) for key in keys] == [None] * len(keys)
    with FileStreamProgramCache(tmp_path / "copy") as copy:
        assert [copy.get(key) for key in keys] == keys


def test_a_deletion_while_another_process_replaces_a_linked_seed_marks_the_new_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that it has open has one name by then: the copy's."""
    bundle = write(tmp_path / "kernels.lcb", bundle_of({b"k": b"v", b"other": b"v"}))
    original, served_at = tmp_path / "original", seed_marks._served_at
    with FileStreamProgramCache(original, seed=bundle) as cache:
        _copy(original, tmp_path / "copy")

        def replaced_meanwhile(fd: int, name: bytes) -> int:
            monkeypatch.setattr(seed_marks, "_served_at", served_at)
            subprocess.run([sys.executable, "-c", _DELETE_OTHER, original], check=True)
            return served_at(fd, name)

        monkeypatch.setattr(seed_marks, "_served_at", replaced_meanwhile)
        del cache[b"k"]
        assert (cache.get(b"k"), cache.get(b"other")) == (None, None)
    with FileStreamProgramCache(tmp_path / "copy") as copy:
        assert (copy.get(b"k"), copy.get(b"other")) == (b"v", b"v")


_DELETE_OTHER = """
import sys
from lockcache import FileStreamProgramCache

del FileStreamProgramCache(sys.argv[1])[b"other"]
"""
