# SPDX-License-Identifier: Apache-2.0
"""Missed keys, for a process that is sealed: each is listed in a manifest, so that the next warm-up fetches it."""

from __future__ import annotations

from lockcache.explain import Stated
from lockcache.remote.manifest.recorder import recorder_of


class MissedKey:
    """A key that was looked up just now and was not served."""

    def __init__(self, name: str, stated: Stated | None = None) -> None:
        self.name = name
        self._stated = stated

    def list_in(self, path: str) -> None:
        """Add the name to the manifest at ``path``, at once if nobody else is writing it. Raises nothing."""
        recorder_of(path, "the manifest of what was missed").record(self.name)

    def explain(self) -> str:
        """Returns why it missed; empty where there is no directory to compare with. Raises nothing."""
        return ""
