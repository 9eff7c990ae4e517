# SPDX-License-Identifier: Apache-2.0
"""The command of ``lockcache run`` is waited for, whichever thread takes the signal that says that it has ended."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from lockcache.cli.running import child
from lockcache.cli.signals import held_back


def test_a_thread_that_takes_the_signal_does_not_hang_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, is_over = child._spawn, threading.Event()
    other = threading.Thread(target=is_over.wait)  # which holds no signal back
    other.start()

    def spawn_and_let_it_end(*given: Any) -> int:
        pid = spawn(*given)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return pid

    monkeypatch.setattr(child, "_spawn", spawn_and_let_it_end)
    try:
        with held_back(child.WAITED_FOR) as mask:
            assert child.run_child(("sh", "-c", "exit 7"), os.environ, mask) == 7 << 8
    finally:
        is_over.set()
        other.join()
