# SPDX-License-Identifier: Apache-2.0
"""Errors of the daemon that its modules share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockcache.errors import LockcacheError
from lockcache.lowlevel import Layout


class AlreadyServedError(LockcacheError):
    """Another daemon manages this directory; the message says who."""

    def __init__(self, root: str, holder: Mapping[str, Any]) -> None:
        super().__init__(f"{root} is managed by another lockcache-daemon: {_who(holder)}")
        self.path = root
        self.holder = dict(holder)


def _who(holder: Mapping[str, Any]) -> str:
    if "pid" not in holder:
        return f"its pid is not known yet (find its process: fuser {Layout('DIR').daemon_lock})"
    return f"pid {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"
