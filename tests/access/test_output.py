"""Files that users name, such as bundles, in folders of several users: who may read the next one."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.filestream.disk import open_output
from tests.access.members import ALICE, BOB, run_as

pytestmark = pytest.mark.root

_SOMEBODYS: int = 4242


def _replace(path: Path) -> Callable[[], None]:
    def work() -> None:
        with open_output(str(path)) as file:
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
    _replace(path)()
    assert (path.read_bytes(), _shown(path)) == (b"content", (0o640, _SOMEBODYS))


def test_a_group_that_the_file_cannot_be_given_to_may_not_read_it(shared: Path) -> None:
    path = shared / "k.lcb"
    path.write_bytes(b"older")
    os.chown(path, ALICE, _SOMEBODYS)
    path.chmod(0o644)
    run_as(BOB, _replace(path))
    assert (path.read_bytes(), _shown(path)[0]) == (b"content", 0o604)
