# SPDX-License-Identifier: Apache-2.0
"""Keys of FX graphs: the lines by which torch tells what it hashed, until the key is looked up.

Torch makes these lines of each graph, for its log. Of AOTAutograd's results, bundles of graphs among them, torch makes
them only where its log has them, so there is only the key.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any

from lockcache.integrations.adapter import Parts
from lockcache.integrations.key_parts import parts_of_graph

__all__ = ["GraphKeys", "note_graph_keys"]


class GraphKeys(threading.local):
    """The key that a thread made last, and torch's lines about it."""

    _last: tuple[str, list[str]] = "", []

    def __init__(self, config: Any) -> None:
        """``config``: Inductor's options."""
        self._config = config

    def note(self, key: str, lines: list[str]) -> None:
        """Note a key that will be looked up next."""
        self._last = key, lines

    def parts_of(self, key: str) -> Parts:
        """Returns what says the parts of a key that is looked up, in which the one that torch made is."""
        (made, lines), self._last = self._last, ("", [])
        return functools.partial(self._parts_of, lines if made and made in key else [])

    def _parts_of(self, lines: list[str]) -> dict[str, object]:
        return parts_of_graph(lines, self._is_default) if lines else {}

    def _is_default(self, name: str, value: str) -> bool:
        with contextlib.suppress(Exception):  # of another version
            return str(self._config._config[name].default) == value
        return True


def note_graph_keys(codecache: Any) -> GraphKeys:
    """Have what torch tells of the keys of graphs noted. Where torch has no such function, no parts are known."""
    keys = GraphKeys(getattr(codecache, "config", None))
    own = getattr(codecache, "compiled_fx_graph_hash", None)
    if own is not None:

        @functools.wraps(own)
        def compiled_fx_graph_hash(*args: Any, **options: Any) -> Any:
            found = own(*args, **options)
            with contextlib.suppress(TypeError, ValueError):  # of another version
                key, lines = found
                keys.note(key, lines)
            return found

        codecache.compiled_fx_graph_hash = compiled_fx_graph_hash
    return keys
