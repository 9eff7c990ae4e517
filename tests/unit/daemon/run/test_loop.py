# SPDX-License-Identifier: Apache-2.0
"""The start of a daemon: what passes is left to its ticks."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest

from lockcache_daemon.keeper.keeper import Keeper
from lockcache_daemon.observe.log import Report
from lockcache_daemon.run.loop import _open_all
from lockcache_daemon.settings.rules import Rules
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores.sharded import ShardStore
from tests.daemon.keepers import CAP
from tests.state_pages import policy_of


def test_a_server_that_is_away_between_opening_and_stating_the_cap_is_left_to_the_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report(as_json=True, out=io.StringIO(), err=io.StringIO())
    with StopSignals() as stop:
        keepers = [Keeper(str(tmp_path / name), Rules(CAP), report, stop) for name in "ab"]

        def away(store: ShardStore) -> None:
            raise OSError(errno.ESTALE, "Stale file handle")

        monkeypatch.setattr(ShardStore, "held", away)
        _open_all(keepers)
        monkeypatch.undo()
        for keeper in keepers:
            keeper.tick()
            keeper.close()
    for name in "ab":
        assert policy_of(tmp_path / name).max_size_bytes == CAP
