# SPDX-License-Identifier: Apache-2.0
"""A child that is forked while another thread installs an adapter installs it itself."""

from __future__ import annotations

import os
import threading
from typing import Any, cast

from lockcache.integrations.adapter import install, installing


def test_a_child_does_not_take_its_parents_thread_for_its_own() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def action() -> Any:
        begun.set()
        may_end.wait(60)
        return cast("Any", object())

    thread = threading.Thread(target=lambda: install("a framework", action))
    thread.start()
    try:
        assert begun.wait(60)
        pid = os.fork()
        if not pid:
            os._exit(0 if install("a framework", lambda: cast("Any", object())) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        may_end.set()
        thread.join()
        installing._installed.pop("a framework", None)
