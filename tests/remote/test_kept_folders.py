# SPDX-License-Identifier: Apache-2.0
"""``lockcache run --keep`` on hosts whose directories have nothing in common but a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.builders import build
from tests.remote.servers import Valkey


@pytest.mark.slow
def test_a_folder_that_one_host_built_is_laid_down_on_another(server: Valkey, tmp_path: Path) -> None:
    how = "moved"
    for name in ("k1", "k2"):
        assert build(tmp_path / "cache a", tmp_path / "a", how, "--remote", server.url, name=name)[0] == "built"
    assert build(tmp_path / "cache b", tmp_path / "b", how, "--remote", server.url, name="k2")[0] == "found"
    # The second host had a list of names; what a third one adds is found there too.
    assert build(tmp_path / "cache c", tmp_path / "c", how, "--remote", server.url, name="k3")[0] == "built"
    assert build(tmp_path / "cache b", tmp_path / "b", how, "--remote", server.url, name="k3")[0] == "found"
