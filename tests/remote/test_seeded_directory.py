# SPDX-License-Identifier: Apache-2.0
"""A bundle below a directory and a server behind it: the directory first, then its bundle, then the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, RemoteProgramCache
from lockcache.filestream.eviction import evict_to_limit
from tests.remote.servers import Valkey
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.material import open_directory

pytestmark = pytest.mark.usefixtures("behind_directories")

KEYS = [b"key %d" % number for number in range(4)]
OLDER = dict.fromkeys(KEYS, b"older")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write(tmp_path / "kernels.lcb", bundle_of(OLDER))


def test_the_server_is_asked_for_what_neither_has(server: Valkey, tmp_path: Path, bundle: Path) -> None:
    with RemoteProgramCache(server.url) as remote:
        remote[KEYS[0]] = b"of the server"
        remote[b"only there"] = b"of the server"
    with FileStreamProgramCache(tmp_path / "node", seed=bundle) as cache:
        assert cache[KEYS[0]] == b"older"
        assert cache[b"only there"] == b"of the server"
        assert cache.get(b"nowhere") is None


def test_what_was_deleted_here_comes_back_from_neither(server: Valkey, tmp_path: Path, bundle: Path) -> None:
    with FileStreamProgramCache(tmp_path / "node", seed=bundle) as cache:
        assert [cache[key] for key in KEYS] == [b"older"] * 4
        cache[KEYS[0]] = b"newer"
        del cache[KEYS[1]]
    with FileStreamProgramCache(tmp_path / "node", seed=bundle) as cache:
        assert evict_to_limit(open_directory(tmp_path / "node"), 0).entries
        assert cache.get(KEYS[0]) == b"older", "the bundle is asked first"
        assert cache.get(KEYS[1]) is None
        assert cache[KEYS[2]] == b"older"
        cache.clear()
        assert [cache.get(key) for key in KEYS] == [b"newer", None, None, None], "the server is left alone"
