# SPDX-License-Identifier: Apache-2.0
"""When an eviction is done."""

from __future__ import annotations

import pytest

from lockcache.filestream.accounting.state import Slot
from lockcache.filestream.eviction.choose import Goal

HELD = Slot(1000, 10)


@pytest.mark.parametrize(
    "goal, surplus",
    [
        (Goal(), (0, 0)),
        (Goal(1000, 10), (0, 0)),
        (Goal(limit_bytes=900), (100, 0)),
        (Goal(limit_entries=7), (0, 3)),
        (Goal(400, 20), (600, 0)),
        (Goal(0, 0), (1000, 10)),
    ],
)
def test_a_goal_names_what_is_too_much_and_never_less_than_nothing(goal: Goal, surplus: tuple[int, int]) -> None:
    assert goal.surplus(HELD) == surplus
    assert goal.is_met(HELD) == (surplus == (0, 0))
