# SPDX-License-Identifier: Apache-2.0
"""A program of a user's that installs an adapter itself, repeatedly, and prints as JSON what came of it."""

from __future__ import annotations

import importlib
import json
import sys

from lockcache.integrations import adapter

opened = []
_own = adapter.Shared.__init__


def _counted(self: adapter.Shared, framework: str, *given: object) -> None:
    opened.append(framework)
    _own(self, framework, *given)


adapter.Shared.__init__ = _counted
install = importlib.import_module(f"lockcache.integrations.{sys.argv[1]}").install
answers = [install() for _ in range(3)]
print(json.dumps({"answers": answers, "opened": opened.count(sys.argv[1])}))
