# SPDX-License-Identifier: Apache-2.0
"""Files that users name, such as bundles, in folders of several users: who may read the next one, and add to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.bundle import promote
from lockcache.filestream import open_output, turn_to_replace
from lockcache.lowlevel import Layout
from tests.access.group_members import ALICE, BOB, GROUP, MALLORY, as_member, run_as
from tests.access.keys import OLD, write_keys

pytestmark = pytest.mark.root

_SOMEBODYS: int = 4242


def _take_a_turn(path: Path) -> Callable[[], None]:
    def work() -> None:
        with turn_to_replace(str(path), 0.0) as turn, open_output(str(path), turn=turn) as file:
            file.write(b"content")

    return work


def _shown(path: Path) -> tuple[int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_gid


def test_what_replaces_a_file_has_its_group(tmp_path: Path) -> None:
    path = tmp_path / "k.lcb"
    path.write_bytes(b"older")
    os.chown(path, 0, _SOMEBODYS)
    path.chmod(0o640)
    _take_a_turn(path)()
    assert (path.read_bytes(), _shown(path)) == (b"content", (0o640, _SOMEBODYS))


def test_a_group_that_the_file_cannot_be_given_to_may_not_read_it(shared: Path) -> None:
    path = shared / "k.lcb"
    path.write_bytes(b"older")
    os.chown(path, ALICE, _SOMEBODYS)
    path.chmod(0o644)
    run_as(BOB, _take_a_turn(path))
    assert (path.read_bytes(), _shown(path)[0]) == (b"content", 0o604)


@pytest.mark.parametrize("mode", [0o2770, 0o770, 0o3770])
def test_who_may_write_to_the_folder_may_take_a_turn(shared: Path, mode: int) -> None:
    shared.chmod(mode)
    path, lock = shared / "k.lcb", shared / ".k.lcb.lock"
    run_as(ALICE, _take_a_turn(path))
    assert _shown(lock) == (0o660, GROUP)
    if mode & stat.S_ISVTX:  # there Alice's file is hers to replace
        path.unlink()
    run_as(BOB, _take_a_turn(path))


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777, 0o1777])
def test_nobody_else_gets_the_lock_file(shared: Path, mode: int) -> None:
    os.chown(shared, ALICE, _SOMEBODYS)
    shared.chmod(mode)
    run_as(ALICE, _take_a_turn(shared / "k.lcb"))
    assert _shown(shared / ".k.lcb.lock")[0] == 0o600


def test_a_lock_file_that_somebody_else_planted_is_refused(shared: Path) -> None:
    shared.chmod(0o777)
    run_as(MALLORY, lambda: os.close(os.open(shared / ".k.lcb.lock", os.O_CREAT, 0o600)))
    with pytest.raises(PermissionError, match=r"k\.lcb\.lock"):
        run_as(ALICE, _take_a_turn(shared / "k.lcb"))
    assert not (shared / "k.lcb").exists()


def test_two_users_promote_into_one_bundle_of_signed_entries(
    home: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared / "k.lcb"

    def promote_as(uid: int, key: bytes) -> int:
        key_file, root = write_keys(home / f"keys-{uid}", OLD), home / f"node-{uid}"
        os.chown(key_file, uid, uid)
        root.mkdir()
        os.chown(root, uid, uid)
        monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(key_file))
        store = as_member(root, lambda cache: cache.__setitem__(key, b"code"))

        def work() -> int:
            store()
            return promote(Layout(str(root)), str(path), wait_seconds=5.0).entries

        return run_as(uid, work)

    assert promote_as(ALICE, b"of alice") == 1
    path.chmod(0o640)
    assert promote_as(BOB, b"of bob") == 2
    assert _shown(path) == (0o640, GROUP)
