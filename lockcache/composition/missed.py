# SPDX-License-Identifier: Apache-2.0
"""Missed entries: which part of a key made it miss, in one line, for a process that is sealed.

Looks at the directory as ``lockcache why`` does, and promises a bound, since somebody may wait for the answer: at most
:data:`_MOST_LOOKED_AT` entries, and half a second. Keeps invariant 7 (never take the job down): raises nothing.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import Final

from lockcache.errors import in_words
from lockcache.explain import Stated, reasons_of, values_in_words
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.bundle import SeededRecords
from lockcache.filestream.disk import Layout
from lockcache.filestream.entry import KeyRing
from lockcache.filestream.inspect import FLAWS, Neighbour, Search, consider_all, consider_seed, flaw_of
from lockcache.remote.manifest import MissedKey
from lockcache.sizes import counted

__all__ = ["MissedEntry"]

_MOST_LOOKED_AT: Final = 16_384
_LONGEST_SECONDS: Final = 0.5
# Parts that differ and are named.
_MOST_SHOWN: Final = 4
_NAME: Final = 12


class MissedEntry(MissedKey):
    """An entry that was looked up just now and was not served."""

    def __init__(
        self, name: str, stated: Stated | None, layout: Layout, keys: KeyRing | None, *, is_renewing: bool
    ) -> None:
        """``layout``: the directory that was asked. ``is_renewing``: whole entries are hidden from the program."""
        super().__init__(name, stated)
        self._layout = layout
        self._now_ns = time.time_ns()
        # Only until the caller stores can be seen what it found.
        self._flaw = ""
        if has_entry(layout, name):
            self._flaw = flaw_of(layout, name, keys) or ("renewed" if is_renewing else "")

    def explain(self) -> str:
        """Returns why it missed. Raises nothing."""
        if self._flaw in FLAWS:
            return FLAWS[self._flaw]
        parts = () if self._stated is None else self._stated.parts
        if not parts:
            return "its key does not say what it was made of"
        try:
            return self._compare(self._layout, Search(self.name, parts))
        except OSError as error:
            return f"the stored entries cannot be compared: {in_words(error)}"

    def _compare(self, layout: Layout, search: Search) -> str:
        until, looked_at = time.monotonic() + _LONGEST_SECONDS, 0
        for _ in zip(range(_MOST_LOOKED_AT), consider_all(layout, [search]), strict=False):
            looked_at += 1
            if time.monotonic() > until:
                break
        with suppress(OSError), closing(SeededRecords(layout)) as seed:  # few have one
            for _ in consider_seed([search], seed, _MOST_LOOKED_AT - looked_at):
                looked_at += 1
                if time.monotonic() > until:
                    break
            return self._told(search.found(layout, self._now_ns, or_later=True, seed=seed), looked_at)
        return self._told(search.found(layout, self._now_ns, or_later=True), looked_at)

    def _told(self, found: list[Neighbour], looked_at: int) -> str:
        if not found:
            return f"nothing like it is stored ({counted(looked_at, 'entry')} compared)"
        nearest = found[0]
        label = nearest.statement.label
        place = f"{label} ({nearest.name[:_NAME]})" if label else nearest.name[:_NAME]
        if not nearest.differences:
            return f"no part that is kept differs from {place}"
        shown = [
            f"{each.name}{self._because(each.name, each.mine is None, nearest)}: {values_in_words(each)}"
            for each in nearest.differences[:_MOST_SHOWN]
        ]
        more = len(nearest.differences) - len(shown)
        return f"differs from {place} in {', '.join(shown)}{f' and {more} more' if more else ''}"

    def _because(self, part: str, is_theirs: bool, nearest: Neighbour) -> str:
        parts = nearest.statement.parts if is_theirs or self._stated is None else self._stated.parts
        reasons = reasons_of(part, parts)
        return f" (because of {' and '.join(reasons)})" if reasons else ""
