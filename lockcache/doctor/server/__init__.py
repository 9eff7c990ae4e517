# SPDX-License-Identifier: Apache-2.0
"""The doctor of a server that hosts share.

Promises that every server is examined in bounded time, and that nothing is left on it.

May use: findings.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.doctor.server.trial import examine_remote

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
