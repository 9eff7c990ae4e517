# SPDX-License-Identifier: Apache-2.0
"""When entries are looked at for their age, counted in walks and not by a clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockcache.filestream.accounting.scan import Found
from lockcache_daemon.keeper import max_age
from lockcache_daemon.keeper.max_age import Ageing
from lockcache_daemon.settings.rules import Rules

DAY = 86400.0


class Watched:
    """The ageing of entries with these last uses, in seconds, and the clock by which it goes."""

    def __init__(self, *uses: float) -> None:
        self.now = 1000 * DAY
        self.uses = list(uses)
        self.seen = 0
        self.ageing = Ageing(self._entries, Rules(), lambda: self.now)

    def due(self, max_age_days: float) -> list[str]:
        return [found.name for found in self.ageing.due(max_age_days * DAY)]

    def _entries(self) -> Iterator[Found]:
        for number, use in enumerate(self.uses):
            self.seen += 1
            yield Found(int(use * 1e9), str(number), 1, 1)


def test_what_is_too_old_is_due_and_nothing_is_looked_at_again_before_the_oldest_that_is_left_can_be() -> None:
    watched = Watched(990 * DAY, 999.9 * DAY, 999 * DAY)
    assert watched.due(5) == ["0"]
    watched.uses.pop(0)
    looked = watched.seen
    watched.now += 0.2 * DAY
    assert watched.due(5) == []
    assert watched.seen == looked
    watched.now = 1004.1 * DAY
    assert watched.due(5) == ["1"]


def test_what_comes_in_with_a_use_of_long_ago_is_found_within_hours() -> None:
    watched = Watched(999.9 * DAY)
    assert watched.due(5) == []
    watched.uses.append(1 * DAY)
    watched.now += 0.3 * DAY
    assert watched.due(5) == ["1"]


def test_a_long_walk_is_cut_into_slices_that_add_up_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_age, "_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(max_age, "_DUTY", 1e9)  # the throttle is not what is tested
    watched = Watched(*[1 * DAY] * 1000)
    slices = []
    while watched.seen < 1000:
        slices.append(watched.due(5))
    assert max(map(len, slices)) == max_age._ASK_EVERY
    assert len(set().union(*slices)) == 1000


def test_slices_in_which_nothing_is_old_are_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_age, "_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(max_age, "_DUTY", 1e-9)
    watched = Watched(*[999.9 * DAY] * 1000)
    for _ in range(10):
        assert watched.due(5) == []
    assert watched.seen <= 2 * max_age._ASK_EVERY  # the second has only the first to go by
