# SPDX-License-Identifier: Apache-2.0
"""SQLiteProgramCache: one file of programs for one process, one module for each decision.

Importing this does not import ``sqlite3``; constructing a cache does. Keeps what :mod:`.cache` promises.
"""

from __future__ import annotations

from lockcache.sqlite.cache import SQLiteProgramCache

__all__ = ["SQLiteProgramCache"]
